// SPDX-License-Identifier: Apache-2.0
// Recursive descent over sums, products and atoms.
#include "model/exchange/shell_arithmetic.h"

#include "model/base/plain_text.h"

namespace orrery::exchange {
namespace {

constexpr int kMostBrackets = 32;  // in each other

bool NameLetter(char c, bool first) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (!first && c >= '0' && c <= '9');
}

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const LookUp& value_of) : text_(text), value_of_(value_of) {}

  std::optional<int64_t> Value() {
    const auto value = Sum(0);
    Skip();
    return at_ == text_.size() ? value : std::nullopt;
  }

 private:
  void Skip() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t')) ++at_;
  }
  bool Take(char c) {
    Skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  std::optional<int64_t> Sum(int depth) {
    auto value = Product(depth);
    while (value) {
      const bool plus = Take('+');
      if (!plus && !Take('-')) return value;
      const auto right = Product(depth);
      int64_t result = 0;
      if (!right || (plus ? __builtin_add_overflow(*value, *right, &result)
                          : __builtin_sub_overflow(*value, *right, &result)))
        return std::nullopt;
      value = result;
    }
    return value;
  }
  std::optional<int64_t> Product(int depth) {
    auto value = Atom(depth);
    while (value) {
      const char op = Take('*') ? '*' : Take('/') ? '/' : Take('%') ? '%' : ' ';
      if (op == ' ') return value;
      const auto right = Atom(depth);
      int64_t result = 0;
      if (!right || (op != '*' && *right <= 0)) return std::nullopt;
      if (op == '*' && __builtin_mul_overflow(*value, *right, &result)) return std::nullopt;
      value = op == '*' ? result : op == '/' ? *value / *right : *value % *right;
    }
    return value;
  }
  std::optional<int64_t> Atom(int depth) {
    if (depth > kMostBrackets) return std::nullopt;
    if (Take('(')) {
      const auto value = Sum(depth + 1);
      return Take(')') ? value : std::nullopt;
    }
    Skip();
    const bool braces = text_.substr(at_).starts_with("${");
    if (at_ < text_.size() && text_[at_] == '$') at_ += braces ? 2 : 1;
    const std::string_view rest = text_.substr(at_);
    if (const std::size_t length = NameLength(rest); length > 0) {
      at_ += length;
      if (braces && !Take('}')) return std::nullopt;
      return value_of_(std::string(rest.substr(0, length)));
    }
    std::size_t end = 0;
    while (end < rest.size() && rest[end] >= '0' && rest[end] <= '9') ++end;
    int64_t number = 0;
    if (ParseInteger(rest.substr(0, end), &number) != NumberFault::kNone) return std::nullopt;
    at_ += end;
    return number;
  }

  std::string_view text_;
  const LookUp& value_of_;
  std::size_t at_ = 0;
};

}  // namespace

std::size_t NameLength(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && NameLetter(text[length], length == 0)) ++length;
  return length;
}

std::optional<int64_t> Calculate(std::string_view text, const LookUp& value_of) {
  return Arithmetic(text, value_of).Value();
}

}  // namespace orrery::exchange
