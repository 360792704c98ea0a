// SPDX-License-Identifier: Apache-2.0
// The orders of nodes, and the split of the layers under each, of one variant of a layout: how placement.h looks for the best.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "model/twin/placed_traffic.h"
#include "model/twin/split_search.h"

namespace orrery {

inline constexpr double kNearPlacement = 1.05;  // of the best: worth a simulation

struct PlacedOrder {
  double seconds = 0;
  std::vector<int32_t> nodes;  // by place
  LayersOfChunks layers;
};
struct OrdersFound {
  std::vector<PlacedOrder> orders;  // best first, some of those near the best
  double bound = std::numeric_limits<double>::infinity();  // no order and split takes less
  bool exact = false;
  int64_t looked_at = 0;  // partial orders
};
// Orders with their best splits; what takes `limit` seconds or more is not looked for. At most `most` partial orders are
// looked at, one alone without `search`: that of the variant's placement. Throws InputError: a layout that the job cannot be
// priced with.
struct OrderOptions {
  int64_t most = 0;
  bool search = true;
  double limit = std::numeric_limits<double>::infinity();
};
OrdersFound SearchOrders(const Job& job, SplitSearch* splits, const Strategy& variant,
                         const OrderOptions& options);

}  // namespace orrery
