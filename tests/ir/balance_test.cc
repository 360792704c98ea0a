// SPDX-License-Identifier: Apache-2.0
// Layers over stages: as one layer after the other would go to the stage with the least work.
#include "model/plan/lower/balance.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>

namespace orrery {
namespace {

// Layers by stage, by the rule in the words of balance.h.
std::vector<int64_t> OneAfterTheOther(int64_t layers, int stages, int chunks, double embedding,
                                      double head, const std::vector<double>& slowdown) {
  std::vector<int64_t> held;
  std::vector<double> load;
  for (int stage = 0; stage < stages; ++stage) {
    held.push_back(chunks - (stage == 0 ? 1 : 0) - (stage + 1 == stages ? 1 : 0));
    load.push_back(static_cast<double>(held.back()) + (stage == 0 ? embedding : 0) +
                   (stage + 1 == stages ? head : 0));
  }
  const auto next = [&](std::size_t stage) {
    return slowdown.empty() ? load[stage] : (load[stage] + 1) * slowdown[stage];
  };
  for (int64_t left = layers - std::accumulate(held.begin(), held.end(), int64_t{0}); left > 0;
       --left) {
    std::size_t least = 0;
    for (std::size_t stage = 1; stage < load.size(); ++stage) {
      if (next(stage) <= next(least)) least = stage;
    }
    held[least] += 1;
    load[least] += 1;
  }
  return held;
}

TEST(BalancedStages, GivesEachLayerToTheStageWithTheLeastWork) {
  std::mt19937 random(7);
  const auto between = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  };
  for (int i = 0; i < 500; ++i) {
    const int stages = between(2, 24), chunks = between(1, 3);
    const int64_t layers = stages * chunks + between(0, 200);
    const double embedding = 0.25 * between(0, 40), head = 0.37 * between(0, 60);
    std::vector<double> slowdown;
    if (i % 3 == 0) {
      for (int stage = 0; stage < stages; ++stage) slowdown.push_back(1 + 0.25 * between(0, 3));
    }
    const std::vector<int> layout =
        SpreadOverChunks(BalancedStages(layers, stages, chunks, embedding, head, slowdown), chunks);
    ASSERT_EQ(layout.size(), static_cast<std::size_t>(stages * chunks));
    std::vector<int64_t> held(static_cast<std::size_t>(stages), 0);
    for (std::size_t at = 0; at < layout.size(); ++at)
      held[at % static_cast<std::size_t>(stages)] += layout[at];
    EXPECT_EQ(held, OneAfterTheOther(layers, stages, chunks, embedding, head, slowdown)) << i;
  }
}

TEST(BalancedStages, IsEmptyWhereThereAreTooFewLayers) {
  EXPECT_TRUE(BalancedStages(5, 8, 1, 0, 0).empty());
  EXPECT_FALSE(BalancedStages(6, 8, 1, 0, 0).empty());  // the ends hold embedding and head
}

}  // namespace
}  // namespace orrery
