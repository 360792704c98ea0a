// SPDX-License-Identifier: Apache-2.0
// Slopes of attention with linear biases (Press et al. 2022, arXiv:2108.12409): one function for every executor of plans.
#pragma once

#include <cmath>
#include <cstdint>

#include "model/plan/ir/draws.h"

namespace orrery::ir {

// What head `head` of `heads` adds to a score per position of the key. Of a power of two: 2^(-8 (head + 1) / heads). Heads
// beyond the largest power of two p take every second slope of 2 p heads, as in BLOOM.
ORRERY_ON_DEVICE inline double AlibiSlope(int64_t head, int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  const double p = static_cast<double>(power);
  return head < power ? exp2(-8.0 * static_cast<double>(head + 1) / p)
                      : exp2(-4.0 * static_cast<double>(2 * (head - power) + 1) / p);
}

}  // namespace orrery::ir
