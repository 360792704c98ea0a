// SPDX-License-Identifier: Apache-2.0
// Training with graphs against training without, to the last bit: what changes from step to step is not frozen in them.
#include <gtest/gtest.h>

#include <algorithm>

#include "runtime/data/synthetic.h"
#include "runtime/launch/local_ranks.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/parity/grid.h"
#include "tests/runtime/single.h"

namespace orrery {
namespace {

using parity::Job;
using runtime_test::Trained;

// One run plainly, one captured, two launched.
constexpr int64_t kSteps = 4;

// A learning rate that changes: the next step's, in the ops themselves.
class Schedule : public launch::StepHook {
 public:
  Schedule(ir::Plan* plan, Trained* run) : plan_(plan), run_(run) {}
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    if (executor->image().rank != 0) return;
    run_->steps.push_back(record);
    if (plan_->mesh.ranks() > 1) return;
    for (ir::Program& program : plan_->programs)
      for (ir::Block& block : program.blocks)
        for (ir::Op& op : block.ops)
          if (op.attrs.Get(ir::Attr::kLr) > 0)
            op.attrs.Set(ir::Attr::kLr, op.attrs.Get(ir::Attr::kLr) * 0.7);
  }

 private:
  ir::Plan* plan_;
  Trained* run_;
};

Trained TrainWith(ir::Plan plan, const Job& job, Graphs graphs, EmulatedCounts* counts) {
  Trained run;
  Schedule schedule(&plan, &run);
  const bool alone = plan.mesh.ranks() == 1;
  run.failure = launch::RunLocalRanks(plan.mesh.ranks(), [&](comm::Endpoint* endpoint) {
    train::DataSpec spec;
    spec.vocab = job.model.vocab;
    spec.token_types = std::max<int64_t>(job.model.token_types, 1);
    train::SyntheticSource data(spec);
    EmulatedCounts of_rank;
    const auto device = OpenEmulatedDevice(alone, 3, &of_rank, graphs);
    launch::TrainOptions options;
    options.steps = kSteps;
    options.execute.poison = true;
    options.execute.marks = false;
    options.execute.initial_loss_scale = job.initial_loss_scale;
    options.execute.accelerator = device.get();
    launch::TrainRank(plan, endpoint, &data, options, {&schedule});
    if (endpoint->rank() == 0) *counts = of_rank;
  });
  return run;
}

// Four micro-batches of one sample.
Job Changing(Job job, Precision precision) {
  job.work.global_batch = 4;
  job.work.optimizer = Optimizer::kAdam;
  job.work.dropout = 0.1;
  return runtime_test::InPrecision(job, precision);
}

void ExpectSame(const Trained& with, const Trained& without) {
  ASSERT_EQ(with.failure, "");
  ASSERT_EQ(without.failure, "");
  ASSERT_EQ(with.steps.size(), static_cast<size_t>(kSteps));
  ASSERT_EQ(without.steps.size(), static_cast<size_t>(kSteps));
  for (size_t s = 0; s < with.steps.size(); ++s) {
    EXPECT_EQ(with.steps[s].result.loss, without.steps[s].result.loss) << "step " << s + 1;
    EXPECT_EQ(with.steps[s].result.gradient_norm, without.steps[s].result.gradient_norm)
        << "step " << s + 1;
  }
}

void ExpectGraphsChangeNothing(const Job& job, const Strategy& strategy) {
  const ir::Plan plan = runtime_test::LowerFor(job, strategy);
  EmulatedCounts with, without;
  ExpectSame(TrainWith(plan, job, Graphs::kOn, &with),
             TrainWith(plan, job, Graphs::kOff, &without));
  EXPECT_EQ(without.launches, 0);
  EXPECT_GT(with.captures, 0);
  // Run plainly in the first step, captured in the second, launched from then on.
  // Micro-batches whose ops and operands are equal share one.
  EXPECT_GE(with.launches, (kSteps - 1) * with.captures);
  EXPECT_EQ(with.refusals, 0);
}

TEST(CudaGraphs, LossesAreTheSameToTheLastBit) {
  for (const Job& family : {parity::TinyGpt(true), parity::TinyLlama()}) {
    const Job job = Changing(family, Precision::kFp32);
    SCOPED_TRACE(job.key);
    Strategy strategy = runtime_test::OneRank(job);
    strategy.micro_batch = 1;
    ExpectGraphsChangeNothing(job, strategy);
  }
}

TEST(CudaGraphs, LossScalingAndHalfPrecision) {
  const Job job = Changing(parity::TinyGpt(true), Precision::kFp16);
  Strategy strategy = runtime_test::OneRank(job);
  strategy.micro_batch = 2;
  ExpectGraphsChangeNothing(job, strategy);
}

TEST(CudaGraphs, PlansOfSeveralRanks) {
  const Job job = Changing(parity::TinyGpt(true), Precision::kFp32);
  for (const parity::Case& c : parity::Sample(parity::Grid(job, 2, 7), 1, 11)) {
    SCOPED_TRACE(parity::Describe(c));
    ExpectGraphsChangeNothing(job, c.strategy);
  }
}

TEST(CudaGraphs, WithoutCaptureOpsRunPlainlyAndItIsSaidOnce) {
  const Job job = Changing(parity::TinyGpt(true), Precision::kFp32);
  Strategy strategy = runtime_test::OneRank(job);
  strategy.micro_batch = 2;
  const ir::Plan plan = runtime_test::LowerFor(job, strategy);
  EmulatedCounts refused, without;
  ExpectSame(TrainWith(plan, job, Graphs::kRefused, &refused),
             TrainWith(plan, job, Graphs::kOff, &without));
  EXPECT_EQ(refused.refusals, 1);
  EXPECT_EQ(refused.launches, 0);
}

}  // namespace
}  // namespace orrery
