// SPDX-License-Identifier: Apache-2.0
// Declares flags to CLI11 and turns its complaints into ours.
#include "model/program/common/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>

#include "model/base/input_files.h"
#include "model/base/write_file.h"
#include "model/program/common/table.h"

namespace orrery::cli {
namespace {

bool IsFlag(const std::string& word) {
  return word == "-h" || (word.size() > 2 && word.starts_with("--"));
}
std::string FlagName(const std::string& word) { return word.substr(0, word.find('=')); }

std::string BothNames(const char* name, const char* other) {
  return fmt::format("{}{}{}", name, *other ? "," : "", other);
}

// `where`: of what stands in the value's place.
[[noreturn]] void NeedsValue(const FlagInfo& info, const Location& where) {
  throw InputError({{where, fmt::format("{} needs a value", info.name),
                     fmt::format("{} {}: {}", info.name, info.value, info.help)}});
}

}  // namespace

std::vector<std::string> TextsOf(const std::vector<Flag>& flags) {
  std::vector<std::string> texts;
  for (const Flag& flag : flags) texts.push_back(flag.text);
  return texts;
}

FlagSet::FlagSet(std::string usage, std::string purpose, std::vector<std::string> examples)
    : usage_(std::move(usage)),
      purpose_(std::move(purpose)),
      examples_(std::move(examples)),
      app_(std::make_unique<CLI::App>()) {
  app_->set_help_flag("-h,--help");
  app_->allow_extras();
}
FlagSet::~FlagSet() = default;

void FlagSet::Add(Entry entry, FlagInfo info) {
  if (entry.flag != nullptr) {
    entry.flag->name = info.name;
    entry.option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  }
  info.group = group_;
  entries_.push_back(entry);
  infos_.push_back(std::move(info));
}

void FlagSet::Value(Flag* flag, const char* name, const char* value, std::string help, Words words,
                    std::vector<std::string> list, const char* other_name) {
  CLI::Option* option = app_->add_option(BothNames(name, other_name), flag->text);
  if (value[0] == '[') option->expected(0, 1);
  Add({flag, nullptr, option},
      {name, value, std::move(help), "", words, std::move(list), false, false, other_name});
}

void FlagSet::Output(Flag* flag, const char* name, const char* value, std::string help,
                     std::string holds) {
  Value(flag, name, value, std::move(help), Words::kOutput);
  entries_.back().holds = std::move(holds);
}

void FlagSet::Switch(Flag* flag, const char* name, std::string help) {
  Add({flag, nullptr, app_->add_flag(name)},
      {name, "", std::move(help), "", Words::kAny, {}, false});
}

void FlagSet::Positional(Flag* flag, const char* name, std::string help, Words words,
                         std::vector<std::string> list, const char* other_name) {
  CLI::Option* option = app_->add_option(BothNames(name, other_name), flag->text);
  Add({flag, nullptr, option},
      {name, "", std::move(help), "", words, std::move(list), true, false, other_name});
}

void FlagSet::Values(std::vector<Flag>* flags, const char* name, const char* value,
                     std::string help, Words words, const char* other_name) {
  CLI::Option* option = app_->add_option(BothNames(name, other_name))
                            ->expected(1)
                            ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  Add({nullptr, flags, option},
      {name, value, std::move(help), "", words, {}, false, true, other_name});
}

void FlagSet::Positionals(std::vector<Flag>* flags, const char* name, std::string help,
                          Words words) {
  CLI::Option* option =
      app_->add_option(name)->expected(-1)->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  Add({nullptr, flags, option}, {name, "", std::move(help), "", words, {}, true, true});
}

std::vector<std::string> FlagSet::Names() const {
  std::vector<std::string> names = {"--help"};
  for (const FlagInfo& info : infos_) {
    if (!info.positional) names.push_back(info.name);
  }
  return names;
}

namespace {

// Axes of other planners, refused in the words of configuration files: a nearest name would mislead.
struct RefusedAxis {
  const char *name, *words, *hint;
};
constexpr RefusedAxis kRefusedAxes[] = {
    {"--ep", "expert parallelism is not modelled", "only ep 1 can be predicted: leave --ep out"},
    {"--etp", "expert parallelism is not modelled", "only ep 1 can be predicted: leave --etp out"},
};

const RefusedAxis* RefusedAxisOf(std::string_view name) {
  const auto found = std::ranges::find(kRefusedAxes, name, &RefusedAxis::name);
  return found == std::end(kRefusedAxes) ? nullptr : found;
}

// Whether the command takes the degrees of a layout.
bool LaysOut(const std::vector<FlagInfo>& flags) {
  return std::ranges::find(flags, "--tp", &FlagInfo::name) != flags.end();
}

}  // namespace

void FlagSet::RejectUnknown(const CommandLine& line, std::size_t first) const {
  const std::vector<std::string> extras = app_->remaining();
  if (extras.empty()) return;
  Diagnostics diagnostics;
  const std::vector<std::string>& words = line.words();
  const auto is_flag = [&](std::size_t i) { return words[i].starts_with('-'); };
  std::size_t at = first;
  for (std::size_t e = 0; e < extras.size(); ++e) {
    // The same word may be a flag's value elsewhere: behind another value it is none.
    std::size_t found = words.size();
    for (std::size_t i = at; i < words.size(); ++i) {
      if (words[i] != extras[e]) continue;
      const bool value = i > first && is_flag(i - 1);
      if (is_flag(i) || !value || found == words.size()) found = i;
      if (is_flag(i) || !value) break;
    }
    if (found == words.size()) continue;
    at = found + 1;
    if (!is_flag(found)) {
      diagnostics.Error(line.where(found), fmt::format("'{}' belongs to no flag", words[found]));
      continue;
    }
    const std::string name = FlagName(words[found]);
    std::string hint = SuggestName(name, Names());
    if (const RefusedAxis* refused = RefusedAxisOf(name); refused != nullptr && LaysOut(infos_)) {
      diagnostics.Error(line.where(found), refused->words, refused->hint);
    } else {
      const std::string command = usage_.substr(0, usage_.find(' '));
      if (hint.empty())
        hint = fmt::format("plan {}--help lists the flags",
                           command.starts_with('-') ? "" : command + " ");
      diagnostics.Error(line.where(found), fmt::format("unknown flag '{}'", name), hint);
    }
    // What follows is its value, most likely.
    const bool value = e + 1 < extras.size() && at < words.size() && words[at] == extras[e + 1];
    if (value && !is_flag(at)) ++at, ++e;
  }
  diagnostics.ThrowIfAny();
}

void FlagSet::Place(const CommandLine& line, std::size_t first, std::size_t entry) const {
  const FlagInfo& info = infos_[entry];
  const CLI::Option& option = *entries_[entry].option;
  Flag* flag = entries_[entry].flag;
  flag->given = option.count() > 0;
  flag->where = line.where(line.words().size());
  int seen = 0;
  for (std::size_t i = first; i < line.words().size(); ++i) {
    const std::string& word = line.words()[i];
    bool named = false, bare = false;
    for (const std::string& name : {info.name, info.other_name}) {
      named |= name.starts_with('-') && FlagName(word) == name;
      bare |= !name.empty() && !name.starts_with('-') && word == flag->text && seen == 0;
    }
    if (!named && !bare) continue;
    const bool apart = named && word.find('=') == word.npos && !flag->text.empty();
    if (apart) ++i;
    flag->where = line.where(i);
    if (++seen > 1) {
      throw InputError({{line.where(apart ? i - 1 : i),
                         fmt::format("{} is given twice", flag->name), "keep one of them"}});
    }
  }
  if (!info.other_name.empty() && option.count() > 1)  // once by each name
    throw InputError(
        {{flag->where, fmt::format("{} is given twice", flag->name), "keep one of them"}});
}

void FlagSet::PlaceAll(const CommandLine& line, std::size_t first, std::size_t entry) const {
  const FlagInfo& info = infos_[entry];
  std::size_t at = first;
  for (const std::string& result : entries_[entry].option->results()) {
    const auto holds = [&](const std::string& word) {
      return word == result || (!info.positional && (word == info.name + "=" + result ||
                                                     word == info.other_name + "=" + result));
    };
    while (at < line.words().size() && !holds(line.words()[at])) ++at;
    std::string_view rest = result;
    for (bool more = true; more;) {
      const std::size_t comma = info.value.ends_with(",...") ? rest.find(',') : rest.npos;
      const std::string text(rest.substr(0, comma));
      const Location where = line.where(at);
      if (text.empty() || IsFlag(text)) NeedsValue(info, where);
      entries_[entry].several->push_back({info.name, text, true, where});
      more = comma != rest.npos;
      if (more) rest.remove_prefix(comma + 1);
    }
    ++at;
  }
}

bool FlagSet::Parse(const CommandLine& line, std::size_t first, bool outputs) {
  std::vector<std::string> reversed(line.words().rbegin(), line.words().rend());
  reversed.resize(line.words().size() - first);
  try {
    app_->parse(reversed);
  } catch (const CLI::CallForHelp&) {
    return true;
  } catch (const CLI::ArgumentMismatch&) {
    // Only a flag that stands last can lack its value; the others take the next word.
    const std::size_t end = line.words().size();
    for (const FlagInfo& info : infos_) {
      if (info.name == line.words()[end - 1]) NeedsValue(info, line.where(end));
    }
    throw InputError(
        {{line.where(end), fmt::format("{} needs a value", line.words()[end - 1]), ""}});
  } catch (const CLI::ParseError&) {
    throw InputError({{line.where(first), "this command line cannot be read",
                       "`plan help` lists the commands, --help a command's flags"}});
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].several != nullptr) {
      PlaceAll(line, first, i);
      continue;
    }
    Place(line, first, i);
    const Flag& flag = *entries_[i].flag;
    if (flag.given && infos_[i].value != "" &&
        (IsFlag(flag.text) || (flag.text.empty() && infos_[i].value[0] != '[')))
      NeedsValue(infos_[i], flag.where);
  }
  RejectUnknown(line, first);
  if (outputs) CheckOutputs();
  return false;
}

void FlagSet::CheckOutputs() const {
  Diagnostics diagnostics;
  for (const Entry& entry : entries_)
    if (entry.flag != nullptr) CheckOutput(*entry.flag, &diagnostics);
  diagnostics.ThrowIfAny();
}

// Whether what the command may read is this file, by whatever name.
bool FlagSet::NamesInput(const std::string& path) const {
  const auto is = [&](const Flag& flag) {
    std::error_code error;
    return flag.given && std::filesystem::equivalent(flag.text, path, error) && !error;
  };
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    if (infos_[i].words == Words::kOutput) continue;
    const auto& [flag, several, option, holds] = entries_[i];
    if (flag != nullptr ? is(*flag) : std::ranges::any_of(*several, is)) return true;
  }
  return false;
}

void FlagSet::CheckOutput(const Flag& flag, Diagnostics* diagnostics) const {
  const auto at = std::ranges::find(entries_, &flag, &Entry::flag) - entries_.begin();
  const FlagInfo& info = infos_.at(static_cast<std::size_t>(at));
  const bool folder = info.words == Words::kOutputFolder;
  if (!folder && info.words != Words::kOutput) return;
  if (!flag.given || flag.text.empty() || flag.text == "-") return;
  if (!folder) ClaimOutput(flag.text, flag.name, flag.where);
  if (const std::string why = folder ? WhyNoFolder(flag.text) : WhyNotWritable(flag.text);
      !why.empty())
    return diagnostics->Error(
        flag.where, fmt::format("cannot write '{}': {}", flag.text, why),
        fmt::format("{} names {}", flag.name,
                    folder ? "a folder, which may be new" : "a file in a folder that exists"));
  // A file that is read, too, is refused as such.
  if (folder || NamesInput(flag.text)) return;
  const std::string kept =
      WhyNotReplaced(flag.text, entries_.at(static_cast<std::size_t>(at)).holds);
  if (kept.empty()) return;
  // `--json topo.xml`: the flag takes the word behind it, which was meant as an input.
  diagnostics->Error(
      flag.where,
      fmt::format("{0} would overwrite '{1}': {2}, nothing that {0} has written", flag.name,
                  flag.text, kept),
      info.value.starts_with('[')
          ? fmt::format(
                "{0} takes the word behind it as its file: give {0} last, or remove the file",
                flag.name)
          : "remove the file, or name another one");
}

Description FlagSet::Describe() const { return {Help(), infos_}; }

std::string FlagSet::Help() const {
  std::string text;
  for (const std::string& example : examples_) text += fmt::format("  {}\n", example);
  text = fmt::format("{}\n\nExamples\n{}\nUsage\n  plan {}\n", report::Fold(purpose_, 0), text,
                     usage_);
  std::string group;
  for (const FlagInfo& info : infos_) {
    if (info.group != group) text += fmt::format("\n{}\n", info.group);
    group = info.group;
    std::string left = info.value.empty() ? info.name : fmt::format("{} {}", info.name, info.value);
    text += fmt::format("  {:<30}{}\n", left, report::Fold(info.help, 32));
  }
  return text + fmt::format("  {:<30}{}\n", "--help", "this text");
}

std::vector<int64_t> ReadNumbers(const Flag& flag, bool several, int64_t min, int64_t max,
                                 Diagnostics* diagnostics) {
  std::vector<int64_t> numbers;
  if (!several) {
    if (const auto one = ReadInteger(flag, min, max, diagnostics)) numbers.push_back(*one);
    return numbers;
  }
  for (std::size_t begin = 0; flag.given && begin <= flag.text.size();) {
    const std::size_t end = std::min(flag.text.find(',', begin), flag.text.size());
    Flag one = flag;
    one.text = flag.text.substr(begin, end - begin);
    begin = end + 1;
    const auto range = ReadRange(one, min, max, diagnostics);
    if (!range) return {};
    for (int64_t n = range->first; n < range->second; n *= 2) numbers.push_back(n);
    numbers.push_back(range->second);
  }
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

// Fills one field of a job after another and notes what nobody said.

void RecordBadValue(const Flag& flag, const TextError& error, Diagnostics* diagnostics) {
  diagnostics->Error(flag.where, fmt::format("{}: {}", flag.name, error.message), error.hint);
}

}  // namespace orrery::cli
