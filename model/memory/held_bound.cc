// SPDX-License-Identifier: Apache-2.0
// Bounds beside that of a whole strategy: of each stage, and of what it holds all through a step, which refuses whole degrees
// without a look at their layouts.
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

std::vector<double> MemoryModel::AllocatedByStage(const Strategy& strategy, int64_t micro_batches) {
  const PlanForms* forms = Forms(strategy);
  if (forms == nullptr) return {};
  const double dp = strategy.zero > 0 ? static_cast<double>(strategy.shards()) : 1;
  GroupTerms terms;
  std::vector<double> allocated;
  for (const StageSlots& slots : Slots(strategy, micro_batches)) {
    const std::vector<StageSlots> one = {slots};
    terms.Start(one, strategy.micro_batch);
    allocated.push_back(terms.Of(*forms).At(dp));
  }
  return allocated;
}

}  // namespace orrery
