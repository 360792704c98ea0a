// SPDX-License-Identifier: Apache-2.0
// Splits a shell script into words and operators, quotes kept apart.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery::exchange {

// The word in front of the text of ((...)); no word of a script is like it.
inline constexpr std::string_view kArithmetic = "((";

// A stretch of a word: '...' stands for itself, "..." is expanded and never split.
struct Piece {
  enum Quote : unsigned char { kNone, kSingle, kDouble };
  std::string
      text;  // backslashes resolved; "$" that is no expansion is marked by a quote of its own
  Quote quote = kNone;
  int line = 0;                         // of its first letter, behind that of the word
  std::vector<std::size_t> joins = {};  // letters in front of which a backslash joins the next line
};
// The line and the column of a letter of a piece, of letters that are asked for in their order.
class PieceLines {
 public:
  explicit PieceLines(const Piece& piece) : piece_(piece), line_(piece.line) {}
  void To(std::size_t letter);
  int line() const { return line_; }  // behind that of the word
  int column() const { return static_cast<int>(at_ - begin_) + 1; }

 private:
  const Piece& piece_;
  std::size_t at_ = 0, begin_ = 0, join_ = 0;
  int line_;
};
struct Token {
  std::vector<Piece> pieces;  // of a word
  std::string op;             // ";", "&&", "|", "(", "\n" ...; "": a word
  Location where;
  int document = -1;  // of "<<": its place among the here-documents
  bool word() const { return op.empty(); }
  bool redirect() const { return op.starts_with('<') || op.starts_with('>'); }
  // The text of a word without quotes and expansions; "" for others.
  std::string Plain() const;
};
struct HereDocument {
  Piece text;  // expanded unless its delimiter is quoted
  Location where;
};
struct Lexed {
  std::vector<Token> tokens;
  std::vector<HereDocument> documents;
  std::vector<Token> comments;  // one piece each, without '#'
};

// Behind the bracket that closes the one at `at` of "$(...)" or "${...}"; brackets in here-documents are text. npos: there is
// none.
std::size_t EndOfExpansion(std::string_view text, std::size_t at);
// What `cat <<WORD` prints of its here-document, where that is the whole of what stands in "$(...)", as a piece of a word: the
// quotes of WORD are its own. nullopt: it is another command.
std::optional<Piece> PrintedDocument(std::string_view command);

// Throws InputError: a quote or an expansion is never closed, or more than a million words.
Lexed LexShell(const SourcePtr& source);

}  // namespace orrery::exchange
