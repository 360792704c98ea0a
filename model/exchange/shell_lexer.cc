// SPDX-License-Identifier: Apache-2.0
// One pass over the text; expansions stay in their pieces as they are written.
#include "model/exchange/shell_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace orrery::exchange {
namespace {

constexpr std::size_t kMostTokens = 1'000'000;
constexpr std::string_view kOperators = ";&|()<>\n";

// Backslashes of a here-document as those of a piece.
std::string Unescaped(std::string_view text, std::vector<std::size_t>* joins) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i], next = i + 1 < text.size() ? text[i + 1] : '\0';
    if (c != '\\' || (next != '\n' && next != '$' && next != '`' && next != '\\')) {
      plain += c;
      continue;
    }
    if (next == '$' || next == '`') plain += '\1';  // no expansion
    if (next != '\n')
      plain += next;
    else
      joins->push_back(plain.size());
    ++i;
  }
  return plain;
}

class Lexer {
 public:
  explicit Lexer(const SourcePtr& source) : source_(source), text_(source->text) {}

  Lexed Run() {
    while (at_ < text_.size()) Step();
    return std::move(out_);
  }

 private:
  char Here(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  Location Where() const { return {source_, line_, static_cast<int>(at_ - begin_) + 1}; }
  void Next() {
    if (Here() == '\n') {
      ++line_;
      begin_ = at_ + 1;
    }
    ++at_;
  }
  [[noreturn]] void Unclosed(const Location& where, const char* what) const {
    throw InputError({{where, fmt::format("this {} is never closed", what), ""}});
  }

  void Step() {
    if (out_.tokens.size() > kMostTokens)
      throw InputError({{Where(), "too long for a launch script", ""}});
    const char c = Here();
    if (c == ' ' || c == '\t' || c == '\r') return Next();
    if (c == '\\' && Here(1) == '\n') {
      Next();
      return Next();
    }
    if (c == '#') return Comment();
    if (c == '(' && Arithmetic()) return;
    if (kOperators.find(c) != std::string_view::npos) return Operator();
    Word();
  }

  // ((...)): the words "((" and what stands inside, as it is written.
  bool Arithmetic() {
    if (Here(1) != '(') return false;
    const std::size_t end = EndOfExpansion(text_, at_), inner = EndOfExpansion(text_, at_ + 1);
    if (end == std::string::npos || inner + 1 != end) return false;
    Token mark, inside;
    mark.where = inside.where = Where();
    mark.pieces.push_back({std::string(kArithmetic), Piece::kNone});
    inside.pieces.push_back({text_.substr(at_ + 2, inner - at_ - 3), Piece::kSingle});
    while (at_ < end) Next();
    out_.tokens.push_back(std::move(mark));
    out_.tokens.push_back(std::move(inside));
    return true;
  }

  void Comment() {
    Token comment;
    comment.where = Where();
    Next();
    std::string text;
    while (at_ < text_.size() && Here() != '\n') {
      text += Here();
      Next();
    }
    comment.pieces.push_back({std::move(text), Piece::kSingle});
    out_.comments.push_back(std::move(comment));
  }

  void Operator() {
    Token token;
    token.where = Where();
    const char c = Here();
    token.op = c;
    Next();
    if (c == '\n') {
      out_.tokens.push_back(std::move(token));
      return HereDocuments();
    }
    while (
        c != '(' && c != ')' &&
        (Here() == c || (c == '<' && Here() == '-') || ((c == '<' || c == '>') && Here() == '&'))) {
      token.op += Here();
      Next();
    }
    if (c == ';' && token.op.size() < 3 && Here() == '&') {  // ";&" and ";;&" of "case"
      token.op += Here();
      Next();
    }
    const bool document = token.op == "<<" || token.op == "<<-";
    out_.tokens.push_back(std::move(token));
    if (!document) return;
    while (Here() == ' ') Next();
    const std::size_t before = out_.tokens.size();
    Word();
    if (out_.tokens.size() <= before) return;
    const Token end = std::move(out_.tokens.back());
    out_.tokens.pop_back();
    const bool quoted = std::ranges::any_of(
        end.pieces, [](const Piece& piece) { return piece.quote != Piece::kNone; });
    Token& mark = out_.tokens.back();
    mark.document = static_cast<int>(out_.documents.size());
    out_.documents.push_back({{"", quoted ? Piece::kSingle : Piece::kDouble}, end.where});
    documents_.push_back({end.Plain(), mark.op == "<<-", mark.document});
  }

  // The text up to the line that ends each of them is no part of the script.
  void HereDocuments() {
    for (const Awaited& awaited : std::exchange(documents_, {})) {
      HereDocument& document = out_.documents[static_cast<std::size_t>(awaited.document)];
      document.where = Where();
      while (at_ < text_.size()) {
        std::string line;
        while (at_ < text_.size() && Here() != '\n') {
          line += Here();
          Next();
        }
        if (at_ < text_.size()) Next();
        if (line.ends_with('\r')) line.pop_back();
        const std::size_t tabs = std::min(line.find_first_not_of('\t'), line.size());
        if (std::string_view(line).substr(tabs) == awaited.end) break;
        document.text.text += line.substr(awaited.tabs ? tabs : 0) + "\n";
      }
      if (document.text.quote == Piece::kDouble)
        document.text.text = Unescaped(document.text.text, &document.text.joins);
    }
  }

  bool BlankToTheEnd() const {
    const std::size_t end = text_.find_first_not_of(" \t\r", at_);
    return at_ < text_.size() && end != at_ && (end == std::string::npos || text_[end] == '\n');
  }

  void Word() {
    Token token;
    token.where = Where();
    Piece plain;
    const auto flush = [&] {
      if (!plain.text.empty()) token.pieces.push_back(std::move(plain));
      plain = {};
    };
    while (at_ < text_.size()) {
      const char c = Here();
      if (c == '\'' || c == '"') {
        flush();
        const int line = line_ - token.where.line;
        token.pieces.push_back(c == '\'' ? Single() : Double());
        token.pieces.back().line = line;
      } else if (c == '\\') {
        const Location where = Where();
        Next();
        if (BlankToTheEnd())
          throw InputError({{where, "blanks behind this backslash: a shell ends the command here",
                             "remove them (dos2unix: carriage returns); a backslash joins lines as "
                             "their last character"}});
        if (Here() != '\n') {
          flush();
          token.pieces.push_back({std::string(1, Here()), Piece::kSingle});
        }
        Next();
      } else if (c == '$' || c == '`') {
        Expansion(&plain.text);
      } else if (c == ' ' || c == '\t' || c == '\r' ||
                 kOperators.find(c) != std::string_view::npos) {
        break;
      } else {
        plain.text += c;
        Next();
      }
    }
    // The 2 of "2>&1" names what is redirected.
    if ((Here() == '<' || Here() == '>') && token.pieces.empty() && !plain.text.empty() &&
        plain.text.find_first_not_of("0123456789") == std::string::npos)
      return;
    flush();
    if (at_ == Position(token.where)) Next();  // never stand still
    out_.tokens.push_back(std::move(token));
  }
  std::size_t Position(const Location& where) const {
    return where.line == line_ ? begin_ + static_cast<std::size_t>(where.column) - 1 : 0;
  }

  Piece Single() {
    const Location open = Where();
    Piece piece{"", Piece::kSingle};
    for (Next(); Here() != '\''; Next()) {
      if (at_ >= text_.size()) Unclosed(open, "quote");
      piece.text += Here();
    }
    Next();
    return piece;
  }

  Piece Double() {
    const Location open = Where();
    Piece piece{"", Piece::kDouble};
    Next();
    while (Here() != '"') {
      if (at_ >= text_.size()) Unclosed(open, "quote");
      if (Here() == '\\') {
        Next();
        // Before other characters the backslash stays.
        if (Here() != '$' && Here() != '"' && Here() != '\\' && Here() != '`' && Here() != '\n')
          piece.text += '\\';
        if (Here() == '$') piece.text += '\1';  // no expansion
        if (Here() == '\n')
          piece.joins.push_back(piece.text.size());
        else if (at_ < text_.size())
          piece.text += Here();
        Next();
      } else if (Here() == '$' || Here() == '`') {
        Expansion(&piece.text);
      } else {
        piece.text += Here();
        Next();
      }
    }
    Next();
    return piece;
  }

  // Copies "$NAME", "${...}", "$(...)" or "`...`" as it is.
  void Expansion(std::string* out) {
    const Location open = Where();
    const char first = Here();
    *out += first;
    Next();
    if (first == '`') {
      for (; Here() != '`'; Next()) {
        if (at_ >= text_.size()) Unclosed(open, "command");
        *out += Here();
      }
      *out += Here();
      return Next();
    }
    if (Here() != '(' && Here() != '{') return;
    const std::size_t end = EndOfExpansion(text_, at_);
    if (end == std::string::npos) Unclosed(open, "expansion");
    for (; at_ < end; Next()) *out += Here();
  }

  const SourcePtr& source_;
  const std::string& text_;
  std::size_t at_ = 0, begin_ = 0;
  int line_ = 1;
  Lexed out_;
  struct Awaited {
    std::string end;  // the line behind its text
    bool tabs;        // in front of its lines they do not count
    int document;
  };
  std::vector<Awaited> documents_;
};

// The word that ends a here-document.
struct Delimiter {
  std::string word;
  bool quoted = false, tabs = false;  // tabs: in front of its lines they do not count
  std::size_t behind = 0;             // of the word
};

// Of "<<WORD" at `at`; nullopt: no here-document.
std::optional<Delimiter> DelimiterAt(std::string_view text, std::size_t at) {
  if (!text.substr(at).starts_with("<<") || text.substr(at).starts_with("<<<")) return std::nullopt;
  Delimiter found;
  at += 2;
  if (at < text.size() && text[at] == '-') found.tabs = true, ++at;
  while (at < text.size() && (text[at] == ' ' || text[at] == '\t')) ++at;
  for (; at < text.size() && std::string_view(" \t\n;|&<>()").find(text[at]) == text.npos; ++at) {
    if (text[at] == '\'' || text[at] == '"' || text[at] == '\\')
      found.quoted = true;
    else
      found.word += text[at];
  }
  found.behind = at;
  return found.word.empty() ? std::nullopt : std::optional(found);
}

// Reads lines from `at` to the one that is the word. Where the text behind it begins; npos: there is no such line.
std::size_t ReadHereDocument(std::string_view text, std::size_t at, const Delimiter& delimiter,
                             std::string* body) {
  while (at < text.size()) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line = text.substr(at, end - at);
    if (delimiter.tabs) line.remove_prefix(std::min(line.find_first_not_of('\t'), line.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line == delimiter.word) return end;
    body->append(line).append("\n");
    at = end + 1;
  }
  return std::string_view::npos;
}

}  // namespace

std::size_t EndOfExpansion(std::string_view text, std::size_t at) {
  std::vector<Delimiter> documents;
  for (int depth = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '(' || c == '{') ++depth;
    if ((c == ')' || c == '}') && --depth == 0) return at + 1;
    if (c == '<') {
      if (auto delimiter = DelimiterAt(text, at)) {
        at = delimiter->behind - 1;
        documents.push_back(std::move(*delimiter));
      }
    }
    if (c != '\n') continue;
    for (const Delimiter& delimiter : std::exchange(documents, {})) {
      std::string body;
      const std::size_t end = ReadHereDocument(text, at + 1, delimiter, &body);
      if (end == std::string_view::npos) return end;
      at = end;
    }
    --at;  // the line end behind the word, or a bracket
    if (at + 1 < text.size() && text[at + 1] == '\n') ++at;
  }
  return std::string_view::npos;
}

std::optional<Piece> PrintedDocument(std::string_view command) {
  const std::size_t begin = command.find_first_not_of(" \t\n");
  if (begin == std::string_view::npos || !command.substr(begin).starts_with("cat"))
    return std::nullopt;
  const std::size_t mark = command.find_first_not_of(" \t", begin + 3);
  const auto end = mark == std::string_view::npos ? std::nullopt : DelimiterAt(command, mark);
  if (!end) return std::nullopt;
  const std::size_t line = command.find_first_not_of(" \t\r", end->behind);
  if (line == std::string_view::npos || command[line] != '\n') return std::nullopt;
  Piece piece{"", end->quoted ? Piece::kSingle : Piece::kDouble};
  const std::size_t behind = ReadHereDocument(command, line + 1, *end, &piece.text);
  if (behind == std::string_view::npos ||
      command.find_first_not_of(" \t\r\n", behind) != std::string_view::npos)
    return std::nullopt;
  while (piece.text.ends_with('\n')) piece.text.pop_back();  // as $(...) does
  if (!end->quoted) piece.text = Unescaped(piece.text, &piece.joins);
  piece.line = static_cast<int>(std::ranges::count(command.substr(0, line + 1), '\n'));
  return piece;
}

void PieceLines::To(std::size_t letter) {
  for (; at_ < letter; ++at_) {
    if (piece_.text[at_] == '\n') {
      ++line_;
      begin_ = at_ + 1;
    }
  }
  for (; join_ < piece_.joins.size() && piece_.joins[join_] <= at_; ++join_) {
    ++line_;
    begin_ = piece_.joins[join_];
  }
}

std::string Token::Plain() const {
  std::string text;
  for (const Piece& piece : pieces) text += piece.text;
  return text;
}

Lexed LexShell(const SourcePtr& source) { return Lexer(source).Run(); }

}  // namespace orrery::exchange
