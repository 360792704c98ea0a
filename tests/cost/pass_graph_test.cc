// SPDX-License-Identifier: Apache-2.0
// The order in which the closed form walks passes, and the times it finds.
#include "model/engine/closed/pass_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/engine/closed/schedule_time.h"

namespace orrery {
namespace {

std::vector<PassGraphKey> SomeKeys() {
  std::vector<PassGraphKey> keys;
  for (const int stages : {2, 3, 4, 7}) {
    for (const int micro_batches : {1, 2, 5, 16}) {
      for (const PipelineSchedule schedule :
           {PipelineSchedule::kGpipe, PipelineSchedule::k1F1B, PipelineSchedule::kZeroBubble})
        keys.push_back({RulesOf(schedule), stages, 1, micro_batches});
    }
    for (const int chunks : {2, 3}) {
      for (const int rounds : {1, 3})
        keys.push_back({RulesOf(PipelineSchedule::kInterleaved), stages, chunks, rounds * stages});
    }
  }
  return keys;
}

TEST(PassGraph, HoldsEachPassOnceBehindAllThatItWaitsFor) {
  for (const PassGraphKey& key : SomeKeys()) {
    const PassGraph graph = MakePassGraph(key);
    const int kinds = key.order.fills_bubble ? 3 : 2;
    ASSERT_EQ(static_cast<int>(graph.passes.size()),
              1 + kinds * key.stages * key.chunks * key.micro_batches);
    for (int k = 1; k < static_cast<int>(graph.passes.size()); ++k) {
      const PassGraph::Pass& pass = graph.passes[k];
      EXPECT_LT(std::max({pass.sender, pass.before, pass.received, pass.sent}), k);
      EXPECT_TRUE(pass.receives || pass.sender == 0);
      // A tensor comes from the stage before or behind, a slot is freed by the stage itself.
      if (pass.receives) {
        const int step = pass.work % 3 == PassCall::kForward ? -1 : 1;
        EXPECT_EQ(graph.passes[pass.sender].stage, (pass.stage + step + key.stages) % key.stages);
        EXPECT_EQ(graph.passes[pass.sender].work % 3, pass.work % 3);
      }
      EXPECT_TRUE(pass.received == 0 || graph.passes[pass.received].stage == pass.stage);
    }
  }
}

// Narayanan et al. 2021: (m + p - 1) passes forth and back; each of v chunks takes a v-th.
TEST(PassGraph, TimesOfPlainSchedulesAreThoseOfTheirPapers) {
  for (const int chunks : {1, 2, 4}) {
    ScheduleClock clock;
    PipelineTimes& times = clock.asked();
    times.order = RulesOf(chunks > 1 ? PipelineSchedule::kInterleaved : PipelineSchedule::k1F1B);
    times.stages = 4, times.chunks = chunks, times.micro_batches = 12;
    times.passes.assign(4 * chunks, {{1.0 / chunks, 2.0 / chunks, 0}, {0, 0, 0}});
    EXPECT_NEAR(clock.Seconds(), 12 * 3 + 3 * 3.0 / chunks, 1e-12);
    const ScheduleTime parts = clock.Time();
    EXPECT_NEAR(parts.bubble, 3 * 3.0 / chunks, 1e-12);
    EXPECT_EQ(parts.pipeline, 0);
  }
}

TEST(PassGraph, GraphsThatWereDroppedAreMadeAgain) {
  PassGraphs graphs;
  const PassGraphKey key{RulesOf(PipelineSchedule::k1F1B), 4, 1, 8};
  const std::size_t passes = graphs.Of(key).passes.size();
  for (int micro_batches = 1000; micro_batches < 1060; ++micro_batches)
    EXPECT_EQ(graphs.Of({key.order, 4, 1, micro_batches}).passes.size(), 8u * micro_batches + 1);
  EXPECT_EQ(graphs.Of(key).passes.size(), passes);
}

}  // namespace
}  // namespace orrery
