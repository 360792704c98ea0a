// SPDX-License-Identifier: Apache-2.0
// Splits logs into lines and lines into words and numbers.
#include "calib/import/log_lines.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "model/base/plain_text.h"

namespace orrery::measured {
namespace {

bool IsBlankChar(char c) { return c == ' ' || c == '\t'; }
bool IsDigitChar(char c) { return c >= '0' && c <= '9'; }
bool IsLetterChar(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }

}  // namespace

void ForEachLine(const Source& source, const std::function<void(const LogLine&)>& read) {
  const std::string_view text = source.text;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    ++number;
    for (std::size_t piece = begin; piece <= end;) {
      const std::size_t stop = std::min(text.find('\r', piece), end);
      if (stop > piece)
        read({text.substr(piece, stop - piece), number, static_cast<int>(piece - begin) + 1});
      piece = stop + 1;
    }
    begin = end + 1;
  }
}

std::string_view Trimmed(std::string_view text) {
  while (!text.empty() && IsBlankChar(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlankChar(text.back())) text.remove_suffix(1);
  return text;
}

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::vector<std::string_view> SplitAt(std::string_view text, char separator) {
  std::vector<std::string_view> pieces;
  for (std::size_t begin = 0;;) {
    const std::size_t end = std::min(text.find(separator, begin), text.size());
    pieces.push_back(Trimmed(text.substr(begin, end - begin)));
    if (end == text.size()) return pieces;
    begin = end + 1;
  }
}

std::optional<double> AmountIn(std::string_view text) {
  double value = 0;
  if (ParseNumber(Trimmed(text), &value) != NumberFault::kNone) return std::nullopt;
  return value;
}

std::optional<int64_t> WholeIn(std::string_view text) {
  int64_t value = 0;
  if (ParseInteger(Trimmed(text), &value) != NumberFault::kNone || value < 0) return std::nullopt;
  return value;
}

int64_t AsCount(double number) {
  return number >= 0 && number < 1e15 ? static_cast<int64_t>(number) : -1;
}

std::optional<double> DurationIn(std::string_view text, double unit) {
  const std::optional<double> value = AmountIn(text);
  if (!value || !(*value * unit >= kShortestSeconds) || *value * unit > kLongestSeconds)
    return std::nullopt;
  return *value * unit;
}

std::optional<double> SecondsPerUnit(std::string_view unit) {
  constexpr std::pair<std::string_view, double> kUnits[] = {
      {"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"min", 60}};
  for (const auto& [name, seconds] : kUnits) {
    if (unit == name) return seconds;
  }
  return std::nullopt;
}

void LineCursor::SkipBlanks() {
  while (at_ < text_.size() && IsBlankChar(text_[at_])) ++at_;
}

bool LineCursor::Literal(std::string_view word) {
  const std::size_t before = at_;
  SkipBlanks();
  if (text_.substr(at_, word.size()) == word) return at_ += word.size(), true;
  at_ = before;
  return false;
}

bool LineCursor::Behind(std::string_view word) {
  const std::size_t found = text_.find(word, at_);
  if (found == std::string_view::npos) return false;
  at_ = found + word.size();
  return true;
}

std::string_view LineCursor::NumberText() const {
  std::size_t end = at_;
  while (end < text_.size()) {
    const char c = text_[end];
    const bool sign =
        (c == '+' || c == '-') && (end == at_ || text_[end - 1] == 'e' || text_[end - 1] == 'E');
    const bool exponent = (c == 'e' || c == 'E') && end > at_;
    if (!IsDigitChar(c) && c != '.' && !sign && !exponent) break;
    ++end;
  }
  return text_.substr(at_, end - at_);
}

std::optional<double> LineCursor::Number() {
  const std::size_t before = at_;
  SkipBlanks();
  const std::string_view text = NumberText();
  const std::optional<double> value = AmountIn(text);
  if (value && !text.empty()) return at_ += text.size(), value;
  at_ = before;
  return std::nullopt;
}

std::optional<int64_t> LineCursor::Whole() {
  const std::size_t before = at_;
  SkipBlanks();
  std::size_t end = at_;
  while (end < text_.size() && IsDigitChar(text_[end])) ++end;
  const std::optional<int64_t> value = WholeIn(text_.substr(at_, end - at_));
  if (value && end > at_) return at_ = end, value;
  at_ = before;
  return std::nullopt;
}

std::size_t FindCounted(std::string_view text, std::string_view word) {
  for (std::size_t at = text.find(word); at != std::string_view::npos;
       at = text.find(word, at + 1)) {
    if (at > 0 && IsLetterChar(text[at - 1])) continue;
    LineCursor cursor(text.substr(at + word.size()));
    if (cursor.Whole()) return at;
  }
  return std::string_view::npos;
}

}  // namespace orrery::measured
