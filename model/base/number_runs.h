// SPDX-License-Identifier: Apache-2.0
// Whole numbers as runs: "0..3,8,4..7".
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace orrery {

// Numbers that follow each other, each one more than the one before, are a run. Behind `most` runs: ",...".
template <class Int>
std::string RunsText(const std::vector<Int>& numbers, int most = std::numeric_limits<int>::max()) {
  std::string text;
  int runs = 0;
  for (std::size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
    for (end = begin + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    if (++runs > most) return text + ",...";
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[begin]);
    if (end > begin + 1) text += fmt::format("..{}", numbers[end - 1]);
  }
  return text;
}

}  // namespace orrery
