// SPDX-License-Identifier: Apache-2.0
// Which layers each model chunk of each pipeline stage holds.
#pragma once

#include <cstdint>
#include <vector>

#include "model/plan/lower/strategy.h"

namespace orrery {

struct LayerRange {
  int64_t first = 0;
  int64_t count = 0;
};

// One range per virtual stage (chunk * pp + stage). With count_embedding / count_head the embedding and the head
// weigh as one layer each (BLOOM: 70 layers + 2 on 12 stages = 5, 6 x 10, 5). What is left over goes one each to the
// stages after the first, so that the first (most micro-batches in flight) and the last (head) are filled last.
std::vector<LayerRange> BalanceLayers(int64_t layers, const Strategy& strategy);

}  // namespace orrery
