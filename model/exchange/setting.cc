// SPDX-License-Identifier: Apache-2.0
// Looks settings up and refuses those that contradict each other.
#include "model/exchange/setting.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/plain_text.h"

namespace orrery::exchange {
namespace {

// Python's brackets and quotes stand around what a command line has without them: "['p2p']" is p2p, "(4095, 0)" is 4095,0.
std::vector<std::string> BareWords(const std::string& text) {
  std::vector<std::string> words(1);
  for (const char c : text) {
    if (std::string_view(" \t,[](){}\"'").find(c) == std::string_view::npos)
      words.back() += c;
    else if (!words.back().empty())
      words.emplace_back();
  }
  if (words.back().empty()) words.pop_back();
  return words;
}

// 1 and 1.0 are one number, whichever of a script and its log has which.
bool SaysTheSame(const std::string& a, const std::string& b) {
  if (a == b) return true;
  const auto same = [](const std::string& one, const std::string& other) {
    double first = 0, second = 0;
    return one == other || (ParseNumber(one, &first) == NumberFault::kNone &&
                            ParseNumber(other, &second) == NumberFault::kNone && first == second);
  };
  const std::vector<std::string> left = BareWords(a), right = BareWords(b);
  return !left.empty() && left.size() == right.size() &&
         std::equal(left.begin(), left.end(), right.begin(), same);
}

}  // namespace

std::string Place(const Location& where) {
  if (!where.source) return "";
  return where.line > 0 ? fmt::format("{}:{}", where.source->name, where.line) : where.source->name;
}

SettingIndex::SettingIndex(const Settings& settings)
    : settings_(settings), used_(settings.size(), false) {
  for (std::size_t i = 0; i < settings.size(); ++i) {
    const auto [at, added] = at_.emplace(settings[i].key, i);
    if (added) continue;
    const Setting& first = settings[at->second];
    const bool unread = !first.unresolved.empty() || !settings[i].unresolved.empty();
    if (unread) {  // the other one may know it: the log of a script
      used_[first.unresolved.empty() ? i : at->second] = true;
      if (!first.unresolved.empty()) at->second = i;
      continue;
    }
    if (!SaysTheSame(first.value, settings[i].value)) {
      throw InputError({{settings[i].where,
                         fmt::format("{} is '{}' here and '{}' in {}", first.key, settings[i].value,
                                     first.value, Place(first.where)),
                         "keep one of them"}});
    }
    used_[i] = true;  // the same again
  }
}

const Setting* SettingIndex::Find(const std::string& key) const {
  const auto at = at_.find(key);
  if (at == at_.end()) {
    absent_.insert(key);
    return nullptr;
  }
  used_[at->second] = true;
  const Setting& setting = settings_[at->second];
  if (!setting.unresolved.empty())
    throw InputError({{setting.where, fmt::format("{}: {}", key, setting.unresolved),
                       setting.unresolved.ends_with("in a loop")
                           ? "give one of them by the flag that it sets: a prediction is of one job"
                           : "write the value out, or give the flag that it sets"}});
  return &setting;
}

std::string SettingIndex::Peek(const std::string& key) const {
  const auto at = at_.find(key);
  return at == at_.end() ? "" : settings_[at->second].value;
}

std::optional<int64_t> SettingIndex::Whole(const std::string& key, int64_t min) const {
  const Setting* setting = Find(key);
  if (setting == nullptr) return std::nullopt;
  int64_t value = 0;
  if (ParseInteger(setting->value, &value) == NumberFault::kNone && value >= min &&
      value <= int64_t{1} << 40)
    return value;
  throw InputError(
      {{setting->where,
        fmt::format("{}: '{}' is no whole number from {} on", key, setting->value, min),
        setting->value == "auto" ? "\"auto\" is filled in at run time: write the number" : ""}});
}

std::optional<double> SettingIndex::Number(const std::string& key) const {
  const Setting* setting = Find(key);
  if (setting == nullptr) return std::nullopt;
  double value = 0;
  if (ParseNumber(setting->value, &value) == NumberFault::kNone) return value;
  throw InputError(
      {{setting->where, fmt::format("{}: '{}' is no number", key, setting->value),
        setting->value == "auto" ? "\"auto\" is filled in at run time: write the number" : ""}});
}

std::vector<const Setting*> SettingIndex::Unused() const {
  std::vector<const Setting*> unused;
  for (std::size_t i = 0; i < settings_.size(); ++i) {
    if (!used_[i]) unused.push_back(&settings_[i]);
  }
  return unused;
}

std::vector<std::string> SettingIndex::Asked() const { return {absent_.begin(), absent_.end()}; }

}  // namespace orrery::exchange
