// SPDX-License-Identifier: Apache-2.0
// What a strategy holds all through a step, at least: refuses whole degrees without a look at their layouts.
#include <algorithm>
#include <limits>

#include "model/memory/bound.h"

namespace orrery {

// One stage at least holds as much as the mean of all.
double MemoryModel::HeldBound(const Strategy& strategy) {
  const PlanForms* forms = Forms(strategy);
  if (forms == nullptr || forms->by_stage()) return 0;
  const double shards = strategy.zero > 0 ? static_cast<double>(strategy.shards()) : 1.0;
  const int first = static_cast<int>(strategy.pp == 1 ? ChunkPlace::kOnly : ChunkPlace::kFirst);
  const int last = static_cast<int>(strategy.pp == 1 ? ChunkPlace::kOnly : ChunkPlace::kLast);
  double layer = std::numeric_limits<double>::infinity();
  for (int place = first; place <= last; ++place) {
    if (forms->chunks[place].base.step.At(0, shards) < 0) return 0;
    layer = std::min(layer, forms->chunks[place].per_layer.step.At(0, shards));
  }
  return std::max(0.0, layer) * static_cast<double>(model_.layers) / strategy.pp;
}

}  // namespace orrery
