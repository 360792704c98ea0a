// SPDX-License-Identifier: Apache-2.0
// Follows assignments, read, and files of cat, tee, echo, printf and sed -i.
#include "model/exchange/shell_effects.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

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
      variable.words[0].text += std::string(" ") + kHole;
      variable.words[0].unresolved = lost.unresolved;
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

void SetOwnPaths(const std::string& path, ShellScript* script) {
  const Location none;
  script->variables["BASH_SOURCE"] = {{{path, none, ""}}, true};
  // Jobs are started in the folder of their script, unless somebody says otherwise.
  for (const char* here : {"PWD", "SLURM_SUBMIT_DIR", "PBS_O_WORKDIR"})
    script->variables[here] = {{{FolderOf(path), none, ""}}, false};
}

void Append(ShellScript inner, const Words& front, ShellScript* to) {
  for (WrittenFile& file : inner.files) {
    file.before += to->commands.size();
    to->files.push_back(std::move(file));
  }
  for (Words& command : inner.commands) {
    command.insert(command.begin(), front.begin(), front.end());
    to->commands.push_back(std::move(command));
  }
}

bool RunsShell(const Words& words) {
  if (words.size() < 2) return false;
  const std::string& shell = words[words.size() - 2].text;
  const std::string& option = words.back().text;
  return (shell.ends_with("bash") || shell.ends_with("/sh") || shell == "sh") &&
         option.starts_with('-') && option.ends_with('c');
}

std::size_t EndOfAssignments(const std::vector<Token>& tokens, std::size_t at) {
  bool first = true;  // of a command
  int depth = 0;
  for (; at < tokens.size(); ++at) {
    const Token& token = tokens[at];
    if (token.op == "(") ++depth;
    if (token.op == ")") --depth;
    if (depth > 0 || token.op == ")") continue;
    if (!token.word() && token.op != ";" && token.op != "\n") return 0;
    if (!token.word()) {
      first = true;
      continue;
    }
    const std::string plain = token.Plain();
    if (first && plain == "done") return at;
    if (first && plain == "do") continue;
    const std::size_t length = token.pieces.empty() || token.pieces[0].quote != Piece::kNone
                                   ? 0
                                   : NameLength(token.pieces[0].text);
    const std::string_view rest =
        length == 0 ? std::string_view() : std::string_view(token.pieces[0].text).substr(length);
    if (!first || !(rest.starts_with('=') || rest.starts_with("+="))) return 0;
    first = false;
  }
  return 0;
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
    variable.words[0].text += value.words.empty() ? "" : value.words[0].text;
    if (!value.words.empty() && variable.words[0].unresolved.empty())
      variable.words[0].unresolved = value.words[0].unresolved;
  }
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

namespace {

// "\\n" and "\\t" as echo -e and printf take them.
std::string WithEscapes(const std::string& text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char next = text[i] == '\\' && i + 1 < text.size() ? text[i + 1] : '\0';
    if (next == 'n' || next == 't' || next == '\\') {
      out += next == 'n' ? '\n' : next == 't' ? '\t' : '\\';
      ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

Word PrintedByEcho(const Words& words) {
  std::size_t at = 1;
  bool newline = true, escapes = false;
  for (; at < words.size(); ++at) {
    const std::string& text = words[at].text;
    if (text.size() < 2 || text[0] != '-' || text.find_first_not_of("neE", 1) != text.npos) break;
    newline = newline && text.find('n') == text.npos;
    escapes = escapes || text.find('e') != text.npos;
  }
  Word out{"", words[std::min(at, words.size() - 1)].where, ""};
  for (std::size_t i = at; i < words.size(); ++i) {
    out.text += (i == at ? "" : " ") + (escapes ? WithEscapes(words[i].text) : words[i].text);
    if (out.unresolved.empty()) out.unresolved = words[i].unresolved;
  }
  out.text += newline ? "\n" : "";
  return out;
}

Word PrintedByPrintf(const Words& words) {
  const std::string& format = words[1].text;
  Word out{"", words[1].where, words[1].unresolved};
  if (format == "%s" || format == "%s\\n") {
    for (std::size_t i = 2; i < words.size(); ++i) {
      out.text += words[i].text + (format == "%s" ? "" : "\n");
      if (out.unresolved.empty()) out.unresolved = words[i].unresolved;
    }
  } else if (format.find('%') != format.npos) {
    out.unresolved = "its text is formatted by printf";
  } else {
    out.text = WithEscapes(format);
  }
  return out;
}

WrittenFile* LastOf(ShellScript* script, const Word& name) {
  const auto same = [&](const WrittenFile& file) {
    return file.name.unresolved.empty() && name.unresolved.empty() &&
           fs::path(file.name.text).lexically_normal() == fs::path(name.text).lexically_normal();
  };
  const auto last = std::find_if(script->files.rbegin(), script->files.rend(), same);
  return last == script->files.rend() ? nullptr : &*last;
}

// What is there, and `more` on the lines on which the script has it, where they come later.
std::string Appended(const WrittenFile& before, const WrittenFile& more) {
  std::string text = before.text;
  const auto next = before.where.line + std::ranges::count(text, '\n');
  if (text.ends_with('\n') && more.where.line > next)
    text.append(static_cast<std::size_t>(more.where.line - next), '\n');
  return text + more.text;
}

// s/OLD/NEW/ and s/OLD/NEW/g of plain texts; false: what only sed knows.
bool Substitute(const std::string& expression, std::string* text) {
  if (expression.size() < 4 || expression[0] != 's') return false;
  const char mark = expression[1];
  const std::size_t middle = expression.find(mark, 2);
  const std::size_t end = middle == expression.npos ? middle : expression.find(mark, middle + 1);
  if (end == expression.npos || middle == 2) return false;
  const std::string old = expression.substr(2, middle - 2),
                    by = expression.substr(middle + 1, end - middle - 1),
                    flags = expression.substr(end + 1);
  if (old.find_first_of("\\.*[]^$\n") != old.npos || by.find_first_of("\\&\n") != by.npos ||
      !(flags.empty() || flags == "g"))
    return false;
  for (std::size_t at = 0; (at = text->find(old, at)) != text->npos;) {
    text->replace(at, old.size(), by);
    at += by.size();
    if (flags.empty()) at = std::min(text->find('\n', at), text->size());
  }
  return true;
}

}  // namespace

std::optional<Word> PrintedBy(const Words& words) {
  if (words.size() < 2) return std::nullopt;
  if (words[0].text == "echo") return PrintedByEcho(words);
  if (words[0].text == "printf") return PrintedByPrintf(words);
  return std::nullopt;
}

void EditFiles(const Words& words, const ShellBranches& branches, ShellScript* script) {
  if (words.size() < 3 || words[0].text != "sed" || branches.Skips()) return;
  Words expressions, rest;
  bool in_place = false, plain = true;
  for (std::size_t i = 1; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    if (text.starts_with("-i") || text.starts_with("--in-place")) {
      in_place = true;
    } else if (text == "-e" && i + 1 < words.size()) {
      expressions.push_back(words[++i]);
    } else if (text.starts_with('-') && text.size() > 1) {
      plain = false;
    } else {
      rest.push_back(words[i]);
    }
  }
  if (!in_place || rest.empty()) return;
  if (expressions.empty()) {
    expressions.push_back(rest.front());
    rest.erase(rest.begin());
  }
  for (const Word& name : rest) {
    const WrittenFile* before = LastOf(script, name);
    WrittenFile file{name, "", name.where, "", script->commands.size()};
    bool known = plain && before != nullptr && !branches.Unknown();
    if (known) file.text = before->text, file.where = before->where;
    for (const Word& one : expressions)
      known = known && one.unresolved.empty() && Substitute(one.text, &file.text);
    if (known)
      file.unresolved = before->unresolved;
    else
      file.unresolved =
          fmt::format("{} is changed by sed ({})", name.unresolved.empty() ? name.text : "a file",
                      Place(name.where));
    script->files.push_back(std::move(file));
  }
}

void WriteFiles(const Words& words, const Redirects& redirects, const ShellBranches& branches,
                ShellScript* script) {
  const bool tee = !words.empty() && words[0].text == "tee";
  const bool cat = !words.empty() && words[0].text == "cat" &&
                   (words.size() == 1 || (words.size() == 2 && words[1].text == "-"));
  if (branches.Skips()) return;
  Words names = redirects.to;
  bool append = redirects.append;
  for (std::size_t i = 1; tee && i < words.size(); ++i) {
    append |= words[i].text == "-a" || words[i].text == "--append";
    if (words[i].text.starts_with('-') && words[i].text.size() > 1) continue;
    names.push_back(words[i]);
  }
  const std::optional<Word> printed = PrintedBy(words);
  const bool whole = printed || (redirects.document && (tee || cat));
  if (!whole && !append) return;  // other commands: what lies there is what they wrote
  const Word& text = printed ? *printed : redirects.text;
  for (Word& name : names) {
    if (name.text == "/dev/null") continue;
    WrittenFile file{name, text.text, text.where, text.unresolved, script->commands.size()};
    if (!whole) file.where = name.where;
    const std::string shown = name.unresolved.empty() ? name.text : "a file";
    const WrittenFile* before = append && whole ? LastOf(script, name) : nullptr;
    if (branches.Unknown()) {
      file.unresolved =
          fmt::format("{} is written in a branch or loop ({})", shown, Place(name.where));
    } else if (before != nullptr) {
      file.text = Appended(*before, file);
      file.where = before->where;
      if (!before->unresolved.empty()) file.unresolved = before->unresolved;
    } else if (append) {
      file.unresolved = fmt::format("{} is appended to ({})", shown, Place(name.where));
    }
    script->files.push_back(std::move(file));
  }
}

const WrittenFile* FindWritten(const ShellScript& script, std::size_t command, const Setting& named,
                               const std::string& folder) {
  const auto is = [&](const WrittenFile& file) {
    if (file.before > command) return false;
    // Both of the same variable that nobody knows.
    if (!named.unresolved.empty() || !file.name.unresolved.empty())
      return named.unresolved == file.name.unresolved;
    const fs::path a = fs::path(named.value).lexically_normal(),
                   b = fs::path(file.name.text).lexically_normal();
    const auto below = [&](const fs::path& whole, const fs::path& part) {
      return part.is_relative() && (fs::path(folder) / part).lexically_normal() == whole;
    };
    return a == b || below(a, b) || below(b, a);
  };
  for (auto file = script.files.rbegin(); file != script.files.rend(); ++file)
    if (is(*file)) return &*file;
  return nullptr;
}

}  // namespace orrery::exchange
