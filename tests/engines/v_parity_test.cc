// SPDX-License-Identifier: Apache-2.0
// Parity of the engines where the closed form walks fewer micro-batches than a step has.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "bench/engines/engine_parity.h"

namespace orrery {
namespace {

// Of 16 stages in a V fewer micro-batches are walked than the step has: rounds that stood for the others made it 9 % too long.
TEST(TermParity, EnginesAgreeOnManyMicroBatchesInAV) {
  for (const int64_t batch : {256, 512}) {
    ParitySelection selection;
    selection.topologies = {"aws-p4d", "dgx-h100"};
    selection.frameworks = {"orrery", "torchtitan@2024"};
    selection.situations = {"tcp"};
    selection.fixed.tp = 1, selection.fixed.pp = 16, selection.fixed.micro_batch = 1;
    selection.fixed.schedule = PipelineSchedule::kZeroBubbleV;
    std::vector<int> layers(32, 1);  // of 48
    std::fill(layers.begin() + 8, layers.begin() + 24, 2);
    selection.fixed.layout = std::make_shared<const std::vector<int>>(layers);
    selection.global_batch = batch;
    int plans = 0;
    CompareEngines(selection, [&](const EnginePair& pair) {
      ++plans;
      EXPECT_LT(std::abs(pair.Apart()), 0.035) << pair.where;  // 3.1 % at most
    });
    EXPECT_GT(plans, 1);
  }
}

}  // namespace
}  // namespace orrery
