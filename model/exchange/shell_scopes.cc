// SPDX-License-Identifier: Apache-2.0
// Keeps variables beside what a subshell or a command makes of them, and follows commands of the shell's own.
#include "model/exchange/shell_scopes.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "model/base/plain_text.h"
#include "model/exchange/shell_arithmetic.h"
#include "model/exchange/shell_commands.h"
#include "model/exchange/shell_effects.h"

namespace orrery::exchange {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostKept = 1'000'000;
constexpr std::size_t kMostArguments = 9;  // $1 to $9

// NAME of NAME=... and NAME+=... without a list; "": another word.
std::string AssignedName(const Token& token) {
  if (token.pieces.empty() || token.pieces[0].quote != Piece::kNone) return "";
  const std::string& text = token.pieces[0].text;
  const std::size_t length = NameLength(text);
  const std::string_view rest = std::string_view(text).substr(length);
  return rest.starts_with('=') || rest.starts_with("+=") ? text.substr(0, length) : "";
}

// What printf makes of a format in which nothing stands but %s, %d, %i, %u and %%.
std::optional<std::string> Formatted(const std::string& format, const Words& words,
                                     std::size_t next) {
  std::string text;
  for (std::size_t i = 0; i < format.size(); ++i) {
    if (format[i] == '\\') return std::nullopt;
    if (format[i] != '%') {
      text += format[i];
      continue;
    }
    const char kind = ++i < format.size() ? format[i] : '\0';
    if (kind == '%') {
      text += kind;
      continue;
    }
    const std::string word = next < words.size() ? words[next].text : "";
    if (next < words.size() && !words[next++].unresolved.empty()) return std::nullopt;
    int64_t number = 0;
    const bool whole = ParseInteger(word, &number) == NumberFault::kNone;
    if (kind != 's' && (std::string_view("diu").find(kind) == std::string_view::npos || !whole))
      return std::nullopt;
    text += kind == 's' ? word : std::to_string(number);
  }
  return next >= words.size() ? std::optional(text) : std::nullopt;  // else it begins again
}

bool SameVariable(const ShellVariable& a, const ShellVariable& b) {
  const auto same = [](const Word& one, const Word& other) {
    return one.text == other.text && one.unresolved == other.unresolved;
  };
  return a.array == b.array && a.map == b.map && a.keys == b.keys &&
         std::ranges::equal(a.words, b.words, same);
}

// NAME+=(WORD ...), or NAME="$NAME WORD ...".
bool AddsWords(const ShellVariable& now, const ShellVariable& before) {
  if (before.words.empty() || before.words.size() > now.words.size()) return false;
  ShellVariable front = now;
  front.words.resize(before.words.size());
  if (now.array) return SameVariable(front, before);
  const std::string& text = before.words[0].text;
  return !text.empty() && now.words[0].text.starts_with(text + " ");
}

// What may be unset by then.
ShellVariable Gone(const std::string& name, ShellVariable value, const char* where) {
  const Location place = value.words.empty() ? Location() : value.words[0].where;
  value.words = {{"", place, fmt::format("{} is unset in a {} after a value", name, where)}};
  value.keys.clear();
  return value;
}

}  // namespace

void ShellScopes::KeepPrefix(Prefix* prefix) const {
  const bool more =
      at_ + 1 < tokens().size() && (tokens()[at_ + 1].word() || tokens()[at_ + 1].redirect());
  if (declares_ || !more || branches_.Skips()) return;
  const std::string name = AssignedName(tokens()[at_]);
  const auto same = [&](const auto& kept) { return kept.first == name; };
  if (name.empty() || std::ranges::any_of(*prefix, same)) return;
  const auto known = script_.variables.find(name);
  prefix->emplace_back(name, known == script_.variables.end() ? std::optional<ShellVariable>()
                                                              : std::optional(known->second));
}

void ShellScopes::Swap(Prefix* prefix) {
  for (auto& [name, kept] : *prefix) {
    const auto known = script_.variables.find(name);
    std::optional<ShellVariable> now;
    if (known != script_.variables.end()) now = std::move(known->second);
    if (kept)
      script_.variables[name] = std::move(*kept);
    else if (known != script_.variables.end())
      script_.variables.erase(known);
    kept = std::move(now);
  }
}

void ShellScopes::OpenSubshell(std::size_t end) {
  kept_ += script_.variables.size();
  if (kept_ > kMostKept && at_ < tokens().size())
    throw InputError({{tokens()[at_].where, "too many subshells for a launch script", ""}});
  subshells_.push_back(
      {end, script_.variables, integers_, functions_, arguments_, folder_, branches_.any_case});
}

void ShellScopes::CloseSubshell() {
  if (subshells_.empty()) return;
  Subshell& around = subshells_.back();
  script_.variables = std::move(around.variables);
  integers_ = std::move(around.integers);
  functions_ = std::move(around.functions);
  arguments_ = std::move(around.arguments);
  folder_ = std::move(around.folder);
  branches_.any_case = around.any_case;
  subshells_.pop_back();
}

bool ShellScopes::IsForked(std::size_t* end) {
  if (looked_ > kMostKept) return false;
  *end = EndOfBlock(tokens(), at_ + 1);
  looked_ += (*end == 0 ? tokens().size() : *end) - at_;
  if (*end == 0) return false;
  std::size_t behind = *end + 1;
  while (behind < tokens().size() && (tokens()[behind].word() || tokens()[behind].redirect()))
    ++behind;
  return piped_ ||
         (behind < tokens().size() && (tokens()[behind].op == "|" || tokens()[behind].op == "&"));
}

bool ShellScopes::Forks() const {
  return piped_ || (at_ < tokens().size() && (tokens()[at_].op == "|" || tokens()[at_].op == "&"));
}

void ShellScopes::OpenChain(int frame) {
  if (!branches_.Likely() || branches_.Unknown() || kept_ > kMostKept) return;
  const auto at = std::ranges::find_if(chains_, [&](const Chain& chain) {
    return chain.frame == frame && chain.blocks == branches_.Depth() &&
           chain.subshells == Subshells();
  });
  if (at != chains_.end()) {
    at->usual = at->usual && branches_.Usual();
    return;
  }
  kept_ += script_.variables.size();
  chains_.push_back({frame, branches_.Depth(), Subshells(), branches_.Usual(), script_.variables});
}

void ShellScopes::EndChain(int frame, bool keeps) {
  while (!chains_.empty()) {
    const Chain& inner = chains_.back();
    if (inner.frame < frame || (inner.blocks < branches_.Depth() || inner.subshells < Subshells()))
      return;
    Chain chain = std::move(chains_.back());
    chains_.pop_back();
    if (!keeps && chain.subshells == Subshells()) Rewind(std::move(chain));
  }
}

void ShellScopes::EndChains(int frame) {
  while (!chains_.empty() && chains_.back().frame > frame) {
    Chain chain = std::move(chains_.back());
    chains_.pop_back();
    Rewind(std::move(chain));
  }
}

void ShellScopes::Rewind(Chain chain) {
  for (auto& [name, value] : script_.variables) {
    const auto before = chain.variables.find(name);
    const bool set = before != chain.variables.end();
    // The folder is that of a script that works; a value where none stood before is.
    if (name == "PWD" || (set ? SameVariable(before->second, value) : chain.usual)) continue;
    const ShellVariable now = std::exchange(value, set ? before->second : ShellVariable());
    StoreDoubtful(branches_, name, now, AddsWords(now, value),
                  now.words.empty() ? Location() : now.words.back().where, &script_);
  }
  for (auto& [name, value] : chain.variables) {
    if (!script_.variables.contains(name)) script_.variables[name] = Gone(name, value, "branch");
  }
}

bool ShellScopes::LeavesBehind() const {
  std::size_t at = at_ + 1;
  const auto is = [&](std::string_view word) {
    return at < tokens().size() && tokens()[at].Plain() == word;
  };
  while (at < tokens().size() && tokens()[at].op == "\n") ++at;
  if (is("{")) {
    std::size_t last = std::max(EndOfBlock(tokens(), at + 1), at + 1);
    while (last > at + 1 && !tokens()[last - 1].word()) --last;
    while (last > at + 1 && tokens()[last - 1].word()) --last;
    at = last;
  }
  return is("exit") || is("return");
}

void ShellScopes::Builtins(const Words& words) {
  const std::string& name = words[0].text;
  if (name == "unset")
    Unset(words);
  else if (name == "set")
    SetArguments(words);
  else if (name == "shift")
    Shift(words);
  else if (name == "printf" && words.size() > 3 && words[1].text == "-v")
    PrintInto(words);
  else if (name == "cd" || name == "pushd" || name == "popd")
    ChangeFolder(words);
  else if (name == "shopt")
    Options(words);
}

void ShellScopes::Unset(const Words& words) {
  bool functions = false, variables = false;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    functions |= text == "-f";
    variables |= text == "-v";
    if (text.starts_with('-')) continue;
    const std::size_t length = NameLength(text);
    const std::string name = text.substr(0, length), rest = text.substr(length);
    if (!words[i].unresolved.empty() || length == 0) {
      if (!words[i].unresolved.empty())
        script_.unsourced.push_back({"unset", words[i].where, words[i].unresolved});
      continue;
    }
    const auto known = script_.variables.find(name);
    if (functions || (!variables && known == script_.variables.end())) {
      if (!branches_.Unknown()) functions_.erase(name);
    } else if (known == script_.variables.end()) {
      continue;
    } else if (branches_.Unknown()) {
      known->second = Gone(name, known->second, branches_.InLoop() ? "loop" : "branch");
      known->second.words[0].where = words[i].where;
    } else if (rest.size() > 2 && rest != "[@]" && rest != "[*]") {
      UnsetElement(name, rest.substr(1, rest.size() - 2), words[i].where);
    } else {
      script_.variables.erase(known);
    }
  }
}

// NAME[KEY]
void ShellScopes::UnsetElement(const std::string& name, const std::string& key,
                               const Location& where) {
  ShellVariable& variable = script_.variables[name];
  if (variable.map) {
    const bool quoted = key.size() > 1 && (key[0] == '"' || key[0] == '\'') && key.back() == key[0];
    const auto at = std::ranges::find(variable.keys, quoted ? key.substr(1, key.size() - 2) : key);
    if (at == variable.keys.end() || variable.keys.size() != variable.words.size()) return;
    variable.words.erase(variable.words.begin() + (at - variable.keys.begin()));
    variable.keys.erase(at);
    return;
  }
  const std::optional<int64_t> index = Evaluate(key, where);
  const auto count = static_cast<int64_t>(variable.words.size());
  if (index && (*index == count - 1 || *index == -1) && count > 0)
    variable.words.pop_back();
  else if (!index || *index < count)  // the others keep their numbers
    variable.words = {{"", where, fmt::format("an element of {} is unset", name)}};
}

// set -- WORD ..., set WORD ...: $1 and those behind it.
void ShellScopes::SetArguments(const Words& words) {
  std::size_t first = 1;
  bool given = false;
  for (; first < words.size() && !given; ++first) {
    const std::string& text = words[first].text;
    given = text == "--";
    if (!given && !text.starts_with('-') && !text.starts_with('+')) break;
    if (!given && text.ends_with('o')) ++first;  // -o pipefail
  }
  if (!given && first >= words.size()) return;
  Words arguments(words.begin() + static_cast<std::ptrdiff_t>(std::min(first, words.size())),
                  words.end());
  std::string why = branches_.Unknown() ? "arguments are set in a branch or loop" : "";
  for (Word& word : arguments) {
    if (why.empty()) why = word.unresolved;  // it may be several
    word.unresolved = why;
  }
  for (; !why.empty() && arguments.size() < kMostArguments;)
    arguments.push_back({"", words[0].where, why});
  arguments_ = std::move(arguments);
}

void ShellScopes::Shift(const Words& words) {
  if (!arguments_ || words.size() > 2) return;
  int64_t count = 1;
  if (words.size() == 2 && ParseInteger(words[1].text, &count) != NumberFault::kNone) count = -1;
  if (branches_.Unknown() || count < 0 || count > static_cast<int64_t>(arguments_->size())) {
    for (Word& word : *arguments_) word = {"", words[0].where, "arguments are shifted"};
  } else {
    arguments_->erase(arguments_->begin(), arguments_->begin() + count);
  }
}

// printf -v NAME FORMAT ...
void ShellScopes::PrintInto(const Words& words) {
  if (!words[2].unresolved.empty()) {
    script_.unsourced.push_back({"printf -v", words[2].where, words[2].unresolved});
    return;
  }
  const std::string& name = words[2].text;
  const std::optional<std::string> text =
      words[3].unresolved.empty() ? Formatted(words[3].text, words, 4) : std::nullopt;
  Word value{text.value_or(""), words[0].where, ""};
  if (!text) value.unresolved = fmt::format("{} is set by printf", name);
  Store(name, {{std::move(value)}, false}, false, words[0].where);
}

void ShellScopes::ChangeFolder(const Words& words) {
  if (words[0].text == "popd") {
    folder_ = folders_.empty() ? std::nullopt : folders_.back();
    if (!folders_.empty()) folders_.pop_back();
  } else {
    if (words[0].text == "pushd") folders_.push_back(folder_);
    const Word* to = nullptr;
    for (std::size_t i = 1; i < words.size(); ++i) {
      if (words[i].text != "-P" && words[i].text != "-L" && words[i].text != "--") to = &words[i];
    }
    const bool known = to != nullptr && to->unresolved.empty() && !to->text.empty() &&
                       std::string_view("-~+").find(to->text[0]) == std::string_view::npos;
    const std::string own = FolderOf(path_);  // as $0 and PWD have it
    if (known && own != "." && (to->text + "/").starts_with(own + "/"))
      folder_ = fs::path(to->text).lexically_relative(own).lexically_normal().string();
    else if (known && (folder_ || fs::path(to->text).is_absolute()))
      folder_ = (fs::path(folder_.value_or("")) / to->text).lexically_normal().string();
    else
      folder_.reset();
    if (folder_ == ".") folder_ = "";
  }
  if (branches_.Unknown()) folder_.reset();
  if (path_.empty()) return;
  const fs::path own = FolderOf(path_);
  // Seen from where this program runs; "." would be that of the next command.
  const bool known =
      folder_ && (folder_->empty() || own != "." || fs::path(*folder_).is_absolute());
  Word here{"", words[0].where, known ? "" : "cd changes PWD"};
  if (known)
    here.text = folder_->empty() ? own.string() : (own / *folder_).lexically_normal().string();
  script_.variables["PWD"] = {{std::move(here)}, false};
}

// shopt -s nocasematch
void ShellScopes::Options(const Words& words) {
  if (words.size() < 3 || (words[1].text != "-s" && words[1].text != "-u")) return;
  for (const Word& word : words) {
    if (word.text != "nocasematch") continue;
    const bool set = words[1].text == "-s";
    if (branches_.any_case != set)
      branches_.any_case = branches_.Unknown() ? std::nullopt : std::optional(set);
  }
}

Word ShellScopes::FromFolder(const Word& file, bool expanded) const {
  Word seen = file;
  const fs::path path = file.text;
  if (!folder_ || folder_->empty() || path.is_absolute() || !file.unresolved.empty()) return seen;
  // $(dirname $0)/FILE
  const std::string own = FolderOf(path_) + "/";
  if (file.text.starts_with(own) && (own != "./" || expanded)) return seen;
  seen.text = (fs::path(*folder_) / path).lexically_normal().string();
  // In no other folder, as of a file that is named by its place.
  if (!fs::path(seen.text).is_absolute()) seen.text.insert(0, "./");
  return seen;
}

Words ShellScopes::FilesFromFolder(Words words) const {
  constexpr std::string_view kWriters[] = {"tee", "cp", "mv", "ln", "cat", "sed"};
  if (!folder_ || folder_->empty() || words.empty() ||
      std::ranges::find(kWriters, words[0].text) == std::end(kWriters))
    return words;
  const bool last = words[0].text == "sed";  // behind its expressions
  for (std::size_t i = last ? words.size() - 1 : 1; i < words.size(); ++i) {
    if (!words[i].text.starts_with('-')) words[i] = FromFolder(words[i]);
  }
  return words;
}

void ShellScopes::CopyCounts(const std::map<std::string, ShellVariable>& from,
                             std::map<std::string, ShellVariable>* to) {
  const auto copy = [&](const char* name) {
    if (const auto at = from.find(name); at != from.end()) (*to)[name] = at->second;
  };
  for (const char* name : kCountVariables) copy(name);
  for (const char* name : {kVisibleDevices, kAgentNodes, kWorldSize}) copy(name);
}

}  // namespace orrery::exchange
