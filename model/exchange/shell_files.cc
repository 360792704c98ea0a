// SPDX-License-Identifier: Apache-2.0
// Follows the files that a script writes: cat, tee, echo, printf, cp, mv, ln and sed -i.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>

#include "model/exchange/shell_effects.h"
#include "model/exchange/shell_words.h"

namespace orrery::exchange {
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

bool Same(const Word& a, const Word& b) {
  return a.unresolved.empty() && b.unresolved.empty() &&
         std::filesystem::path(a.text).lexically_normal() ==
             std::filesystem::path(b.text).lexically_normal();
}

std::string NameOf(const Word& name) { return name.unresolved.empty() ? name.text : "a file"; }

WrittenFile* LastOf(ShellScript* script, const Word& name) {
  const auto same = [&](const WrittenFile& file) { return Same(file.name, name); };
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

// Words that are no options.
Words NamesIn(const Words& words) {
  Words names;
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (!words[i].text.starts_with('-')) names.push_back(words[i]);
  }
  return names;
}

// `name` with what these files hold, one behind the other.
WrittenFile JoinedOf(const Word& name, const Words& parts, ShellScript* script) {
  WrittenFile file{name, "", name.where, "", script->commands.size()};
  for (const Word& part : parts) {
    const WrittenFile* known = LastOf(script, part);
    if (known != nullptr && known->copy.empty()) {
      if (file.text.empty()) file.where = known->where;
      file.text += known->text;
      if (file.unresolved.empty()) file.unresolved = known->unresolved;
    } else if (!part.unresolved.empty()) {
      file.unresolved = part.unresolved;
    } else if (parts.size() == 1) {
      file.copy = known == nullptr ? part.text : known->copy;
    } else {
      file.unresolved = fmt::format("{} is joined from {} and others ({})", NameOf(name),
                                    NameOf(part), Place(name.where));
    }
  }
  return file;
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
    bool known = plain && before != nullptr && before->copy.empty() && !branches.Unknown();
    if (known) file.text = before->text, file.where = before->where;
    for (const Word& one : expressions)
      known = known && one.unresolved.empty() && Substitute(one.text, &file.text);
    if (known)
      file.unresolved = before->unresolved;
    else
      file.unresolved = fmt::format("{} is changed by sed ({})", NameOf(name), Place(name.where));
    script->files.push_back(std::move(file));
  }
}

std::string MakerOf(const Words& words) {
  constexpr std::string_view kMakers[] = {"jq", "yq", "envsubst", "sed", "awk", "m4", "perl"};
  if (words.empty()) return "";
  const std::string name = words[0].text.substr(words[0].text.rfind('/') + 1);
  return std::ranges::find(kMakers, name) == std::end(kMakers) ? "" : name;
}

void CopyFile(const Words& words, const ShellBranches& branches, ShellScript* script) {
  if (words.empty() || branches.Skips()) return;
  const std::string& command = words[0].text;
  if (command != "cp" && command != "mv" && command != "ln") return;
  const Words names = NamesIn(words);
  if (names.size() != 2) return;
  WrittenFile file = JoinedOf(names[1], {names[0]}, script);
  if (branches.Unknown())
    file.unresolved = fmt::format("{} is written in a branch or loop ({})", NameOf(names[1]),
                                  Place(names[1].where));
  // Into a folder, too, if that is what the second name is.
  if (names[1].unresolved.empty() && names[0].unresolved.empty()) {
    WrittenFile inside = file;
    inside.name.text =
        (std::filesystem::path(names[1].text) / std::filesystem::path(names[0].text).filename())
            .string();
    script->files.push_back(std::move(inside));
  }
  script->files.push_back(std::move(file));
}

namespace {

// The files that the command writes; `append`: behind what is there.
Words TargetsOf(const Words& words, const Redirects& redirects, bool* append) {
  Words names = redirects.to;
  *append = redirects.append;
  const bool tee = !words.empty() && words[0].text == "tee";
  for (std::size_t i = 1; tee && i < words.size(); ++i) {
    *append |= words[i].text == "-a" || words[i].text == "--append";
    if (words[i].text.starts_with('-') && words[i].text.size() > 1) continue;
    names.push_back(words[i]);
  }
  std::erase_if(names, [](const Word& name) { return name.text == "/dev/null"; });
  return names;
}

}  // namespace

void WriteFiles(const Words& words, const Redirects& redirects, const ShellBranches& branches,
                ShellScript* script) {
  if (branches.Skips()) return;
  const bool tee = !words.empty() && words[0].text == "tee";
  const bool cat = !words.empty() && words[0].text == "cat";
  const Words parts = cat ? NamesIn(words) : Words();
  bool append = false;
  const Words names = TargetsOf(words, redirects, &append);
  const std::optional<Word> printed = PrintedBy(words);
  const bool whole = printed || !parts.empty() || (redirects.document && (tee || cat));
  const std::string maker = tee ? redirects.maker : MakerOf(words);
  if (!whole && !append && maker.empty()) return;  // what lies there is what they wrote
  const Word& text = printed ? *printed : redirects.text;
  for (const Word& name : names) {
    WrittenFile file{name, text.text, text.where, text.unresolved, script->commands.size()};
    if (!parts.empty()) file = JoinedOf(name, parts, script);
    if (!whole) file.where = name.where;
    const WrittenFile* before = append && whole ? LastOf(script, name) : nullptr;
    if (branches.Unknown()) {
      file.unresolved =
          fmt::format("{} is written in a branch or loop ({})", NameOf(name), Place(name.where));
    } else if (before != nullptr && before->copy.empty() && file.copy.empty()) {
      file.text = Appended(*before, file);
      file.where = before->where;
      if (!before->unresolved.empty()) file.unresolved = before->unresolved;
    } else if (append) {
      file.unresolved = fmt::format("{} is appended to ({})", NameOf(name), Place(name.where));
    } else if (!whole) {
      file.unresolved =
          fmt::format("{} is made by {} ({})", NameOf(name), maker, Place(name.where));
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
    const std::filesystem::path a = std::filesystem::path(named.value).lexically_normal(),
                                b = std::filesystem::path(file.name.text).lexically_normal();
    const auto below = [&](const std::filesystem::path& whole, const std::filesystem::path& part) {
      return part.is_relative() &&
             (std::filesystem::path(folder) / part).lexically_normal() == whole;
    };
    return a == b || below(a, b) || below(b, a);
  };
  for (auto file = script.files.rbegin(); file != script.files.rend(); ++file)
    if (is(*file)) return &*file;
  return nullptr;
}

}  // namespace orrery::exchange
