// SPDX-License-Identifier: Apache-2.0
// The orders of nodes under one variant of a layout: how placement.h looks for the best of them.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "model/twin/placed_traffic.h"
#include "model/twin/step_predictor.h"

namespace orrery {

inline constexpr double kSamePlacement = 1e-9;  // relative: no gain

struct OrdersFound {
  std::vector<std::pair<double, std::vector<int32_t>>> orders;  // each faster than the one before
  double bound = std::numeric_limits<double>::infinity();       // no order takes less
  bool exact = false;
  int64_t looked_at = 0;  // partial orders
};
// Orders that take less than `limit` seconds; at most `most` partial orders are looked at. Throws InputError: a layout that
// the job cannot be priced with.
OrdersFound SearchOrders(const Job& job, StepPredictor* predictor, const Strategy& variant,
                         int64_t most, double limit);

}  // namespace orrery
