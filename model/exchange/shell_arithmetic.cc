// SPDX-License-Identifier: Apache-2.0
// Precedence climbing over bash's operators, which are those of C with ** and without pointers.
#include "model/exchange/shell_arithmetic.h"

#include <array>
#include <limits>
#include <map>
#include <utility>

namespace orrery::exchange {
namespace {

constexpr int kDeepestOperand = 64;  // brackets, signs and right operands in each other

bool NameLetter(char c, bool first) {
  return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         (!first && c >= '0' && c <= '9');
}

struct Binary {
  std::string_view sign;
  int level;  // higher binds closer
};
// Longer signs first.
constexpr std::array kBinary = {Binary{"**", 11}, Binary{"<<", 8}, Binary{">>", 8}, Binary{"<=", 7},
                                Binary{">=", 7},  Binary{"==", 6}, Binary{"!=", 6}, Binary{"&&", 2},
                                Binary{"||", 1},  Binary{"*", 10}, Binary{"/", 10}, Binary{"%", 10},
                                Binary{"+", 9},   Binary{"-", 9},  Binary{"<", 7},  Binary{">", 7},
                                Binary{"&", 5},   Binary{"^", 4},  Binary{"|", 3}};
constexpr std::array<std::string_view, 11> kAssigning = {
    "<<=", ">>=", "*=", "/=", "%=", "+=", "-=", "&=", "^=", "|=", "="};

std::optional<int64_t> Power(int64_t base, int64_t exponent) {
  if (exponent < 0) return std::nullopt;
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) return std::nullopt;
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return std::nullopt;
  }
  return result;
}

std::optional<int64_t> Combine(std::string_view sign, int64_t a, int64_t b) {
  int64_t result = 0;
  const bool divides = sign == "/" || sign == "%";
  if (divides && (b == 0 || (b == -1 && a == std::numeric_limits<int64_t>::min())))
    return std::nullopt;
  if (sign == "**") return Power(a, b);
  if (sign == "*")
    return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
  if (sign == "+")
    return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
  if (sign == "-")
    return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result);
  if (sign == "/") return a / b;
  if (sign == "%") return a % b;
  if (sign == "<<" || sign == ">>") {
    constexpr int64_t kMostBits = 62;
    if (a < 0 || b < 0 || b > kMostBits) return std::nullopt;
    if (sign == ">>") return a >> b;
    return __builtin_mul_overflow(a, int64_t{1} << b, &result) ? std::nullopt
                                                               : std::optional(result);
  }
  if (sign == "<=") return a <= b;
  if (sign == ">=") return a >= b;
  if (sign == "<") return a < b;
  if (sign == ">") return a > b;
  if (sign == "==") return a == b;
  if (sign == "!=") return a != b;
  if (sign == "&") return a & b;
  if (sign == "^") return a ^ b;
  if (sign == "|") return a | b;
  if (sign == "&&") return a != 0 && b != 0;
  return a != 0 || b != 0;
}

class Arithmetic {
 public:
  Arithmetic(std::string_view text, const LookUp& value_of) : text_(text), value_of_(value_of) {}

  std::optional<int64_t> Value() {
    const auto value = List(0);
    Skip();
    return at_ == text_.size() ? value : std::nullopt;
  }
  const std::vector<std::pair<std::string, int64_t>>& assigned() const { return assigned_; }

 private:
  void Skip() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }
  bool Ahead(std::string_view sign) {
    Skip();
    return text_.substr(at_).starts_with(sign);
  }
  bool Take(std::string_view sign) {
    if (!Ahead(sign)) return false;
    at_ += sign.size();
    return true;
  }

  // A, B: the value is the last one's.
  std::optional<int64_t> List(int depth) {
    auto value = Ternary(depth);
    while (value && Take(",")) value = Ternary(depth);
    return value;
  }

  // Both arms are read; one that is not taken may not assign.
  std::optional<int64_t> Ternary(int depth) {
    const auto test = Operators(0, depth);
    if (!test || !Take("?")) return test;
    ++unsure_;
    const auto yes = depth < kDeepestOperand ? Ternary(depth + 1) : std::nullopt;
    const auto no = yes && Take(":") ? Ternary(depth + 1) : std::nullopt;
    --unsure_;
    return !no ? std::nullopt : *test != 0 ? yes : no;
  }

  std::optional<int64_t> Operators(int level, int depth) {
    if (depth > kDeepestOperand) return std::nullopt;
    auto left = Unary(depth);
    while (left) {
      const Binary* found = nullptr;
      for (const Binary& one : kBinary) {
        if (found == nullptr && Ahead(one.sign)) found = &one;
      }
      if (found == nullptr || found->level <= level) return left;
      at_ += found->sign.size();
      if (Ahead("=")) return std::nullopt;  // of what is no variable
      const bool lazy = found->sign == "&&" || found->sign == "||";
      unsure_ += lazy ? 1 : 0;
      // ** binds to the right.
      const auto right =
          Operators(found->sign == "**" ? found->level - 1 : found->level, depth + 1);
      unsure_ -= lazy ? 1 : 0;
      left = right ? Combine(found->sign, *left, *right) : std::nullopt;
    }
    return left;
  }

  std::optional<int64_t> Unary(int depth) {
    if (depth > kDeepestOperand) return std::nullopt;
    for (const std::string_view step : {"++", "--"}) {
      if (!Take(step)) continue;
      const std::string name = Name();
      const auto value = name.empty() ? std::nullopt : Known(name);
      return value ? Store(name, Combine(step.substr(1), *value, 1)) : std::nullopt;
    }
    for (const char sign : {'!', '~', '-', '+'}) {
      if (!Take(std::string_view(&sign, 1))) continue;
      const auto value = Unary(depth + 1);
      if (!value || sign == '+') return value;
      if (sign == '-') return Combine("-", 0, *value);
      return sign == '!' ? int64_t{*value == 0} : ~*value;
    }
    return Atom(depth);
  }

  std::optional<int64_t> Atom(int depth) {
    if (Take("(")) {
      const auto value = List(depth + 1);
      return Take(")") ? value : std::nullopt;
    }
    Skip();
    const bool dollar = Ahead("$");
    const std::string name = Name();
    if (name.empty()) return Number();
    if (dollar) return Known(name);
    return Variable(name, depth);
  }

  // NAME, $NAME or ${NAME}; "": none stands here.
  std::string Name() {
    Skip();
    std::size_t at = at_;
    const bool braces = text_.substr(at).starts_with("${");
    if (at < text_.size() && text_[at] == '$') at += braces ? 2 : 1;
    const std::size_t length = NameLength(text_.substr(at));
    const std::string name(text_.substr(at, length));
    at += length;
    if (length == 0 || (braces && !text_.substr(at).starts_with('}'))) return "";
    at_ = at + (braces ? 1 : 0);
    return name;
  }

  std::optional<int64_t> Variable(const std::string& name, int depth) {
    if (Ahead("[")) return std::nullopt;
    for (const std::string_view step : {"++", "--"}) {
      if (!Take(step)) continue;
      const auto value = Known(name);
      const bool stored = value && Store(name, Combine(step.substr(1), *value, 1));
      return stored ? value : std::nullopt;
    }
    for (const std::string_view sign : kAssigning) {
      if (Ahead("==") || !Take(sign)) continue;
      const auto right = depth < kDeepestOperand ? Ternary(depth + 1) : std::nullopt;
      if (!right || sign == "=") return right ? Store(name, right) : std::nullopt;
      const auto left = Known(name);
      return left ? Store(name, Combine(sign.substr(0, sign.size() - 1), *left, *right))
                  : std::nullopt;
    }
    return Known(name);
  }

  std::optional<int64_t> Known(const std::string& name) const {
    const auto own = now_.find(name);
    return own != now_.end() ? own->second : value_of_(name);
  }
  std::optional<int64_t> Store(const std::string& name, std::optional<int64_t> value) {
    if (!value || unsure_ > 0) return std::nullopt;
    now_.insert_or_assign(name, *value);
    assigned_.emplace_back(name, *value);
    return value;
  }

  // 12, 014 (base 8), 0x1f and 2#101.
  std::optional<int64_t> Number() {
    Skip();
    int64_t base = 10;
    std::size_t end = at_;
    while (end < text_.size() && text_[end] >= '0' && text_[end] <= '9') ++end;
    if (end == at_) return std::nullopt;
    if (text_.substr(end).starts_with('#')) {
      const auto own = Digits(text_.substr(at_, end - at_), 10);
      if (!own || *own < 2 || *own > 36) return std::nullopt;
      base = *own;
      at_ = end + 1;
    } else if (text_[at_] == '0' && end == at_ + 1 && end < text_.size() &&
               (text_[end] == 'x' || text_[end] == 'X')) {
      base = 16;
      at_ += 2;
    } else if (text_[at_] == '0') {
      base = 8;
    }
    const std::size_t begin = at_;
    while (at_ < text_.size() && (NameLetter(text_[at_], false))) ++at_;
    return Digits(text_.substr(begin, at_ - begin), base);
  }
  static std::optional<int64_t> Digits(std::string_view digits, int64_t base) {
    int64_t number = 0;
    for (const char c : digits) {
      const int64_t digit = c >= '0' && c <= '9'   ? c - '0'
                            : c >= 'a' && c <= 'z' ? c - 'a' + 10
                            : c >= 'A' && c <= 'Z' ? c - 'A' + 10
                                                   : base;
      if (digit >= base || __builtin_mul_overflow(number, base, &number) ||
          __builtin_add_overflow(number, digit, &number))
        return std::nullopt;
    }
    return digits.empty() ? std::nullopt : std::optional(number);
  }

  std::string_view text_;
  const LookUp& value_of_;
  std::size_t at_ = 0;
  int unsure_ = 0;                      // operands around, which may not be evaluated
  std::map<std::string, int64_t> now_;  // of what was assigned
  std::vector<std::pair<std::string, int64_t>> assigned_;
};

}  // namespace

std::size_t NameLength(std::string_view text) {
  std::size_t length = 0;
  while (length < text.size() && NameLetter(text[length], length == 0)) ++length;
  return length;
}

std::optional<int64_t> Calculate(std::string_view text, const LookUp& value_of,
                                 const Assign& assign) {
  Arithmetic arithmetic(text, value_of);
  const auto value = arithmetic.Value();
  if (!value || (!assign && !arithmetic.assigned().empty())) return std::nullopt;
  for (const auto& [name, result] : arithmetic.assigned()) assign(name, result);
  return value;
}

std::vector<std::string> AssignedIn(std::string_view text) {
  std::vector<std::string> names;
  const auto blanks = [&](std::size_t at) {
    return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
  };
  std::string_view before;  // the sign in front of a name
  for (std::size_t at = blanks(0); at < text.size();) {
    const std::size_t length = NameLength(text.substr(at));
    if (length == 0) {
      before = text.substr(
          at, text.substr(at).starts_with("++") || text.substr(at).starts_with("--") ? 2 : 1);
      // The rest of a number is no name.
      const bool digit = text[at] >= '0' && text[at] <= '9';
      at += before.size();
      while (digit && at < text.size() && NameLetter(text[at], false)) ++at;
      at = blanks(at);
      continue;
    }
    const std::string_view name = text.substr(at, length);
    at = blanks(at + length);
    if (text.substr(at).starts_with('['))  // an element of a list
      at = blanks(std::min(text.find(']', at), text.size() - 1) + 1);
    const std::string_view rest = text.substr(at);
    bool assigns =
        before == "++" || before == "--" || rest.starts_with("++") || rest.starts_with("--");
    for (const std::string_view sign : kAssigning)
      assigns = assigns || (rest.starts_with(sign) && !rest.starts_with("=="));
    if (assigns) names.emplace_back(name);
    before = {};
  }
  return names;
}

}  // namespace orrery::exchange
