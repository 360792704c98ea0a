// SPDX-License-Identifier: Apache-2.0
// Chunks of an interleaved pipeline whose layers do not divide: what a layout takes that names no layers.
#include <gmock/gmock.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "model/framework/presets.h"
#include "model/memory/schedule_slots.h"
#include "model/plan/lower/balance.h"
#include "model/twin/default_shares.h"
#include "model/twin/search.h"
#include "model/twin/share_climb.h"
#include "model/twin/step_predictor.h"
#include "tests/placement/clusters.h"

namespace orrery::testing {
namespace {

constexpr const char* kOneSwitch = "kind: single-switch";

Strategy Interleaved(int pp, int vpp) {
  Strategy s = Layout(1, pp, 1);
  s.vpp = vpp;
  s.schedule = PipelineSchedule::kInterleaved;
  return s;
}

double SecondsOf(StepPredictor* predictor, Strategy s,
                 std::shared_ptr<const std::vector<int>> layout) {
  s.layout = std::move(layout);
  return std::get<StepTime>(predictor->Predict(s)).total;
}

// Every share of `layers` over chunks, the first and the last perhaps without one.
void ForAllChunks(int64_t layers, std::size_t chunks,
                  const std::function<void(const std::vector<int>&)>& each) {
  std::vector<int> held;
  const std::function<void(int)> next = [&](int left) {
    const bool last = held.size() + 1 == chunks;
    for (int here = last ? left : held.empty() ? 0 : 1; here <= left; ++here) {
      held.push_back(here);
      last ? each(held) : next(left - here);
      held.pop_back();
    }
  };
  next(static_cast<int>(layers));
}

TEST(UnequalChunks, RunsHoldTheModelsLayers) {
  for (const int64_t layers : {11, 14, 17, 22, 23}) {
    const auto runs = RunsOfFullerChunks(layers, Interleaved(4, 3));
    EXPECT_GT(runs.size(), 5U);
    for (const auto& run : runs) {
      EXPECT_EQ(std::accumulate(run->begin(), run->end(), int64_t{0}), layers);
      const auto [least, most] = std::minmax_element(run->begin() + 1, run->end() - 1);
      EXPECT_LE(*most - *least, 1);
    }
  }
  EXPECT_TRUE(RunsOfFullerChunks(24, Interleaved(4, 3)).empty());
  Strategy plain = Interleaved(4, 1);
  plain.schedule = PipelineSchedule::k1F1B;
  EXPECT_TRUE(RunsOfFullerChunks(14, plain).empty());
  Strategy counted = Interleaved(4, 3);
  counted.count_embedding = counted.count_head = true;
  EXPECT_EQ(RunsOfFullerChunks(14, counted).size(), 9U);  // four of twelve chunks, from any place
}

// Against every share of the chunks; the rule alone takes up to a tenth more.
TEST(UnequalChunks, TheDefaultIsNearTheFastestOfAllShares) {
  struct Case {
    int pp, vpp;
    int64_t layers, batch;
  };
  double rule_over = 0;
  for (const Case& one :
       {Case{4, 3, 14, 4}, Case{4, 3, 14, 8}, Case{4, 3, 15, 4}, Case{3, 3, 13, 3},
        Case{3, 3, 13, 12}, Case{2, 4, 11, 2}, Case{4, 2, 12, 4}}) {
    const SmallJob small(SmallCluster(one.pp, 1, kOneSwitch), one.layers, one.batch);
    const Strategy s = Interleaved(one.pp, one.vpp);
    StepPredictor predictor(small.job);
    double fastest = std::numeric_limits<double>::infinity();
    ForAllChunks(one.layers, static_cast<std::size_t>(one.pp * one.vpp),
                 [&](const std::vector<int>& held) {
                   const auto layout = std::make_shared<const std::vector<int>>(held);
                   fastest = std::min(fastest, SecondsOf(&predictor, s, layout));
                 });
    const auto shares = DefaultShares(small.job, s);
    ASSERT_NE(shares, nullptr);
    const double chosen = SecondsOf(&predictor, s, shares);
    const double rule = SecondsOf(&predictor, s, nullptr);
    std::printf("pp %d vpp %d, %ld layers, %ld micro-batches: %.5g s of %s, best %.5g, rule %.5g\n",
                one.pp, one.vpp, static_cast<long>(one.layers), static_cast<long>(one.batch),
                chosen, LayoutWords(*shares).c_str(), fastest, rule);
    EXPECT_LE(chosen, rule);
    EXPECT_LT(chosen / fastest - 1, 0.03);
    rule_over = std::max(rule_over, rule / fastest - 1);
  }
  EXPECT_GT(rule_over, 0.05);
}

// Llama 3 405B on 2,048 nodes, three chunks on each of 32 stages: 126 layers do not divide by 96 chunks.
TEST(UnequalChunks, OneRoundOfFullerChunksIsBestWhereAllStagesHoldAsMuch) {
  const TopologySpec topology = LoadTopology("dgx-h100");
  const Profiles profiles = LoadProfiles(topology, "megatron", true);
  Workload work;
  work.seq_len = 8192;
  work.global_batch = 2048;
  work.precision = Precision::kBf16;
  const Job job = MakeJob(LoadModel("llama3-405b").spec, work, topology, 2048, 0, profiles);
  Strategy degrees = Interleaved(32, 3);
  degrees.tp = 8, degrees.dp = 64, degrees.zero = 1, degrees.sequence_parallel = true;
  const Strategy s = FindFramework("megatron").Complete(degrees, work);
  const auto shares = DefaultShares(job, s);
  ASSERT_NE(shares, nullptr);
  std::vector<int> stages(32, 0);
  for (std::size_t i = 0; i < shares->size(); ++i) stages[i % 32] += (*shares)[i];
  // With the embedding or the head, a stage has three layers, all others four; one of them in a fuller chunk.
  EXPECT_EQ(stages.front(), 3);
  EXPECT_EQ(stages.back(), 3);
  StepPredictor predictor(job);
  const double chosen = SecondsOf(&predictor, s, shares), rule = SecondsOf(&predictor, s, nullptr);
  std::printf("%s: %.4g s, by the rule %.4g\n", LayoutWords(*shares).c_str(), chosen, rule);
  EXPECT_LT(chosen, 0.85 * rule);
}

// The same pipeline in a search, with the recomputation that fits; what does not fit is named with shares as good.
TEST(UnequalChunks, ASearchMovesWhatFitsAndWhatDoesNot) {
  SearchRequest request;
  request.model = LoadModel("llama3-405b").spec;
  request.work.seq_len = 8192;
  request.work.global_batch = 2048;
  request.work.precision = Precision::kBf16;
  request.topology = LoadTopology("dgx-h100");
  request.nodes = {2048};
  request.framework = "megatron";
  request.refine = 0;
  FixedAxes& fixed = request.fixed;
  fixed.tp = 8, fixed.pp = 32, fixed.dp = 64, fixed.vpp = 3, fixed.zero = 1;
  fixed.micro_batch = 1, fixed.sequence_parallel = true;
  fixed.schedule = PipelineSchedule::kInterleaved;
  const SearchResult result = Search(request, LoadProfiles(request));
  ASSERT_TRUE(result.feasible());
  const double first = result.ranked[0].ClosedForm().total;
  std::printf("%.4g s, near misses:", first);
  for (const Candidate& miss : result.near_misses)
    std::printf(" %.4g s of %s", miss.ClosedForm().total, DescribeLayout(miss.strategy).c_str());
  std::printf("\n");
  EXPECT_LT(first, 8.8);  // 9.1 with fuller chunks in the first round and single layers moved
  ASSERT_FALSE(result.near_misses.empty());
  EXPECT_LT(result.near_misses[0].ClosedForm().total, 7.4);  // 8.7
  EXPECT_FALSE(result.near_misses[0].memory->fits);
}

TEST(UnequalChunks, LayersThatDivideOrAreNamedStay) {
  const SmallJob small(SmallCluster(4, 1, kOneSwitch), 24, 8);
  EXPECT_EQ(DefaultShares(small.job, Interleaved(4, 3)), nullptr);
  const SmallJob other(SmallCluster(4, 1, kOneSwitch), 14, 8);
  Strategy counted = Interleaved(4, 2);  // 16 with both ends
  EXPECT_NE(DefaultShares(other.job, counted), nullptr);
  counted.count_embedding = counted.count_head = true;
  EXPECT_EQ(DefaultShares(other.job, counted), nullptr);
  Strategy named = Interleaved(4, 3);
  named.layout = std::make_shared<const std::vector<int>>(
      std::vector<int>{1, 1, 1, 1, 2, 2, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(DefaultShares(other.job, named), nullptr);
}

// The stage in front of all that hold as much holds the most micro-batches, and is not always one of the first two.
TEST(UnequalChunks, TheBoundOfMemoryLooksAtTheFirstOfTheFullestStages) {
  Strategy s = Interleaved(8, 2);
  s.layout = std::make_shared<const std::vector<int>>(
      std::vector<int>{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 1, 1});
  std::vector<int> stages;
  for (const StageSlots& of : CountSlots(s, BalanceLayers(19, s), 8, false))
    stages.push_back(of.stage);
  EXPECT_THAT(stages, ::testing::Contains(3));
}

}  // namespace
}  // namespace orrery::testing
