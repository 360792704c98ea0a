// SPDX-License-Identifier: Apache-2.0
// Follows assignments, loops over them, and read.
#include "model/exchange/shell_effects.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <string_view>

#include "model/base/plain_text.h"
#include "model/exchange/shell_arithmetic.h"
#include "model/exchange/shell_commands.h"
#include "model/exchange/shell_words.h"

namespace orrery::exchange {
namespace {

namespace fs = std::filesystem;

// A value that a loop or a branch that may not be taken sets.
void StoreUnknown(const ShellBranches& branches, const std::string& name,
                  const ShellVariable& value, bool more, const Location& where,
                  ShellScript* script) {
  ShellVariable& variable = script->variables[name];
  const bool known = !variable.words.empty() || variable.array;
  const bool single = known && value.words.size() == 1 && variable.words.size() == 1 &&
                      value.words[0].unresolved.empty() && variable.words[0].unresolved.empty();
  if (single && !more && value.words[0].text == variable.words[0].text) return;
  if (branches.InLoop()) {
    const Word lost{"", where, fmt::format("{} is set in a loop", name)};
    if (known && more && variable.array) {
      variable.words.push_back(lost);
    } else if (known && more) {
      variable.words[0].text += " " + HoleOf(lost.unresolved, script);
      if (variable.words[0].unresolved.empty()) variable.words[0].unresolved = lost.unresolved;
    } else {
      variable = {{lost}, value.array};
    }
    return;
  }
  const std::string why =
      fmt::format("{} is set in a {}", name, branches.InFunction() ? "function" : "branch");
  // ARGS="$ARGS --more"
  more = more || (single && !variable.array && !variable.words[0].text.empty() &&
                  value.words[0].text.starts_with(variable.words[0].text + " "));
  if (known && more) {
    script->branches.push_back({name, where, why});
    return;  // a branch that adds words leaves those that were there
  }
  const bool empty =
      variable.words.empty() || (variable.words.size() == 1 && variable.words[0].text.empty() &&
                                 variable.words[0].unresolved.empty());
  variable = {{{"", where, !empty ? why + " after another value" : why}}, value.array};
}

// What `read` takes of a text: its first line, or all of it with "-d ''".
std::string TakenBy(std::string text, bool raw, bool all) {
  for (std::size_t at = 0; !raw && (at = text.find('\\', at)) != std::string::npos;)
    text.erase(at, at + 1 < text.size() && text[at + 1] == '\n' ? 2 : 1);
  if (!all) text.resize(std::min(text.find('\n'), text.size()));
  const std::size_t begin = text.find_first_not_of(" \t\n");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t\n") + 1 - begin);
}

Words LinesOf(const Word& text) {
  Words lines;
  for (std::size_t begin = 0; begin < text.text.size();) {
    const std::size_t end = std::min(text.text.find('\n', begin), text.text.size());
    lines.push_back({text.text.substr(begin, end - begin), text.where, text.unresolved});
    begin = end + 1;
  }
  return lines;
}

}  // namespace

std::string HoleOf(const std::string& why, ShellScript* script) {
  ShellScript::Reasons& reasons = script->reasons;
  const auto [number, added] = reasons.numbers.emplace(why, reasons.texts.size());
  if (added) reasons.texts.push_back(why);
  return fmt::format("{}{}{}", kHole, number->second, kHoleEnd);
}

std::string ReasonIn(std::string_view text, const ShellScript& script) {
  const std::size_t begin = std::min(text.find(kHole), text.size() - 1) + 1;
  const std::size_t end = std::min(text.find(kHoleEnd, begin), text.size());
  int64_t number = -1;
  const bool own = ParseInteger(text.substr(begin, end - begin), &number) == NumberFault::kNone &&
                   number >= 0 && number < std::ssize(script.reasons.texts);
  return own ? script.reasons.texts[static_cast<std::size_t>(number)] : "it needs a shell";
}

void SetOwnPaths(const std::string& path, ShellScript* script) {
  const Location none;
  script->variables["BASH_SOURCE"] = {{{path, none, ""}}, true};
  // Jobs are started in the folder of their script, unless somebody says otherwise.
  for (const char* here : {"PWD", "SLURM_SUBMIT_DIR", "PBS_O_WORKDIR"})
    script->variables[here] = {{{FolderOf(path), none, ""}}, false};
}

void AddComments(const std::vector<Token>& tokens, const std::vector<Token>& comments,
                 ShellScript* script) {
  const auto first = std::ranges::find_if(tokens, &Token::word);
  for (const Token& comment : comments) {
    const bool late = first != tokens.end() && comment.where.line > first->where.line;
    script->comments.push_back(
        {comment.Plain(), comment.where, late ? "stands behind the first command" : ""});
  }
}

void CheckLines(const Word& text, const ShellScript& script) {
  for (const Words& command : script.commands) {
    if (text.text.find('\n') != std::string::npos && command[0].text.starts_with("--"))
      throw InputError(
          {{text.where,
            fmt::format("a line of the text of bash -c begins with '{}': the shell would take it "
                        "for a command",
                        command[0].text.substr(0, 64)),
            "arguments on one line, or a backslash at the end of each"}});
  }
}

void Append(ShellScript inner, const Words& front, ShellScript* to) {
  for (WrittenFile& file : inner.files) {
    file.before += to->commands.size();
    to->files.push_back(std::move(file));
  }
  for (Word& comment : inner.comments) to->comments.push_back(std::move(comment));
  for (Words& command : inner.commands) {
    command.insert(command.begin(), front.begin(), front.end());
    to->commands.push_back(std::move(command));
  }
}

namespace {

bool IsShell(const std::string& text) {
  const std::string name = text.substr(text.rfind('/') + 1);
  return name == "bash" || name == "sh" || name == "zsh" || name == "dash";
}

// Where the shell stands before its options, of which the last is at `end` - 1.
std::size_t ShellInFront(const Words& words, std::size_t end) {
  for (std::size_t i = end; i-- > 0;) {
    const std::string& text = words[i].text;
    if (IsShell(text)) return i;
    const bool named = i > 0 && words[i - 1].text.size() > 1 && words[i - 1].text[0] == '-' &&
                       std::string_view("oO").find(words[i - 1].text.back()) !=
                           std::string_view::npos;  // -euo pipefail
    if (text.empty() || (text[0] != '-' && text[0] != '+' && !named)) break;
  }
  return words.size();
}

}  // namespace

bool RunsOnHost(const Words& words, const Token& next) {
  if (words.size() < 2 || words.back().text.starts_with('-')) return false;
  const bool several = next.pieces.size() == 1 && next.pieces[0].quote != Piece::kNone &&
                       next.pieces[0].text.find(' ') != std::string::npos;
  return several && (words.front().text == "ssh" || words.front().text == "pdsh");
}

std::size_t ShellBefore(const Words& words) {
  if (words.size() < 2) return words.size();
  const std::string& option = words.back().text;
  const bool takes = option.size() > 1 && option[0] == '-' && option[1] != '-' &&
                     option.find('c') != std::string::npos;
  return takes ? ShellInFront(words, words.size() - 1) : words.size();
}

Word WrappedBy(const Words& words, const Word& word) {
  constexpr std::string_view kWrap = "--wrap";
  if (words.empty() || words[0].text != "sbatch") return {};
  if (words.back().text == kWrap) return word;
  if (!word.text.starts_with(kWrap) || word.text.size() <= kWrap.size() ||
      word.text[kWrap.size()] != '=')
    return {};
  Word text = word;
  text.text.erase(0, kWrap.size() + 1);
  for (auto& [letter, place] : text.parts) letter -= std::min(letter, kWrap.size() + 1);
  return text;
}

std::size_t ShellOfInput(const Words& words) {
  if (words.empty()) return 0;
  if (words.front().text == "sbatch" || words.front().text == "qsub") {
    const bool file = std::ranges::any_of(words, [](const Word& word) {
      return word.text.ends_with(".sh") || word.text.ends_with(".sbatch");
    });
    return file ? words.size() : 0;
  }
  std::size_t end = words.size();
  while (end > 0 && words[end - 1].text == "-") --end;
  return ShellInFront(words, end);
}

std::size_t EndOfAssignments(const std::vector<Token>& tokens, std::size_t at) {
  constexpr std::string_view kOthers[] = {"source", ".", "export", "declare", "unset", ":"};
  bool first = true;   // of a command
  bool takes = false;  // other words
  int depth = 0;
  for (; at < tokens.size(); ++at) {
    const Token& token = tokens[at];
    if (token.op == "(") ++depth;
    if (token.op == ")") --depth;
    if (depth > 0 || token.op == ")" || (takes && token.redirect())) continue;
    if (!token.word() && token.op != ";" && token.op != "\n") return 0;
    if (!token.word()) {
      first = true;
      takes = false;
      continue;
    }
    const std::string plain = token.Plain();
    if (first && plain == "done") return at;
    if ((first && plain == "do") || takes) continue;
    const std::size_t length = token.pieces.empty() || token.pieces[0].quote != Piece::kNone
                                   ? 0
                                   : NameLength(token.pieces[0].text);
    const std::string_view rest =
        length == 0 ? std::string_view() : std::string_view(token.pieces[0].text).substr(length);
    takes = first && std::ranges::find(kOthers, plain) != std::end(kOthers);
    if (!takes && (!first || !(rest.starts_with('=') || rest.starts_with("+=")))) return 0;
    first = false;
  }
  return 0;
}

bool CommandsFollow(const std::vector<Token>& tokens, std::size_t at) {
  constexpr std::string_view kEnds[] = {"fi", "}", "done", "esac"};
  return std::any_of(tokens.begin() + static_cast<std::ptrdiff_t>(std::min(at, tokens.size())),
                     tokens.end(), [&](const Token& token) {
                       return token.word() &&
                              std::ranges::find(kEnds, token.Plain()) == std::end(kEnds);
                     });
}

namespace {

// A pattern as fnmatch() takes it: what is quoted stands for itself. nullopt: an expansion is in it.
std::optional<std::string> PatternOf(const Token& token) {
  std::string pattern;
  for (const Piece& piece : token.pieces) {
    const bool literal = piece.quote == Piece::kSingle;
    if (!literal && piece.text.find_first_of("$`") != std::string::npos) return std::nullopt;
    for (const char c : piece.text) {
      if (piece.quote != Piece::kNone &&
          std::string_view("*?[]\\!-").find(c) != std::string_view::npos)
        pattern += '\\';
      pattern += c;
    }
  }
  return pattern;
}

}  // namespace

std::optional<bool> MatchesPattern(std::span<const Token> patterns, const Word& word,
                                   std::optional<bool> any_case) {
  if (!any_case) {
    const auto exact = MatchesPattern(patterns, word, false);
    return exact == MatchesPattern(patterns, word, true) ? exact : std::nullopt;
  }
  std::optional<bool> matches = false;
  if (std::ranges::find(patterns, "(", &Token::op) != patterns.end())
    return std::nullopt;  // @(a|b), of extglob
  for (const Token& token : patterns) {
    if (!token.word()) continue;
    const std::optional<std::string> pattern = PatternOf(token);
    if (pattern == "*") return true;
    if (!pattern || !word.unresolved.empty())
      matches = std::nullopt;
    else if (fnmatch(pattern->c_str(), word.text.c_str(), *any_case ? FNM_CASEFOLD : 0) == 0)
      return true;
  }
  return matches;
}

std::size_t EndOfBlock(const std::vector<Token>& tokens, std::size_t at) {
  int depth = 1;
  bool first = true;  // of a command
  for (; at < tokens.size(); ++at) {
    const Token& token = tokens[at];
    if (!token.word()) {
      first = !token.op.starts_with('<') && !token.op.starts_with('>');
      continue;
    }
    const std::string plain = token.Plain();
    if (first && plain == "{") ++depth;
    if (first && plain == "}" && --depth == 0) return at;
    first = first && (plain == "{" || plain == "}" || plain == "then" || plain == "else" ||
                      plain == "do" || plain == "!");
  }
  return 0;
}

Word PartOfPath(const Words& whole, std::string_view cut, const Location& where) {
  if (whole.size() != 1 || !whole[0].unresolved.empty()) return {"", where, "a shell cuts it"};
  const std::string& text = whole[0].text;
  const std::size_t slash = text.rfind('/');
  if (slash == std::string::npos) return whole[0];
  return {cut == "%/*" ? text.substr(0, slash) : text.substr(slash + 1), where, ""};
}

void StoreVariable(const ShellBranches& branches, const std::string& name, ShellVariable value,
                   bool more, const Location& where, ShellScript* script) {
  if (branches.Skips()) return;
  if (branches.Unknown()) return StoreUnknown(branches, name, value, more, where, script);
  ShellVariable& variable = script->variables[name];
  if (!more || (variable.words.empty() && !variable.array)) {
    variable = std::move(value);
    return;
  }
  if (variable.array) {
    for (Word& word : value.words) variable.words.push_back(std::move(word));
  } else {
    if (value.words.empty()) return;
    Word& whole = variable.words[0];
    const Word& added = value.words[0];
    whole.parts.emplace_back(whole.text.size(), added.where);
    for (const auto& [letter, place] : added.parts)
      whole.parts.emplace_back(whole.text.size() + letter, place);
    whole.text += added.text;
    if (whole.unresolved.empty()) whole.unresolved = added.unresolved;
  }
}

void StoreDoubtful(const ShellBranches& branches, const std::string& name,
                   const ShellVariable& value, bool more, const Location& where,
                   ShellScript* script) {
  StoreUnknown(branches, name, value, more, where, script);
}

void ReadVariables(const Words& words, const Redirects& redirects, const ShellBranches& branches,
                   ShellScript* script) {
  if (words.empty()) return;
  const std::string& command = words[0].text;
  const bool lines = command == "mapfile" || command == "readarray";
  if (!lines && command != "read") return;
  Words names;
  bool raw = false, all = false, array = lines, plain = true;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    if (!text.starts_with('-') || text.size() < 2) {
      names.push_back(words[i]);
      continue;
    }
    for (const char letter : text.substr(1)) {
      raw |= letter == 'r';
      array |= letter == 'a';
      plain = plain && std::string_view("rtad").find(letter) != std::string_view::npos;
    }
    if (lines || !text.ends_with('d')) continue;
    all = i + 1 < words.size() && words[i + 1].text.empty() && words[i + 1].unresolved.empty();
    plain = plain && all;
    ++i;
  }
  const bool followed = redirects.document && plain && names.size() == 1 && array == lines;
  for (const Word& name : names) {
    ShellVariable value{{{"", name.where, name.text + " is set by read"}}, array};
    if (followed && lines) value.words = LinesOf(redirects.text);
    if (followed && !lines) {
      value.words[0] = redirects.text;
      value.words[0].text = TakenBy(redirects.text.text, raw, all);
    }
    StoreVariable(branches, name.text, std::move(value), false, name.where, script);
  }
}

}  // namespace orrery::exchange
