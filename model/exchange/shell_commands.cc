// SPDX-License-Identifier: Apache-2.0
// Follows commands that name files, and evaluates tests.
#include "model/exchange/shell_commands.h"

#include <algorithm>
#include <filesystem>
#include <span>

#include "model/base/plain_text.h"
#include "model/exchange/shell_arithmetic.h"
#include "model/exchange/shell_lexer.h"

namespace orrery::exchange {
namespace {

namespace fs = std::filesystem;

// The words behind the command and the switches that it may have. nullopt: other switches.
std::optional<Command> Operands(const Command& command, const Command& switches) {
  Command words;
  for (std::size_t i = 1; i < command.size(); ++i) {
    const bool known = std::ranges::find(switches, command[i]) != switches.end();
    if (words.empty() && (known || command[i] == "--")) continue;
    if (words.empty() && command[i].starts_with('-')) return std::nullopt;
    words.push_back(command[i]);
  }
  return words;
}

// The one path of a command, seen from `folder`.
std::optional<std::string> PathOf(const Command& command, const Command& switches,
                                  const fs::path& folder) {
  const std::optional<Command> words = Operands(command, switches);
  if (!words || words->size() != 1) return std::nullopt;
  return folder == "." ? words->front() : (folder / words->front()).string();
}

std::optional<bool> Compare(const std::string& left, const std::string& sign,
                            const std::string& right) {
  if (sign == "=" || sign == "==" || sign == "!=") {
    if (right.find_first_of("*?[") != std::string::npos) return std::nullopt;
    return (left == right) == (sign != "!=");
  }
  int64_t a = 0, b = 0;
  if (ParseInteger(left, &a) != NumberFault::kNone || ParseInteger(right, &b) != NumberFault::kNone)
    return std::nullopt;
  if (sign == "-eq") return a == b;
  if (sign == "-ne") return a != b;
  if (sign == "-gt") return a > b;
  if (sign == "-ge") return a >= b;
  if (sign == "-lt") return a < b;
  if (sign == "-le") return a <= b;
  return std::nullopt;
}

std::optional<bool> HoldsOf(std::span<const std::string> words) {
  if (!words.empty() && words[0] == "!") {
    const std::optional<bool> rest = HoldsOf(words.subspan(1));
    return rest ? std::optional(!*rest) : std::nullopt;
  }
  if (words.size() == 3) return Compare(words[0], words[1], words[2]);
  if (words.size() != 2) return std::nullopt;
  if (words[0] == "-n") return !words[1].empty();
  return words[0] == "-z" ? std::optional(words[1].empty()) : std::nullopt;
}

}  // namespace

std::string FolderOf(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::optional<std::string> PrintedBy(const std::vector<Command>& commands) {
  fs::path folder = ".";
  for (std::size_t i = 0; i < commands.size(); ++i) {
    const Command& command = commands[i];
    if (command.empty()) return std::nullopt;
    const std::string& name = command[0];
    const bool last = i + 1 == commands.size();
    if (!last || name == "cd") {
      const auto path = PathOf(command, {"-P", "-L"}, folder);
      if (name != "cd" || !path || last) return std::nullopt;
      folder = *path;
    } else if (name == "pwd") {
      const std::optional<Command> words = Operands(command, {"-P", "-L"});
      return words && words->empty() ? std::optional(folder.string()) : std::nullopt;
    } else if (name == "dirname") {
      const auto path = PathOf(command, {}, folder);
      return path ? std::optional(FolderOf(*path)) : std::nullopt;
    } else if (name == "basename") {
      const auto path = PathOf(command, {}, folder);
      return path ? std::optional(fs::path(*path).filename().string()) : std::nullopt;
    } else if (name == "realpath") {
      return PathOf(command, {"-e", "-m", "-s"}, folder);
    } else if (name == "readlink") {
      return command.size() > 2 ? PathOf(command, {"-f", "-e", "-m"}, folder) : std::nullopt;
    } else if (name == "expr") {
      std::string text;
      for (std::size_t word = 1; word < command.size(); ++word) text += command[word] + " ";
      const auto value = Calculate(text, [](const std::string&) { return std::nullopt; });
      return value ? std::optional(std::to_string(*value)) : std::nullopt;
    } else if (name == "echo") {
      const std::optional<Command> words = Operands(command, {"-n"});
      std::string text;
      for (const std::string& word : words.value_or(Command()))
        text += (text.empty() ? "" : " ") + word;
      return words ? std::optional(text) : std::nullopt;
    } else {
      return std::nullopt;
    }
  }
  return std::nullopt;
}

std::optional<bool> Holds(const Command& test) {
  if (test.empty()) return std::nullopt;
  std::span<const std::string> words(test);
  const std::string& name = words.front();
  words = words.subspan(1);
  if (name == "!") {
    const std::optional<bool> rest = Holds(Command(words.begin(), words.end()));
    return rest ? std::optional(!*rest) : std::nullopt;
  }
  if (name == kArithmetic || name == "let") {  // values stand behind it, of which the last counts
    int64_t value = 0;
    return !words.empty() && ParseInteger(words.back(), &value) == NumberFault::kNone
               ? std::optional(value != 0)
               : std::nullopt;
  }
  if (name == "[" || name == "[[") {
    if (words.empty() || words.back() != (name == "[" ? "]" : "]]")) return std::nullopt;
    words = words.first(words.size() - 1);
  } else if (name != "test") {
    return std::nullopt;
  }
  return HoldsOf(words);
}

}  // namespace orrery::exchange
