// SPDX-License-Identifier: Apache-2.0
// Whole training steps on emulated kernels, through the executor's path for devices, against the CPU device.
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/data/synthetic.h"
#include "runtime/launch/local_ranks.h"
#include "tests/cuda_emulation/emulated_device.h"
#include "tests/parity/grid.h"
#include "tests/runtime/single.h"

namespace orrery {
namespace {

using parity::Job;
using runtime_test::Deviation;
using runtime_test::Trained;

constexpr int64_t kSteps = 2;
constexpr int kSamples = 4;  // of a step: fibers are slow

Job Small(Job job, Precision precision) {
  job.work.global_batch = kSamples;
  return runtime_test::InPrecision(job, precision);
}

class Keep : public launch::StepHook {
 public:
  explicit Keep(Trained* run) : run_(run) {}
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override {
    if (executor->image().rank != 0) return;
    run_->steps.push_back(record);
    for (const exec::OpSpan& span : executor->spans()) EXPECT_LE(span.begin, span.end);
  }

 private:
  Trained* run_;
};

// One rank: everything as late as streams and events allow. More: at once, since ranks talk in host memory.
Trained TrainEmulated(const ir::Plan& plan, const Job& job, EmulatedCounts* counts = nullptr) {
  Trained run;
  Keep keep(&run);
  const bool alone = plan.mesh.ranks() == 1;
  run.failure = launch::RunLocalRanks(plan.mesh.ranks(), [&](comm::Endpoint* endpoint) {
    train::DataSpec spec;
    spec.vocab = job.model.vocab;
    spec.token_types = std::max<int64_t>(job.model.token_types, 1);
    train::SyntheticSource data(spec);
    const auto device = OpenEmulatedDevice(alone, 3, alone ? counts : nullptr);
    launch::TrainOptions options;
    options.steps = kSteps;
    options.execute.poison = true;
    options.execute.initial_loss_scale = job.initial_loss_scale;
    options.execute.accelerator = device.get();
    launch::TrainRank(plan, endpoint, &data, options, {&keep});
  });
  return run;
}

void ExpectLikeTheCpu(const Job& job, const Strategy& strategy, double tolerance,
                      EmulatedCounts* counts = nullptr) {
  const ir::Plan plan = runtime_test::LowerFor(job, strategy);
  const Trained cpu = runtime_test::Train(plan, job, kSteps),
                found = TrainEmulated(plan, job, counts);
  ASSERT_EQ(cpu.failure, "");
  ASSERT_EQ(found.failure, "");
  const Deviation deviation = runtime_test::Compare(found, cpu);
  EXPECT_LE(deviation.loss, tolerance);
  EXPECT_LE(deviation.norm, tolerance);
}

TEST(CudaTraining, EveryFamilyHasTheLossesOfTheCpu) {
  for (const Job& family : {parity::TinyGpt(true), parity::TinyLlama(), parity::TinyBert(),
                            parity::TinyT5(), parity::TinyMlp()}) {
    const Job job = Small(family, Precision::kFp32);
    SCOPED_TRACE(job.key);
    ExpectLikeTheCpu(job, runtime_test::OneRank(job), 1e-5);
  }
}

// The device copies to memory of the host and back, and the CPU updates in the order of a stream.
TEST(CudaTraining, StatesAndActivationsOnTheHost) {
  const Job job = Small(parity::TinyGpt(true), Precision::kFp32);
  Strategy s = runtime_test::OneRank(job);
  s.offload = {1, true};
  ExpectLikeTheCpu(job, s, 1e-5);
}

TEST(CudaTraining, EveryPrecisionAndOptimizer) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const Job job = Small(parity::TinyGpt(true), precision);
    ExpectLikeTheCpu(job, runtime_test::OneRank(job), 2e-2);
  }
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kAdam, Optimizer::kLamb}) {
    Job job = Small(parity::TinyGpt(false), Precision::kFp32);
    job.work.optimizer = optimizer;
    ExpectLikeTheCpu(job, runtime_test::OneRank(job), 1e-5);
  }
}

TEST(CudaTraining, PlansOfSeveralRanks) {
  const Job job = Small(parity::TinyGpt(true), Precision::kFp32);
  for (const parity::Case& c : parity::Sample(parity::Grid(job, 2, 7), 2, 11)) {
    SCOPED_TRACE(parity::Describe(c));
    ExpectLikeTheCpu(job, c.strategy, 1e-5);
  }
}

TEST(CudaTraining, GeluIsFusedWithItsProducts) {
  EmulatedCounts counts;
  const Job job = Small(parity::TinyGpt(true), Precision::kFp32);
  ExpectLikeTheCpu(job, runtime_test::OneRank(job), 1e-5, &counts);
  EXPECT_GT(counts.fused, 0);
  EXPECT_GT(counts.ops, counts.fused);
}

}  // namespace
}  // namespace orrery
