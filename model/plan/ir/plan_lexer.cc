// SPDX-License-Identifier: Apache-2.0
// Scans the plan text; every complaint carries its line and column.
#include "model/plan/ir/plan_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "model/plan/ir/text_words.h"

namespace orrery::ir {
namespace {

constexpr std::string_view kPunctuation = "=,()[]{};%";

std::string Shown(const Token& token) {
  switch (token.kind) {
    case Token::Kind::kNewline:
      return "the end of the line";
    case Token::Kind::kEnd:
      return "the end of the text";
    case Token::Kind::kString:
      return fmt::format("\"{}\"", token.text.substr(0, 60));
    case Token::Kind::kWord:
    case Token::Kind::kPunctuation:
      return fmt::format("'{}'", token.text.substr(0, 60));
  }
  return "";
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

void NameIndex::Add(const std::string& name) {
  const auto [at, added] = ids_.try_emplace(name, size_++);
  if (!added) at->second = -2;
}

int NameIndex::Find(const std::string& name) const {
  const auto at = ids_.find(name);
  return at == ids_.end() ? -1 : at->second;
}

std::vector<std::string> NameIndex::Names() const {
  std::vector<std::string> names;
  names.reserve(ids_.size());
  for (const auto& [name, id] : ids_) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

PlanLexer::PlanLexer(SourcePtr source) : source_(std::move(source)), text_(source_->text) {
  next_ = Scan();
}

Token PlanLexer::Take() {
  const Token taken = next_;
  if (taken.kind != Token::Kind::kEnd) next_ = Scan();
  return taken;
}

Token PlanLexer::Scan() {
  while (position_ < text_.size() &&
         (text_[position_] == ' ' || text_[position_] == '\t' || text_[position_] == '\r')) {
    ++position_;
  }
  if (position_ < text_.size() && text_[position_] == '#') {
    position_ = std::min(text_.find('\n', position_), text_.size());
  }
  const std::size_t start = position_;
  if (start == text_.size()) return {Token::Kind::kEnd, "", start};
  const char first = text_[start];
  if (first == '"') return ScanString();
  if (first == '\n' || kPunctuation.find(first) != std::string_view::npos) {
    ++position_;
    const auto kind = first == '\n' ? Token::Kind::kNewline : Token::Kind::kPunctuation;
    return {kind, text_.substr(start, 1), start};
  }
  while (position_ < text_.size() && IsWordChar(text_[position_])) ++position_;
  const Token word{Token::Kind::kWord, text_.substr(start, position_ - start), start};
  if (word.text.empty()) {
    Fail(word, "a character that a plan text cannot have here",
         "names with other characters stand in double quotes");
  }
  return word;
}

Token PlanLexer::ScanString() {
  const std::size_t start = position_++;
  while (position_ < text_.size() && text_[position_] != '"' && text_[position_] != '\n') {
    position_ += text_[position_] == '\\' ? 2 : 1;
  }
  if (position_ >= text_.size() || text_[position_] != '"') {
    Fail({Token::Kind::kString, "", start}, "a quoted name that does not end on its line");
  }
  ++position_;
  return {Token::Kind::kString, text_.substr(start + 1, position_ - start - 2), start};
}

std::string PlanLexer::Unescaped(const Token& token) const {
  std::string name;
  for (std::size_t i = 0; i < token.text.size(); ++i) {
    if (token.text[i] != '\\') {
      name += token.text[i];
      continue;
    }
    const char escape = token.text[++i];  // ScanString leaves no trailing backslash
    const int high = i + 2 < token.text.size() ? HexDigit(token.text[i + 1]) : -1;
    const int low = high >= 0 ? HexDigit(token.text[i + 2]) : -1;
    if (escape == 'n') {
      name += '\n';
    } else if (escape == '"' || escape == '\\') {
      name += escape;
    } else if (escape == 'x' && low >= 0) {
      name += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      Fail(token, "an unknown escape in a quoted name", R"(known: \" \\ \n \x41)");
    }
  }
  return name;
}

bool PlanLexer::PeekIs(char punctuation) const {
  return next_.kind == Token::Kind::kPunctuation && next_.text[0] == punctuation;
}

bool PlanLexer::PeekIsWord(std::string_view word) const {
  return next_.kind == Token::Kind::kWord && next_.text == word;
}

bool PlanLexer::TakeIf(char punctuation) {
  if (!PeekIs(punctuation)) return false;
  Take();
  return true;
}

bool PlanLexer::TakeIfWord(std::string_view word) {
  if (!PeekIsWord(word)) return false;
  Take();
  return true;
}

void PlanLexer::Expect(char punctuation) {
  if (!TakeIf(punctuation)) FailExpected(fmt::format("'{}'", punctuation));
}

void PlanLexer::ExpectWord(std::string_view word) {
  if (!TakeIfWord(word)) FailExpected(fmt::format("'{}'", word));
}

void PlanLexer::EndLine() {
  if (next_.kind != Token::Kind::kNewline && next_.kind != Token::Kind::kEnd) {
    FailExpected("the end of the line");
  }
  SkipNewlines();
}

void PlanLexer::SkipNewlines() {
  while (next_.kind == Token::Kind::kNewline) Take();
}

Token PlanLexer::Word(const char* what) {
  if (next_.kind != Token::Kind::kWord) FailExpected(what);
  return Take();
}

std::string PlanLexer::Name(const char* what) {
  if (next_.kind == Token::Kind::kString) return Unescaped(Take());
  const Token word = Word(what);
  if (!IsBareName(word.text)) {
    Fail(word, fmt::format("{} starts with a letter or '_'", what), "else put it in double quotes");
  }
  return std::string(word.text);
}

int64_t PlanLexer::IntegerIn(const Token& token, std::string_view digits, const char* what,
                             int64_t min, int64_t max) const {
  int64_t value = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (digits.empty() || stop != end || error == std::errc::invalid_argument) {
    Fail(token, fmt::format("{} is an integer, not {}", what, Shown(token)));
  }
  if (error != std::errc() || value < min || value > max) {
    Fail(token, fmt::format("{} is out of range", what), fmt::format("{} to {}", min, max));
  }
  return value;
}

int64_t PlanLexer::Integer(const char* what, int64_t min, int64_t max) {
  const Token word = Word(what);
  std::string_view digits = word.text;
  if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
  return IntegerIn(word, digits, what, min, max);
}

double PlanLexer::Number(const char* what) {
  const Token word = Word(what);
  double value = 0;
  const char* end = word.text.data() + word.text.size();
  const auto [stop, error] = std::from_chars(word.text.data(), end, value);
  if (stop != end || error != std::errc() || !std::isfinite(value)) {
    Fail(word, fmt::format("{} is a finite number, not {}", what, Shown(word)));
  }
  return value;
}

int PlanLexer::Resolve(const NameIndex& index, const Token& token, const std::string& name,
                       const char* what) const {
  const int id = index.Find(name);
  if (id == -1) {
    Fail(token, fmt::format("no {} is called '{}'", what, name), SuggestName(name, index.Names()));
  }
  if (id == -2) {
    Fail(token, fmt::format("more than one {} is called '{}'", what, name),
         "refer to it by %index, counted from 0");
  }
  return id;
}

int PlanLexer::Reference(const NameIndex& index, const char* what) {
  const Token token = next_;
  if (TakeIf('%')) {
    const Token number = Word(what);
    return static_cast<int>(IntegerIn(number, number.text, what, 0, index.size() - 1));
  }
  if (token.kind == Token::Kind::kString) {
    return Resolve(index, token, Unescaped(Take()), what);
  }
  return Resolve(index, token, std::string(Word(what).text), what);
}

int PlanLexer::OneOf(std::span<const std::string_view> words, const char* what) {
  const Token word = Word(what);
  const auto at = std::find(words.begin(), words.end(), word.text);
  if (at == words.end()) {
    Fail(word, fmt::format("'{}' is no {}", word.text.substr(0, 60), what),
         SuggestName(word.text, {words.begin(), words.end()}));
  }
  return static_cast<int>(at - words.begin());
}

void PlanLexer::Fail(const Token& at, std::string message, std::string hint) const {
  const std::string_view before = text_.substr(0, at.position);
  const std::size_t newline = before.rfind('\n');
  const std::size_t line_start = newline == std::string_view::npos ? 0 : newline + 1;
  const auto line = static_cast<int>(std::count(before.begin(), before.end(), '\n')) + 1;
  const int column = static_cast<int>(at.position - line_start) + 1;
  throw InputError({{{source_, line, column}, std::move(message), std::move(hint)}});
}

void PlanLexer::FailExpected(const std::string& what) const {
  Fail(next_, fmt::format("expected {}, found {}", what, Shown(next_)));
}

}  // namespace orrery::ir
