// SPDX-License-Identifier: Apache-2.0
// Correct plans pass, over options and models; the executor's window decides about deadlock; verify
// is quick.
#include "model/plan/ir/verify.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "model/arch/catalogue.h"
#include "tests/ir_verify/planting.h"
#include "tests/ir_verify/strategies.h"

namespace orrery::ir {
namespace {

void ExpectClean(const Plan& plan, int window = 0) {
  for (const Finding& finding : Verify(plan, VerifyOptions{window})) {
    ADD_FAILURE() << plan.title << ": " << FaultName(finding.fault) << " stage " << finding.stage
                  << " " << finding.where << ": " << finding.message;
  }
}

TEST(Verify, PassesRandomPlans) {
  for (const Strategy& strategy : DrawStrategies(600, 5)) {
    ExpectClean(LowerTiny(strategy, 4 * strategy.data_parallel()));
    if (HasFailure()) return;
  }
}

TEST(Verify, ContractedAndFullDeadlockRunsAgree) {
  for (const Strategy& strategy : DrawStrategies(60, 6)) {
    ExpectClean(LowerTiny(strategy, 4 * strategy.data_parallel()),
                1 << 20);  // a bound that never binds
    if (HasFailure()) return;
  }
}

TEST(Verify, PassesEveryModelOfTheCatalogue) {
  for (const std::string& name : ModelNames()) {
    const LoadedModel model = LoadModel(name);
    Workload work{.seq_len = 16, .global_batch = 4};
    Strategy strategy;
    strategy.dp = 2;
    for (int zero = 0; zero < 4; ++zero) {
      strategy.zero = zero;
      LowerResult result = Lower(model.spec, work, strategy);
      if (const Plan* plan = std::get_if<Plan>(&result)) ExpectClean(*plan);
    }
  }
}

bool Deadlocks(const Plan& plan, int window) {
  for (const Finding& finding : Verify(plan, VerifyOptions{window})) {
    EXPECT_EQ(finding.fault, Fault::kDeadlock);
    return true;
  }
  return false;
}

// The least window (powers of two) with which an executor gets through; a wider one never hurts.
int LeastWindow(const Plan& plan) {
  int least = 1;
  while (Deadlocks(plan, least)) least *= 2;
  for (int wider = least; wider <= 4096; wider *= 2)
    EXPECT_FALSE(Deadlocks(plan, wider)) << plan.title << " window " << wider;
  return least;
}

TEST(Verify, FindsTheWindowThatAnExecutorNeeds) {
  Strategy strategy;
  strategy.pp = 4;
  strategy.schedule = PipelineSchedule::kGpipe;
  EXPECT_EQ(LeastWindow(LowerTiny(strategy, 8)), 1);
  strategy.schedule = PipelineSchedule::k1F1B;
  const int window_1f1b = LeastWindow(LowerTiny(strategy, 8));
  EXPECT_GT(window_1f1b, 1);  // a blocking executor gets stuck
  strategy.pp = 2;
  strategy.vpp = 2;
  strategy.schedule = PipelineSchedule::kInterleaved;
  const int window_interleaved = LeastWindow(LowerTiny(strategy, 8));
  EXPECT_GT(window_interleaved, 1);
  fmt::print("least window: GPipe 1, 1F1B {}, interleaved {}\n", window_1f1b, window_interleaved);
}

// How long that takes is a figure of bench_ir.
TEST(Verify, Gpt3On4096GpusIsClean) {
  Workload work{.seq_len = 2048, .global_batch = 192 * 32};
  Strategy strategy;
  strategy.tp = 8;
  strategy.pp = 16;
  strategy.dp = 32;
  strategy.zero = 1;
  const LowerResult result = Lower(LoadModel("gpt3-175b").spec, work, strategy);
  ExpectClean(std::get<Plan>(result));
}

// As many slots as a small V needs are enough for a large one: no two stages wait for each other.
TEST(Verify, LargeVsAreClean) {
  ModelSpec model = TinyGpt();
  model.layers = 64;
  Strategy strategy;
  strategy.vpp = 2;
  strategy.schedule = PipelineSchedule::kZeroBubbleV;
  for (const int stages : {3, 8, 32}) {
    strategy.pp = stages;
    for (const int micro_batches : {1, stages, 3 * stages + 1})
      ExpectClean(std::get<Plan>(Lower(model, TinyWork(micro_batches), strategy)));
  }
}

}  // namespace
}  // namespace orrery::ir
