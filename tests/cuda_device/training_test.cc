// SPDX-License-Identifier: Apache-2.0
// Whole training steps on a GPU against the CPU device.
#include <gtest/gtest.h>

#include "runtime/data/synthetic.h"
#include "runtime/device/cuda/device.h"
#include "runtime/launch/local_ranks.h"
#include "tests/cuda_device/device_call.h"
#include "tests/runtime/single.h"

namespace orrery {
namespace {

using parity::Job;
using runtime_test::Deviation;
using runtime_test::Trained;

class Keep : public launch::StepHook {
 public:
  explicit Keep(Trained* run) : run_(run) {}
  void AfterStep(exec::Executor*, const launch::StepRecord& record) override {
    run_->steps.push_back(record);
  }

 private:
  Trained* run_;
};

Trained TrainOnGpu(const ir::Plan& plan, const Job& job, int64_t steps) {
  Trained run;
  Keep keep(&run);
  run.failure = launch::RunLocalRanks(1, [&](comm::Endpoint* endpoint) {
    train::DataSpec spec;
    spec.vocab = job.model.vocab;
    spec.token_types = std::max<int64_t>(job.model.token_types, 1);
    train::SyntheticSource data(spec);
    const auto device = cuda::OpenDevice(0);
    launch::TrainOptions options;
    options.steps = steps;
    options.execute.poison = true;
    options.execute.initial_loss_scale = job.initial_loss_scale;
    options.execute.accelerator = device.get();
    launch::TrainRank(plan, endpoint, &data, options, {&keep});
  });
  return run;
}

void ExpectLikeTheCpu(const Job& job, double tolerance) {
  const ir::Plan plan = runtime_test::LowerFor(job, runtime_test::OneRank(job));
  const Trained cpu = runtime_test::Train(plan, job, runtime_test::kTrainedSteps);
  const Trained gpu = TrainOnGpu(plan, job, runtime_test::kTrainedSteps);
  ASSERT_EQ(cpu.failure, "");
  ASSERT_EQ(gpu.failure, "");
  const Deviation deviation = runtime_test::Compare(gpu, cpu);
  EXPECT_LE(deviation.loss, tolerance);
  EXPECT_LE(deviation.norm, tolerance);
}

TEST(GpuTraining, EveryFamilyHasTheLossesOfTheCpu) {
  SKIP_WITHOUT_GPU();
  for (const Job& family : {parity::TinyGpt(true), parity::TinyLlama(), parity::TinyBert(),
                            parity::TinyT5(), parity::TinyMlp()}) {
    SCOPED_TRACE(family.key);
    ExpectLikeTheCpu(runtime_test::InPrecision(family, Precision::kFp32), 1e-4);
    ExpectLikeTheCpu(runtime_test::InPrecision(family, Precision::kBf16), 2e-2);
  }
}

}  // namespace
}  // namespace orrery
