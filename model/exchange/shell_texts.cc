// SPDX-License-Identifier: Apache-2.0
// Runs texts in the place of a command: bodies of functions, files of `source`, words of eval, scripts of other shells.
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "model/exchange/shell_commands.h"
#include "model/exchange/shell_follower.h"
#include "model/exchange/shell_words.h"

namespace orrery::exchange {
namespace {

constexpr int kMostInner = 64;  // scripts in bash -c
constexpr std::size_t kMostNested = 16;
constexpr int kMostCalls = 4096;  // of functions
constexpr std::size_t kMostSourced = 32;

}  // namespace

bool Follower::Returns(const Words& words) {
  if (words[0].text == "return" && frames_ > 0) {
    if (branches_.Unknown() || InChain())
      branches_.Doubt();
    else
      returns_ = true;
    redirects_ = {};
    return returns_;
  }
  if (words[0].text == "exit" && !InSubshell() && !InChain() && !branches_.Unknown() &&
      !branches_.ForWant())
    script_.end = words[0].where;
  return false;
}

bool Follower::Call(const Words& words) {
  const auto found = functions_.find(words[0].text);
  if (found == functions_.end() || calls_.size() >= kMostNested || ++called_ > kMostCalls ||
      std::ranges::find(calls_, found->second) != calls_.end())
    return false;
  bodies_[found->second].called = true;
  // Where it hands its words on, they are no command of their own.
  RunBody(found->second, Words(words.begin() + 1, words.end()));
  return true;
}

bool Follower::Sources(const Words& words) {
  if (!open_ || (words[0].text != "source" && words[0].text != ".")) return false;
  const Word file = words.size() < 2 ? Word{"", words[0].where, "a command prints it"}
                                     : FromFolder(words[1], expanded_);
  std::string why = file.unresolved;
  if (why.empty() && sourced_ >= kMostSourced) why = "too many files";
  try {
    SourcePtr found = why.empty() ? OpenOf(file, &why) : nullptr;
    if (why.empty() && found == nullptr) why = "not found";
    if (why.empty() && std::ranges::find(taking_, found->name) != taking_.end())
      why = "it takes itself in";
    if (why.empty()) {
      TakeIn(found, words);
      return true;
    }
  } catch (const InputError& error) {
    why = error.diagnostics().front().message;
  }
  Word unread{words.size() < 2 ? "" : words[1].text, file.where, std::move(why)};
  const auto same = [&](const Word& word) {
    return word.text == unread.text && word.unresolved == unread.unresolved &&
           Place(word.where) == Place(unread.where);
  };
  if (std::ranges::none_of(script_.unsourced, same)) script_.unsourced.push_back(unread);
  return false;
}

SourcePtr Follower::OpenOf(const Word& file, std::string* why) const {
  const WrittenFile* own = FindWritten(script_, script_.commands.size(),
                                       {"source", file.text, file.where, ""}, FolderOf(path_));
  if (own == nullptr) return open_(file);
  *why = own->unresolved;
  if (!why->empty()) return nullptr;
  if (!own->copy.empty()) return open_({own->copy, file.where, ""});
  const auto lines = static_cast<std::size_t>(std::max(1, own->where.line) - 1);
  return std::make_shared<const Source>(
      Source{own->where.source->name, std::string(lines, '\n') + own->text});
}

void Follower::TakeIn(const SourcePtr& file, const Words& words) {
  auto lexed = std::make_shared<const Lexed>(LexShell(file));
  ++sourced_;
  script_.sourced.push_back({file->name, words[1].where, ""});
  ShellVariable own =
      std::exchange(script_.variables["BASH_SOURCE"], {{{file->name, words[1].where, ""}}, true});
  taking_.push_back(file->name);
  std::optional<Words> around = arguments_;
  if (words.size() > 2) arguments_ = Words(words.begin() + 2, words.end());
  const std::size_t end = lexed->tokens.size();
  RunText({std::move(lexed), 0, end, false}, false);
  returns_ = false;
  if (words.size() > 2) arguments_ = std::move(around);
  taking_.pop_back();
  script_.variables["BASH_SOURCE"] = std::move(own);
}

bool Follower::Evals(const Words& words) {
  if (words[0].text != "eval" || words.size() < 2 || inner_ >= kMostInner) return false;
  ++inner_;
  std::string text;
  for (std::size_t i = 1; i < words.size(); ++i) text += (i > 1 ? " " : "") + words[i].text;
  const Location& where = words[1].where;
  std::string why = OnlyShellKnows(text) ? ReasonIn(text, script_) : "";
  try {
    Lexed lexed =
        LexShell(std::make_shared<const Source>(Source{where.source->name, std::move(text)}));
    for (Token& token : lexed.tokens) token.where = where;
    for (HereDocument& document : lexed.documents) document.where = where;
    const std::size_t end = lexed.tokens.size();
    RunText({std::make_shared<const Lexed>(std::move(lexed)), 0, end, false}, false);
    if (frames_ == 0) returns_ = false;  // "return" of a text alone ends no more than that
  } catch (const InputError& error) {
    why = error.diagnostics().front().message;
  }
  if (!why.empty()) script_.unsourced.push_back({"eval", where, std::move(why)});
  return true;
}

bool Follower::OnlyShellKnows(const std::string& text) {
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string::npos || text[begin] != kHole) return false;
  const std::size_t behind = std::min(text.find(kHoleEnd, begin), text.size() - 1) + 1;
  const std::string_view rest = std::string_view(text).substr(behind);
  return rest.find_first_not_of(" \t\n;") == std::string_view::npos || rest[0] == '=' ||
         rest.starts_with("+=");
}

void Follower::RunText(const Body& body, bool unsure) {
  const std::size_t behind = std::exchange(at_, body.begin);
  const std::size_t depth = std::exchange(floor_, Subshells());
  auto text = std::exchange(lexed_, body.of);
  const ShellBranches around = branches_;
  const bool piped = std::exchange(piped_, false);
  redirects_ = {};
  branches_.Enter(unsure);
  ++frames_;
  while (at_ < body.end && !script_.end && !returns_) Command();
  EndChains(--frames_);
  while (Subshells() > floor_) CloseSubshell();
  floor_ = depth;
  const std::optional<bool> any_case = branches_.any_case;
  branches_ = around;
  branches_.any_case = any_case;
  piped_ = piped;
  lexed_ = std::move(text);
  at_ = behind;
}

void Follower::RunBody(std::size_t which, std::optional<Words> arguments) {
  const bool unsure = !arguments;
  if (unsure) branches_ = {};
  calls_.push_back(which);
  std::swap(arguments_, arguments);
  auto locals = std::exchange(locals_, {});
  RunText(Body(bodies_[which]), unsure);
  returns_ = false;
  for (auto& [name, value] : locals_) {
    if (value)
      script_.variables[name] = std::move(*value);
    else
      script_.variables.erase(name);
  }
  locals_ = std::move(locals);
  std::swap(arguments_, arguments);
  calls_.pop_back();
}

void Follower::Inner(const Word& text, const Words& front, bool lines) {
  if (text.text.empty() || inner_ >= kMostInner) return;
  ++inner_;
  Lexed lexed;
  try {
    lexed = LexShell(std::make_shared<const Source>(Source{text.where.source->name, text.text}));
  } catch (const InputError&) {
    return;  // a quote in what a variable holds: the words outside may say enough
  }
  std::vector<std::size_t> begins = {0};  // of the lines of the text
  for (std::size_t at = text.text.find('\n'); at != std::string::npos;
       at = text.text.find('\n', at + 1))
    begins.push_back(at + 1);
  const auto place = [&](const Location& inner) {
    Location where = text.where;
    if (!text.parts.empty()) {
      const std::size_t line = std::min(static_cast<std::size_t>(inner.line), begins.size()) - 1;
      const std::size_t at = begins[line] + static_cast<std::size_t>(inner.column) - 1;
      for (const auto& [letter, part] : text.parts)
        if (letter <= at) where = part;
      return where;
    }
    if (lines) where.line += inner.line - 1;
    if (lines) where.column = inner.line == 1 ? where.column + inner.column : inner.column;
    return where;
  };
  for (Token& token : lexed.tokens) token.where = place(token.where);
  for (Token& comment : lexed.comments) comment.where = place(comment.where);
  for (HereDocument& document : lexed.documents) document.where = place(document.where);
  const auto shared = std::make_shared<const Lexed>(std::move(lexed));
  Follower follower(shared, "", open_);
  follower.inner_ = inner_;
  follower.folder_ = folder_;
  follower.taking_ = taking_;
  follower.script_.variables = script_.variables;
  follower.script_.reasons = script_.reasons;
  ShellScript script = follower.Run();
  script_.reasons = std::move(script.reasons);
  inner_ = follower.inner_;
  for (auto [from, to] :
       {std::pair(&script.sourced, &script_.sourced), {&script.unsourced, &script_.unsourced}})
    to->insert(to->end(), from->begin(), from->end());
  CheckLines(text, script);
  for (std::size_t i = 0; i < script.commands.size(); ++i)
    CopyCounts(script.variables, &script_.environments[script_.commands.size() + i]);
  AddComments(shared->tokens, shared->comments, &script);
  Append(std::move(script), front, &script_);
}

const ShellVariable* VariableAt(const ShellScript& script, std::size_t command, const char* name) {
  if (const auto own = script.environments.find(command); own != script.environments.end()) {
    if (const auto at = own->second.find(name); at != own->second.end()) return &at->second;
  }
  const auto at = script.variables.find(name);
  return at == script.variables.end() ? nullptr : &at->second;
}

std::vector<std::string> SourcedNotes(const ShellScript& script) {
  std::vector<std::string> notes;
  for (const Word& file : script.sourced)
    notes.push_back(fmt::format("{}: takes in {}", Place(file.where), file.text));
  for (const Word& file : script.unsourced)
    notes.push_back(fmt::format("{}: {} is not read ({}): what it sets is not known here",
                                Place(file.where), file.text.empty() ? "a file" : file.text,
                                file.unresolved));
  return notes;
}

void ExplainUnset(const ShellScript& script, Setting* setting) {
  if (script.unsourced.empty() || !IsUnset(setting->unresolved)) return;
  const Word& file = script.unsourced.front();
  setting->unresolved =
      fmt::format("{}: {} is not read ({}), and {}", Place(file.where),
                  file.text.empty() ? "a file" : file.text, file.unresolved, setting->unresolved);
}

}  // namespace orrery::exchange
