// SPDX-License-Identifier: Apache-2.0
// "did you mean": the right names that are nearest to a wrong one.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "model/base/diagnostics.h"
#include "model/base/edit_distance.h"

namespace orrery {
namespace {

constexpr std::size_t kLongestGuess = 80;  // a longer one is no slip of the finger
constexpr std::size_t kShortList = 24;

// Half the edits that still look like a slip: one in three letters, at least one, at most four.
std::size_t Tolerance(std::string_view wrong) {
  return 2 * std::clamp<std::size_t>((wrong.size() + 1) / 3, 1, 4);
}

bool EqualButForCase(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; };
  return std::ranges::equal(a, b, {}, lower, lower);
}

// "a", "b" or "c".
std::string Either(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += fmt::format("'{}'", names[i]);
  }
  return text;
}

}  // namespace

std::vector<std::string> NearestNames(std::string_view wrong,
                                      const std::vector<std::string>& candidates,
                                      std::size_t most) {
  if (wrong.empty() || wrong.size() > kLongestGuess) return {};
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& name : candidates) {
    if (name.size() > kLongestGuess) continue;
    std::size_t distance = HalfEdits(wrong, name);
    // A name that goes on where the user stopped ("bert" for "bert-large") is near as well, and
    // one that stops where the user went on ("selene-a100" for "selene").
    if ((wrong.size() >= 3 && name.starts_with(wrong)) ||
        (name.size() >= 4 && wrong.starts_with(name)) || EqualButForCase(wrong, name))
      distance = std::min(distance, Tolerance(wrong));
    if (distance <= Tolerance(wrong) && distance < 2 * std::max(wrong.size(), name.size())) {
      near.emplace_back(distance, name);
    }
  }
  std::stable_sort(near.begin(), near.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  if (near.size() > most) near.resize(most);
  std::vector<std::string> names;
  names.reserve(near.size());
  for (auto& [distance, name] : near) names.push_back(std::move(name));
  return names;
}

std::string SuggestName(std::string_view wrong, const std::vector<std::string>& candidates) {
  const std::vector<std::string> near = NearestNames(wrong, candidates);
  if (!near.empty()) return fmt::format("did you mean {}?", Either(near));
  if (candidates.empty() || candidates.size() > kShortList) return "";
  return fmt::format("one of: {}", fmt::join(candidates, ", "));
}

}  // namespace orrery
