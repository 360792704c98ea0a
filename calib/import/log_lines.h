// SPDX-License-Identifier: Apache-2.0
// Lines of a log and what is written in them.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery::measured {

// Of a step: what is shorter or longer is no measurement, and its ratio to others may be no number.
inline constexpr double kShortestSeconds = 1e-9, kLongestSeconds = 1e7;

// A line; a carriage return (progress bars) ends one, too, but does not count.
struct LogLine {
  std::string_view text;
  int number = 0;
  int column = 1;  // of text[0]
};
void ForEachLine(const Source& source, const std::function<void(const LogLine&)>& read);

std::string_view Trimmed(std::string_view text);
bool Contains(std::string_view text, std::string_view part);
std::vector<std::string_view> SplitAt(std::string_view text, char separator);  // trimmed pieces

// The whole text as a number; absent: it is none.
std::optional<double> AmountIn(std::string_view text);
std::optional<int64_t> WholeIn(std::string_view text);
int64_t AsCount(double number);  // what no count can be is -1
// Seconds from kShortestSeconds to kLongestSeconds, given in units of `unit` seconds.
std::optional<double> DurationIn(std::string_view text, double unit);
// "ms" -> 1e-3; also s, us, ns, min.
std::optional<double> SecondsPerUnit(std::string_view unit);

// Reads a text from left to right, blanks before anything are skipped. What does not fit leaves
// the place as it is.
class LineCursor {
 public:
  explicit LineCursor(std::string_view text) : text_(text) {}
  bool Literal(std::string_view word);
  bool Behind(std::string_view word);  // moves behind the next place where `word` stands
  std::optional<double> Number();      // not followed by a letter of a number
  std::optional<int64_t> Whole();
  std::string_view Rest() const { return text_.substr(at_); }
  std::size_t at() const { return at_; }

 private:
  std::string_view NumberText() const;
  void SkipBlanks();
  std::string_view text_;
  std::size_t at_ = 0;
};

// Where `word` and a whole number behind it stand in the text, the word at its beginning or behind
// something that is no letter ("step 12", "[0] iter 7"). npos: nowhere.
std::size_t FindCounted(std::string_view text, std::string_view word);

}  // namespace orrery::measured
