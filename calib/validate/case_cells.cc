// SPDX-License-Identifier: Apache-2.0
// Cells to numbers.
#include "calib/validate/case_cells.h"

#include <fmt/format.h>

#include <cmath>

#include "model/base/plain_text.h"

namespace orrery {

void CaseCells::Refuse(std::string reason) {
  if (!row_->refused) row_->refused = std::move(reason);
}

std::optional<double> CaseCells::Number(const char* column, double min, double max) {
  const std::string text = Text(column);
  if (text.empty()) return std::nullopt;
  double value = 0;
  if (ParseNumber(text, &value) == NumberFault::kMalformed) {
    Refuse(fmt::format("'{}': expected a number, found '{}'", column, text.substr(0, 40)));
    return std::nullopt;
  }
  if (value >= min && value <= max) return value;
  Refuse(fmt::format("'{}': '{}' is not between {} and {}", column, text.substr(0, 40), min, max));
  return std::nullopt;
}

std::optional<int64_t> CaseCells::Integer(const char* column, int64_t min, int64_t max) {
  const auto value = Number(column, static_cast<double>(min), static_cast<double>(max));
  if (!value) return std::nullopt;
  if (*value == std::floor(*value)) return static_cast<int64_t>(*value);
  Refuse(
      fmt::format("'{}': expected a whole number, found '{}'", column, Text(column).substr(0, 40)));
  return std::nullopt;
}

int64_t CaseCells::Needed(const char* column, int64_t max) {
  const auto value = Integer(column, 1, max);
  if (!value) Refuse(fmt::format("'{}' is empty", column));
  return value.value_or(1);
}

bool CaseCells::Flag(const char* column) {
  const std::string text = Text(column);
  if (text.empty()) return false;
  const Meaning<bool> meaning = YesOrNo(text);
  if (!meaning.value)
    Refuse(fmt::format("'{}': '{}' is neither 1 nor 0", column, text.substr(0, 40)));
  return meaning.value.value_or(false);
}

}  // namespace orrery
