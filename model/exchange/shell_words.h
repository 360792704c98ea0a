// SPDX-License-Identifier: Apache-2.0
// Words under way while a shell expands one of its script: text is added, and unquoted blanks end one.
#pragma once

#include <algorithm>
#include <string_view>
#include <utility>

#include "model/exchange/shell.h"
#include "model/exchange/shell_lexer.h"

namespace orrery::exchange {

inline constexpr std::size_t kMostText = 1 << 16;  // of one expanded word
// In the text of a variable, a part that is not known: the number of its reason stands between these, as other parts may
// have others.
inline constexpr char kHole = '\2', kHoleEnd = '\3';
std::string HoleOf(const std::string& why, ShellScript* script);
// Of the first hole in the text.
std::string ReasonIn(std::string_view text, const ShellScript& script);

// What a variable is to which a loop gives each of these.
inline Word OneOf(const std::string& name, const Words& values, const Location& where) {
  constexpr std::size_t kMostShown = 60;  // letters
  if (values.size() == 1) return values.front();
  std::string list;
  for (const Word& word : values)
    list += (list.empty() ? "" : ", ") + (word.unresolved.empty() ? word.text : std::string("..."));
  if (list.size() > kMostShown) list = "several values";
  return {"", where, name + " takes " + list + " in a loop"};
}

struct WordBuilder {
  const Token& token;
  ShellScript& script;
  Words words;
  Word current;
  bool begun = false;
  Location origin;           // of the variable whose text is added
  int line = 0, column = 0;  // of the word's own text, behind its first line
  bool keeps_holes;          // for a variable, whose string may be split later

  WordBuilder(const Token& of, bool keeps, ShellScript* in)
      : token(of), script(*in), current{"", of.where, ""}, keeps_holes(keeps) {}
  void End() {
    if (current.text.find(kHole) != std::string::npos) {
      if (current.unresolved.empty()) current.unresolved = ReasonIn(current.text, script);
      // Of an option or NAME= it is the value that is lost.
      const std::size_t equals = current.text.find('=');
      const bool named = equals < current.text.find(kHole);
      if (!keeps_holes) current.text.resize(named ? equals + 1 : 0);
    }
    if (begun) words.push_back(current);
    current = {"", token.where, ""};
    begun = false;
  }
  void Add(std::string_view text, bool split) {
    for (const char c : text) {
      if (split && (c == ' ' || c == '\t' || c == '\n')) {
        End();
        continue;
      }
      Mark();
      current.text += c;
      begun = true;
      if (current.text.size() > kMostText)
        throw InputError({{token.where, "an expansion is too long", ""}});
    }
  }
  // The next letter is this one of a piece of the word itself.
  void Own(PieceLines* lines, std::size_t letter) {
    lines->To(letter);
    line = lines->line();
    column = lines->column();
  }
  // Of a word that begins, or that goes on elsewhere: in another line, or behind a blank in this one.
  void Mark() {
    const bool begins = current.text.empty();
    const bool own = !origin.source;
    if (begins && own && line == 0) return;
    Location here = own ? token.where : origin;
    if (own && line > 0) {
      here.line += line;
      here.column = column;
    }
    if (begins) {
      current.where = std::move(here);
      return;
    }
    const Location& last = current.parts.empty() ? current.where : current.parts.back().second;
    const bool moves = here.source != last.source || here.line != last.line;
    const bool blank = current.text.back() == ' ' || current.text.back() == '\t';
    if (moves || (blank && here.column != last.column && (origin.source || line > 0)))
      current.parts.emplace_back(current.text.size(), std::move(here));
  }
  // A word of a variable: its place and what is not known of it come along.
  void AddWord(const Word& word, bool split) {
    origin = word.where;
    std::size_t at = 0;
    for (const auto& [letter, where] : word.parts) {
      const std::size_t end = std::min(letter, word.text.size());
      if (end > at) Add(std::string_view(word.text).substr(at, end - at), split);
      at = std::max(at, end);
      origin = where;
    }
    Add(std::string_view(word.text).substr(at), split);
    if (!word.unresolved.empty() && word.text.find(kHole) == std::string::npos)
      Add(HoleOf(word.unresolved, &script), split);
    origin = {};
  }
};

}  // namespace orrery::exchange
