// SPDX-License-Identifier: Apache-2.0
// The legal grid of a tiny GPT on 1, 2, 3, 4 and 8 ranks against one rank: all of it, or a sample when the binary is
// built with ORRERY_PARITY_SAMPLE plans per number of ranks.
#include "tests/parity/grid.h"

#include <gtest/gtest.h>

#include <iostream>

#include "tests/parity/jobs.h"

namespace orrery::parity {
namespace {

constexpr uint64_t kSeed = 20240607;
#ifdef ORRERY_PARITY_SAMPLE
constexpr size_t kPlans = ORRERY_PARITY_SAMPLE;
#else
constexpr size_t kPlans = SIZE_MAX;
#endif

class GptGrid : public testing::TestWithParam<int> {};

TEST_P(GptGrid, PlansEqualOneRank) {
  const int ranks = GetParam();
  std::vector<Case> cases;
  const Job tied = ranks == 3 ? ThreeWayGpt(true) : TinyGpt(true),
            untied = ranks == 3 ? ThreeWayGpt(false) : TinyGpt(false);
  for (const Job* job : {&tied, &untied}) {
    const std::vector<Case> grid = Grid(*job, ranks, kSeed);
    cases.insert(cases.end(), grid.begin(), grid.end());
  }
  ASSERT_GE(cases.size(), 30u);
  cases = Sample(cases, kPlans, kSeed);
  const Summary summary = RunAll(cases);
  std::cout << summary.Text(std::to_string(ranks) + " ranks");
  EXPECT_TRUE(summary.failures.empty()) << summary.Text("failures");
}

// Both ends on the first stage, chunks that turn on the last one; few micro-batches and many, unequal chunks.
TEST(VSchedule, PlansEqualOneRank) {
  const std::vector<Job> jobs = {TinyGpt(true), TinyLlama()};  // cases point to them
  std::vector<Case> cases;
  for (const int ranks : {2, 4}) {
    for (const Job& job : jobs) {
      std::vector<Case> in_a_v;
      for (Case& c : Grid(job, ranks, kSeed))
        if (c.strategy.schedule == PipelineSchedule::kZeroBubbleV) in_a_v.push_back(c);
      const std::vector<Case> some = Sample(in_a_v, std::min<size_t>(kPlans, 24), kSeed);
      cases.insert(cases.end(), some.begin(), some.end());
      for (const std::vector<int>& layout : {std::vector<int>{0, 2, 1, 1},
                                             {1, 2, 1, 0},
                                             {1, 1, 1, 1},
                                             {2, 0, 2, 0},
                                             {2, 2, 0, 0},
                                             {2, 0, 0, 2}}) {
        Case c = some.front();
        c.strategy = {};
        c.strategy.pp = 2, c.strategy.vpp = 2, c.strategy.dp = ranks / 2;
        c.strategy.schedule = PipelineSchedule::kZeroBubbleV;
        c.strategy.layout = std::make_shared<const std::vector<int>>(layout);
        if (!CheckStrategy(job.model, job.work, c.strategy)) cases.push_back(c);
      }
    }
  }
  ASSERT_GE(cases.size(), 30u);
  const Summary summary = RunAll(cases);
  std::cout << summary.Text("in a V");
  EXPECT_TRUE(summary.failures.empty()) << summary.Text("failures");
}

// Queries, keys, values, gate and up of weights of their own, some of which run again by themselves.
TEST(SplitProducts, PlansEqualOneRank) {
  Job plain = TinyLlama(), gelu = TinyGemma();
  gelu.model.output_norm = false;
  gelu.model.qk_norm = QkNorm::kNone;
  gelu.key = "geglu split", plain.key = "llama split";
  plain.split_products = gelu.split_products = true;
  plain.model.qkv_bias = true;
  std::vector<Case> cases;
  int by_op = 0;
  for (const Job* job : {&plain, &gelu}) {
    for (const int ranks : {1, 2, 4, 8}) {
      std::vector<Case> grid = Grid(*job, ranks, kSeed), by_product;
      for (Case& c : grid)
        if ((c.strategy.recompute.modules & (kRecomputeKeys | kRecomputeOut | kRecomputeUp)) != 0)
          by_product.push_back(c);
      const std::vector<Case> some = Sample(by_product, std::min<size_t>(kPlans, 20), kSeed),
                              others = Sample(grid, std::min<size_t>(kPlans, 8), kSeed);
      cases.insert(cases.end(), some.begin(), some.end());
      cases.insert(cases.end(), others.begin(), others.end());
    }
  }
  for (const Case& c : cases) by_op += c.strategy.recompute.modules == Recompute::kByOp.modules;
  EXPECT_GT(by_op, 10);
  const Summary summary = RunAll(cases);
  std::cout << summary.Text("split products");
  EXPECT_TRUE(summary.failures.empty()) << summary.Text("failures");
}

// Weights and moments in 16 bits alone.
TEST(MasterWeights, AreNotNeededForEqualPlans) {
  Job job = TinyGpt(false);
  job.key += " without master weights";
  job.work.master_weights = false;
  std::vector<Case> cases;
  for (const int ranks : {1, 2, 4}) {
    const std::vector<Case> some = Sample(Grid(job, ranks, kSeed), 15, kSeed);
    cases.insert(cases.end(), some.begin(), some.end());
  }
  const Summary summary = RunAll(cases);
  std::cout << summary.Text(job.key);
  EXPECT_TRUE(summary.failures.empty());
}

INSTANTIATE_TEST_SUITE_P(Ranks, GptGrid, testing::Values(1, 2, 3, 4, 8),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace orrery::parity
