// SPDX-License-Identifier: Apache-2.0
// What readers and storage deliver to a run: who is named, and what they limit.
#include <gtest/gtest.h>

#include <fstream>

#include "model/provision/long_run.h"
#include "tests/provision/made_up_step.h"

namespace orrery {
namespace {

// S4: BERT-tiny on one Gaudi card: bursts of 6,200 samples/s, 2,000 in the long run.
TEST(Input, ARunThatReadersLimitIsNamed) {
  const auto made = CaseOf("bert-tiny", "aws-dl1", 1, 65536 / 6200.0, 65536, 128);
  made->prediction.strategy.dp = 1;
  Conditions conditions = DefaultConditions();
  conditions.tokens = 1e9;
  EXPECT_FALSE(EstimateRun(conditions, made->job, made->prediction, nullptr).input.bound());
  conditions.input = LoadInput("hdf5-masked");
  const RunEstimate run = EstimateRun(conditions, made->job, made->prediction, nullptr);
  EXPECT_TRUE(run.input.bound());
  EXPECT_EQ(run.input.limit, "readers");
  EXPECT_NEAR(65536 / run.step_seconds, 2000, 1);
  // Eight readers feed eight cards.
  made->prediction.strategy.dp = 8;
  EXPECT_FALSE(EstimateRun(conditions, made->job, made->prediction, nullptr).input.bound());
}

// Its replicas hold the states: a checkpoint is needed where all of them are away, not at each stop.
TEST(LongRun, AShrinkingJobWritesWhatItMayNeed) {
  Conditions conditions = DefaultConditions();
  conditions.tokens = 2e12;
  conditions.recovery = LoadRecovery("elastic");
  conditions.failures.rate = {20, 20, 20};
  const auto run_on = [&](int64_t nodes) {
    const auto made = CaseOf("llama3-8b", "dgx-h100", nodes, 3, 512, 8192);
    return EstimateRun(conditions, made->job, made->prediction, nullptr, 0);
  };
  const RunEstimate many = run_on(64);
  ASSERT_TRUE(many.elastic);
  EXPECT_EQ(many.interval_steps, many.steps);  // at the end: 64 nodes are not all in repair at once
  const double young = YoungInterval(many.stops.between, many.stops.blocking).value;
  EXPECT_LT(1 - many.written, 0.01 * many.stops.blocking.value / young);
  conditions.failures.rate = {100, 100, 100};
  const RunEstimate two = run_on(2);
  ASSERT_TRUE(two.elastic);
  EXPECT_LT(two.interval_steps, two.steps);
  EXPECT_GT(two.between_restores, two.stops.between * 5);
  const auto lost = [&](double interval) {  // to writing and to work done again
    return two.stops.blocking.value / interval + interval / (2 * two.between_restores.value);
  };
  for (const double other : {0.5, 0.8, 1.25, 2.0})
    EXPECT_LT(lost(two.interval.value), lost(two.interval.value * other)) << other;
}

// A slow GPU waits for its input like the others.
TEST(Input, AStragglerDoesNotSlowTheReaders) {
  const auto made = CaseOf("llama3-8b", "dgx-h100", 16, 4, 512, 8192);
  Conditions conditions = DefaultConditions();
  conditions.tokens = 1e12;
  const auto with = [&](double factor, double slower_input) {
    conditions.run.straggler = {factor, factor, factor};
    // Of one replica; a step takes 4 s where readers are faster.
    conditions.input.reader = 512 * 8192 / (4 * slower_input) / 128;
    return EstimateRun(conditions, made->job, made->prediction, nullptr, 2);
  };
  const RunEstimate bound = with(1, 2);
  EXPECT_TRUE(bound.input.bound());
  EXPECT_DOUBLE_EQ(with(1.5, 2).time.value, bound.time.value);
  EXPECT_DOUBLE_EQ(with(1.5, 2).slowest, 1);
  EXPECT_NEAR(with(2.5, 2).Work() / bound.Work(), 1.25, 1e-12);  // slower than its input
  EXPECT_FALSE(with(2.5, 2).input.bound());
  EXPECT_DOUBLE_EQ(with(2.5, 2).slowest, 2.5);
  EXPECT_NEAR(with(1.5, 0.5).Work() / with(1, 0.5).Work(), 1.5, 1e-12);
  const Quote quote = QuoteAt(36);
  for (const double factor : {1.0, 1.5, 2.5}) {
    const RunEstimate run = with(factor, 2);
    conditions.spares = 2;
    const auto least = BoundRuns(conditions, made->job, 4.0 / (512 * 8192), quote);
    ASSERT_EQ(least.size(), 1U);
    EXPECT_LE(least[0].time.value, run.time.value * (1 + 1e-9)) << factor;
  }
  // What the days vary with: the readers' rate is known.
  conditions.run.straggler = {1.0, 1.03, 1.5};
  conditions.failures.rate = {1e-6, 1e-6, 1e-6};
  const RunEstimate fed = EstimateRun(conditions, made->job, made->prediction, nullptr, 2);
  EXPECT_NEAR(fed.high / fed.low, 1, 1e-3);
}

// 1 M tokens/s of 4 bytes; all wait for the slowest node, whose pace the readers need to keep up with.
TEST(Input, ReadRateFollowsFromTheTokensOfTheSlowestNode) {
  const auto made = CaseOf("llama3-8b", "dgx-h100", 16, 4.194304, 512, 8192);
  Conditions conditions = DefaultConditions();
  conditions.tokens = 1e12;
  for (const double factor : {1.0, 1.03, 1.5}) {
    conditions.run.straggler = {factor, factor, factor};
    const RunEstimate run = EstimateRun(conditions, made->job, made->prediction, nullptr);
    EXPECT_NEAR(run.input.taken, 1e6 / factor, 1e-3) << factor;
    EXPECT_NEAR(run.input.read.value, 4e6 / factor, 1e-3) << factor;
  }
}

// It was said twice: that the grade is missing, and that it is ''.
TEST(Facts, AMissingGradeIsSaidOnce) {
  const std::string path = testing::TempDir() + "/ungraded.yaml";
  std::ofstream(path) << "title: mine\ndetection: {value: 2min, source: log}\n"
                         "restart: {value: 7min, evidence: C, source: log}\n"
                         "repair: {value: 24h, evidence: C, source: log}\n";
  try {
    LoadRecovery(path);
    FAIL() << "taken without a grade";
  } catch (const InputError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("evidence"), std::string::npos) << text;
    EXPECT_EQ(text.find("evidence is"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace orrery
