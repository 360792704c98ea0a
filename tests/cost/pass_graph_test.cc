// SPDX-License-Identifier: Apache-2.0
// The order in which the closed form walks passes, and the times it finds.
#include "model/engine/closed/pass_graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>

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
    for (const int micro_batches : {1, 2, 5, 16})
      keys.push_back({RulesOf(PipelineSchedule::kZeroBubbleV), stages, 2, micro_batches});
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
      // The head's gradient comes from its own forward pass.
      const bool head = pass.work == 3 * (key.stages * key.chunks - 1) + PassCall::kBackward;
      if (!pass.receives) {
        EXPECT_EQ(pass.sender > 0, head);
        EXPECT_EQ(graph.passes[pass.sender].work, head ? pass.work - 1 : 0);
      }
      // A tensor comes from the stage before or behind, a slot is freed by the stage itself.
      if (pass.receives) {
        const bool back = key.order.in_a_v && pass.work / 3 >= key.stages;
        const int step = (pass.work % 3 == PassCall::kForward) != back ? -1 : 1;
        EXPECT_EQ(graph.passes[pass.sender].stage, (pass.stage + step + key.stages) % key.stages);
        EXPECT_EQ(graph.passes[pass.sender].work % 3, pass.work % 3);
      }
      EXPECT_TRUE(pass.received == 0 || graph.passes[pass.received].stage == pass.stage);
    }
  }
}

// Narayanan et al. 2021: (m + p - 1) passes forth and back; each of v chunks takes a v-th.
// A micro-batch alone, as `--window microstep` prices it: fewer than take turns in a chunk.
TEST(PassGraph, InterleavedChunksOfOneMicroBatchFollowEachOther) {
  const PassGraph graph = MakePassGraph({RulesOf(PipelineSchedule::kInterleaved), 2, 4, 1});
  EXPECT_EQ(graph.passes.size(), 1U + 2 * 4 * 2);
}

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

// A V is idle for less time than the zero-bubble schedule H1, whatever of usual lengths its passes have, and keeps no more
// than 2 p halves of a stage, what 1F1B keeps (Qi et al. 2024, controllable memory).
TEST(ScheduleClock, AVHasLessBubbleThanH1) {
  const auto seconds = [](PipelineSchedule schedule, int stages, int chunks, int micro_batches,
                          const std::array<double, 3>& pass) {
    ScheduleClock clock;
    PipelineTimes& times = clock.asked();
    times.order = RulesOf(schedule);
    times.stages = stages, times.chunks = chunks, times.micro_batches = micro_batches;
    times.passes.assign(std::size_t{1} * chunks * stages,
                        {{pass[0] / chunks, pass[1] / chunks, pass[2] / chunks}, {0, 0, 0}});
    times.host_waits = false;
    return clock.Seconds();
  };
  for (const int stages : {2, 4, 8}) {
    for (const int micro_batches : {2 * stages, 4 * stages, 10 * stages}) {
      for (const std::array<double, 3>& pass :
           {std::array{1.0, 1.4, 0.8}, {1.0, 1.2, 1.0}, {1.0, 1.3, 0.7}}) {
        const double work = micro_batches * (pass[0] + pass[1] + pass[2]);
        const double v = seconds(PipelineSchedule::kZeroBubbleV, stages, 2, micro_batches, pass);
        EXPECT_LT(v, seconds(PipelineSchedule::kZeroBubble, stages, 1, micro_batches, pass))
            << stages << " " << micro_batches;
        // Of more micro-batches a round stands for the others.
        const double idle = micro_batches > 4 * stages ? 0.99 : 1;
        EXPECT_GE(v, idle * (work + (stages - 1) * pass[0] / 2) - 1e-9);
      }
      for (int stage = 0; stage < stages; ++stage) {
        PassOrder order(RulesOf(PipelineSchedule::kZeroBubbleV), stages, stage, 2, micro_batches);
        int held = 0, most = 0;
        while (!order.done()) {
          const PassCall::Kind kind = order.Next().kind;
          held += (kind == PassCall::kForward) - (kind == PassCall::kWeightGrad);
          most = std::max(most, held);
        }
        EXPECT_LE(most, 2 * stages);
        EXPECT_EQ(held, 0);
      }
    }
  }
}

// Without parts the time comes from another walk, of pipelines without empty passes from a third one.
TEST(ScheduleClock, SecondsAloneAreThoseOfTheParts) {
  std::mt19937 random(7);
  const auto draw = [&](double least, double most) {
    return std::uniform_real_distribution<double>(least, most)(random);
  };
  ScheduleClock clock, other;
  for (const PassGraphKey& key : SomeKeys()) {
    for (const bool host_waits : {false, true}) {
      for (const double early : {0.0, 0.25, -1.0}) {  // -1: a chunk without layers
        PipelineTimes& times = clock.asked();
        times = {};
        times.order = key.order, times.stages = key.stages, times.chunks = key.chunks;
        times.micro_batches = key.micro_batches * (key.order.interleaved ? 1 : 3);
        times.host_waits = host_waits;
        times.on_node = 2, times.inside = draw(0, 0.1), times.between = draw(0, 1);
        times.watched = times.paces = key.stages / 2;
        for (int place = 0; place < key.stages * key.chunks; ++place) {
          PassSeconds& pass = times.passes.emplace_back();
          for (std::size_t kind = 0; kind < 3; ++kind) {
            pass.device[kind] = draw(0.5, 2);
            pass.host[kind] = draw(0, 1.5);
            pass.behind[kind] = draw(0, 2);
          }
          if (!key.order.fills_bubble && !key.order.in_a_v) pass.device[2] = 0;
          pass.after = draw(0, 0.3), pass.first = draw(0, 0.2), pass.last = draw(0, 0.2);
          pass.early[0] = pass.gathered[0] = std::max(0.0, early);
          if (early < 0 && place == 1) pass.device = {};
        }
        const double seconds = clock.Seconds();
        other.asked() = times;
        EXPECT_EQ(seconds, other.Time().seconds);
        ScheduleClock limited;
        limited.asked() = times;
        EXPECT_EQ(limited.Seconds(2 * seconds), seconds);
        EXPECT_EQ(limited.Seconds(0.9 * seconds), std::nullopt);
      }
    }
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
