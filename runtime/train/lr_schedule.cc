// SPDX-License-Identifier: Apache-2.0
// Formulas of the header.
#include "runtime/train/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace orrery::train {

double LrSchedule::At(int64_t step) const {
  if (step < warmup) return static_cast<double>(step) / static_cast<double>(warmup);
  if (shape == LrShape::kConstant) return 1;
  const auto whole = static_cast<double>(std::max<int64_t>(steps - warmup, 1));
  const double t = std::min(static_cast<double>(step - warmup) / whole, 1.0);
  const double share =
      shape == LrShape::kCosine ? (1 + std::cos(std::numbers::pi * t)) / 2 : std::pow(1 - t, power);
  return end + (1 - end) * share;
}

}  // namespace orrery::train
