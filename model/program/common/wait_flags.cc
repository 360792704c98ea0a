// SPDX-License-Identifier: Apache-2.0
// Waits end: a year is longer than any of them.
#include "model/program/common/wait_flags.h"

#include <fmt/format.h>

#include "model/base/quantity_limits.h"

namespace orrery::cli {

std::optional<double> ReadWait(const Flag& flag, Diagnostics* diagnostics, bool or_none) {
  constexpr double kLongest = 366 * 86'400.0;
  if (!flag.given) return std::nullopt;
  TextError error;
  const std::optional<Seconds> time = ParseQuantity<Seconds>(flag.text, &error);
  const bool long_one = time ? time->value > kLongest : IsTooLarge(error);
  if (!time && !long_one && !IsTooSmall(error)) {
    RecordBadValue(flag, error, diagnostics);
  } else if (long_one || !time || (time->value <= 0 && !or_none)) {
    diagnostics->Error(flag.where,
                       fmt::format("{} is {}", flag.name, long_one ? "too long" : "no time"),
                       fmt::format("{} takes up to 366d, such as 3h or 90s", flag.name));
  } else {
    return time->value;
  }
  return std::nullopt;
}

}  // namespace orrery::cli
