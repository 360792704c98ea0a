// SPDX-License-Identifier: Apache-2.0
// What a search of runs ranks by, against the runs themselves.
#include "model/provision/run_values.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/provision/made_up_step.h"

namespace orrery {
namespace {

class RunValuesTest : public testing::TestWithParam<bool> {};

TEST_P(RunValuesTest, AreThoseOfTheRunsAtTheSparesOfTheFastest) {
  const bool elastic = GetParam();
  Conditions conditions = DefaultConditions();
  conditions.tokens = 3e11;
  conditions.failures.rate = {20, 20, 20};
  conditions.recovery.elastic = elastic;
  Quote quote = QuoteAt(36);
  quote.price.quantum = Seconds(86400);
  for (const int64_t nodes : {4, 16, 64}) {
    const double step = 128.0 / static_cast<double>(nodes);
    const auto made = CaseOf("llama3-8b", "dgx-h100", nodes, step, 512, 8192);
    Prediction fastest = made->prediction;
    fastest.strategy.tp = 8, fastest.strategy.dp = static_cast<int>(nodes);
    const auto any = [](const RunEstimate&) { return true; };
    const RunEstimate best = BestRun(conditions, made->job, fastest, &quote, any);
    for (const Objective objective : {Objective::kTime, Objective::kCost}) {
      RunValues values(conditions, objective, quote, any);
      values.SetFastest(made->job, fastest);
      double last = 0;
      for (const double ratio : {0.5, 0.77, 1.0, 1.001, 1.3, 1.9, 5.0, 40.0}) {
        Prediction other = fastest;
        other.time.total = step * ratio;
        const RunEstimate run = EstimateRun(conditions, made->job, other, &quote, best.spares);
        const double wanted = objective == Objective::kTime ? run.time.value : run.cost.value;
        const double value = values.Of(made->job, nodes, step * ratio);
        // Far from the fastest the order is enough. A day that begins is billed.
        const double near = objective == Objective::kCost ? 86400 / run.time.value : 0;
        EXPECT_NEAR(value / wanted, 1, near + (ratio > 2 ? 0.05 : 3e-4))
            << nodes << " nodes, " << ratio << (elastic ? ", elastic" : "");
        const double longest = values.StepOf(made->job, nodes, value);
        if (objective == Objective::kTime) {
          EXPECT_GT(value, last);
          EXPECT_NEAR(longest / (step * ratio), 1, 1e-9);
        } else {
          EXPECT_GT(value, last);
          EXPECT_GE(longest, step * ratio * (1 - 1e-9));
          EXPECT_NEAR(values.Of(made->job, nodes, longest * (1 - 1e-9)), value, 1e-9 * value);
          EXPECT_GT(values.Of(made->job, nodes, longest * (1 + 1e-4)), value);
        }
        last = value;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RunValuesTest, testing::Bool());

// Of equal steps the layout whose replicas lie on fewer nodes loses fewer of them where the job shrinks; where it does not,
// layouts are alike.
TEST(RunValues, TellReplicasApartWhereAJobShrinks) {
  Conditions conditions = DefaultConditions();
  conditions.tokens = 1e12;
  conditions.failures.rate = {30, 30, 30};
  conditions.spares = 0;
  const auto made = CaseOf("llama3-8b", "dgx-h100", 32, 4, 512, 8192);
  const auto any = [](const RunEstimate&) { return true; };
  for (const bool elastic : {false, true}) {
    conditions.recovery.elastic = elastic;
    RunValues values(conditions, Objective::kTime, {}, any);
    values.SetFastest(made->job, made->prediction);
    const double small = values.Of(made->job, 64, 4), large = values.Of(made->job, 8, 4);
    if (elastic) {
      EXPECT_LT(small * 1.01, large);
    } else
      EXPECT_EQ(small, large);
  }
}

// The first to ask has another batch than the fastest layout: whoever it is, the answer is one.
TEST(RunValues, DoNotDependOnWhoAsksFirst) {
  Conditions conditions = DefaultConditions();
  conditions.tokens = 1e11;
  const auto made = CaseOf("llama3-8b", "dgx-h100", 16, 4, 512, 8192);
  const auto other = CaseOf("llama3-8b", "dgx-h100", 16, 4, 96, 8192);
  const auto any = [](const RunEstimate&) { return true; };
  double values[2];
  for (const int first : {0, 1}) {
    RunValues runs(conditions, Objective::kTime, {}, any);
    runs.SetFastest(made->job, made->prediction);
    if (first == 1) runs.Of(other->job, 128, 1);
    values[first] = runs.Of(made->job, 128, 4.2);
  }
  EXPECT_EQ(values[0], values[1]);
}

}  // namespace
}  // namespace orrery
