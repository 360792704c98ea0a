// SPDX-License-Identifier: Apache-2.0
// CPU ranks train with products in 8 and 4 bits: codes in memory, the rounding of the reference interpreter, the same
// numbers in every layout whose blocks are alike, and a loss that stays near that of plain training.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>

#include "tests/interpreter/interpreter.h"
#include "tests/parity/jobs.h"
#include "tests/runtime/single.h"

namespace orrery::runtime_test {
namespace {

constexpr Fp8 kSmall[] = {Fp8::kDelayed, Fp8::kCurrent, Fp8::kMxfp8, Fp8::kNvfp4};

parity::Job SmallJob(Fp8 recipe) {
  return InPrecision(parity::LowPrecisionLlama(recipe, 2), Precision::kFp32);
}

Strategy Layout(int tp, int pp, int dp, int zero) {
  Strategy s;
  s.tp = tp;
  s.pp = pp;
  s.dp = dp;
  s.zero = zero;
  s.micro_batch = 1;
  s.sequence_parallel = tp > 1;
  return s;
}

// A value that lies at the edge of two codes in double may fall on the other side in single precision.
TEST(LowPrecision, CpuRanksRoundAsTheInterpreter) {
  for (const Fp8 recipe : kSmall) {
    const parity::Job job = SmallJob(recipe);
    SCOPED_TRACE(job.key);
    const ir::Plan plan = LowerFor(job, Layout(1, 1, 2, 1));
    const Trained run = Train(plan, job, 3);
    ASSERT_EQ(run.failure, "");
    interpreter::RunOptions options;
    options.data.vocab = job.model.vocab;
    interpreter::Interpreter reference(plan, options);
    for (const launch::StepRecord& step : run.steps) {
      const interpreter::StepResult due = reference.Step();
      EXPECT_NEAR(step.result.loss / due.loss, 1, 2e-4);
      EXPECT_NEAR(step.result.gradient_norm / due.gradient_norm, 1, 1e-2);
    }
  }
}

TEST(LowPrecision, LayoutsOfEqualBlocksTrainAlike) {
  for (const Fp8 recipe : kSmall) {
    const parity::Job job = SmallJob(recipe);
    const Trained one = Train(LowerFor(job, Layout(1, 1, 1, 0)), job, 5);
    ASSERT_EQ(one.failure, "");
    const bool by_part = recipe == Fp8::kCurrent || recipe == Fp8::kNvfp4;
    for (const Strategy& s : {Layout(1, 1, 2, 0), Layout(1, 2, 1, 0), Layout(1, 1, 2, 3),
                              Layout(by_part ? 1 : 2, 1, 2, 1)}) {
      const Trained run = Train(LowerFor(job, s), job, 5);
      ASSERT_EQ(run.failure, "");
      const Deviation deviation = Compare(run, one);
      EXPECT_LT(deviation.loss, 2e-4)
          << job.key << " tp " << s.tp << " pp " << s.pp << " dp " << s.dp << " zero " << s.zero;
    }
  }
}

Strategy Held(Strategy s) {
  s.fp8_weights = true;
  return s;
}

// Trained weights in 8 bits: every layout as the interpreter and as one rank, where each step casts its weights again, and a
// byte of each on the rank.
TEST(LowPrecision, WeightsHeldInEightBitsTrainAlike) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kCurrent}) {
    const parity::Job job = SmallJob(recipe);
    SCOPED_TRACE(job.key);
    const Trained one = Train(LowerFor(job, Held(Layout(1, 1, 1, 0))), job, 5);
    ASSERT_EQ(one.failure, "");
    const ir::Plan plan = LowerFor(job, Held(Layout(1, 1, 2, 1)));
    interpreter::RunOptions options;
    options.data.vocab = job.model.vocab;
    interpreter::Interpreter reference(plan, options);
    for (const launch::StepRecord& step : Train(plan, job, 3).steps)
      EXPECT_NEAR(step.result.loss / reference.Step().loss, 1, 2e-4);
    const bool by_part = recipe == Fp8::kCurrent;
    for (const Strategy& s : {Layout(1, 1, 2, 0), Layout(1, 2, 1, 0), Layout(1, 1, 2, 3),
                              Layout(by_part ? 1 : 2, 1, 2, 2)}) {
      const Trained run = Train(LowerFor(job, Held(s)), job, 5);
      ASSERT_EQ(run.failure, "");
      EXPECT_LT(Compare(run, one).loss, 2e-4)
          << "tp " << s.tp << " pp " << s.pp << " dp " << s.dp << " zero " << s.zero;
    }
    if (recipe == Fp8::kCurrent) {
      EXPECT_LT(Compare(Train(LowerFor(job, Layout(1, 1, 1, 0)), job, 5), one).loss, 2e-4);
    }
    int64_t bytes = 0;
    for (const ir::Buffer& buffer : plan.programs[0].buffers)
      if (buffer.unit >= 0 && buffer.name.starts_with("W.q"))
        bytes += buffer.elements * ir::DtypeBytes(buffer.dtype);
    EXPECT_EQ(bytes, 2 * 6 * job.model.hidden * job.model.hidden);
  }
}

// MXFP8: the casts of weights that every layout gathers once a step are those of one rank, which has them in 16 bits.
TEST(LowPrecision, WeightsGatheredOnceAreCastAlike) {
  parity::Job job = SmallJob(Fp8::kMxfp8);
  const Trained one = Train(LowerFor(job, Layout(1, 1, 1, 0)), job, 5);
  ASSERT_EQ(one.failure, "");
  for (const Strategy& s :
       {Layout(1, 1, 2, 1), Layout(1, 1, 4, 2), Layout(2, 1, 2, 2), Layout(1, 2, 2, 1)}) {
    const ir::Plan plan = LowerFor(job, Held(s));
    const Trained run = Train(plan, job, 5);
    ASSERT_EQ(run.failure, "");
    EXPECT_LT(Compare(run, one).loss, 2e-4)
        << "tp " << s.tp << " pp " << s.pp << " dp " << s.dp << " zero " << s.zero;
    // Between steps a rank has its shard of the matrices alone.
    for (const ir::Buffer& buffer : plan.programs[0].buffers)
      EXPECT_FALSE(buffer.name.starts_with("W.q") && buffer.unit >= 0) << buffer.name;
  }
}

parity::Job PackedJob(LoraBase base) {
  parity::Job job = InPrecision(parity::LowPrecisionLlama(Fp8::kMxfp8, 4), Precision::kFp32);
  job.key += std::string(" on ") + NameIn(kLoraBaseNames, base);
  job.work.fp8 = base == LoraBase::kFp8 ? Fp8::kDelayed : Fp8::kOff;
  job.work.lora = {2, 4, kLoraAll, base};
  job.work.seq_len = 32;
  return job;
}

// Frozen weights in few bits: codes in memory, as many bytes as they should be.
TEST(PackedWeights, CpuRanksTrainAlikeAndAsTheInterpreter) {
  for (const LoraBase base : {LoraBase::kInt8, LoraBase::kNf4, LoraBase::kFp8}) {
    const parity::Job job = PackedJob(base);
    SCOPED_TRACE(job.key);
    const ir::Plan plan = LowerFor(job, Layout(1, 1, 1, 0));
    const Trained one = Train(plan, job, 5);
    ASSERT_EQ(one.failure, "");
    interpreter::RunOptions options;
    options.data.vocab = job.model.vocab;
    interpreter::Interpreter reference(plan, options);
    for (const launch::StepRecord& step : one.steps)
      EXPECT_NEAR(step.result.loss / reference.Step().loss, 1,
                  base == LoraBase::kFp8 ? 2e-4 : 1e-5);
    for (const Strategy& s : {Layout(1, 2, 1, 0), Layout(1, 1, 2, 3), Layout(2, 1, 2, 1)}) {
      const Trained run = Train(LowerFor(job, s), job, 5);
      ASSERT_EQ(run.failure, "");
      EXPECT_LT(Compare(run, one).loss, base == LoraBase::kFp8 ? 2e-4 : 1e-5)
          << "tp " << s.tp << " pp " << s.pp << " dp " << s.dp << " zero " << s.zero;
    }
    double bytes = 0;
    for (const ir::Buffer& buffer : plan.programs[0].buffers)
      if (buffer.unit >= 0 && buffer.cls == ir::BufferClass::kParam &&
          buffer.name.starts_with("W.q"))
        bytes += static_cast<double>(buffer.elements * ir::DtypeBytes(buffer.dtype));
    // Two layers of qkv 2 w w, o w w, fc1 2 w w, fc2 w w.
    const double w = static_cast<double>(job.model.hidden);
    EXPECT_EQ(bytes, 2 * 6 * w * w * (base == LoraBase::kNf4 ? 0.5 : 1));
  }
}

TEST(LowPrecision, LossCurvesStayNearPlainTraining) {
  constexpr int kSteps = 40;
  for (const Fp8 recipe : kSmall) {
    parity::Job job = SmallJob(recipe);
    const Strategy one = Layout(1, 1, 1, 0);
    const Trained low = Train(LowerFor(job, one), job, kSteps);
    job.work.fp8 = Fp8::kOff;
    const Trained plain = Train(LowerFor(job, one), job, kSteps);
    ASSERT_EQ(low.failure + plain.failure, "");
    double worst = 0;
    for (int i = 0; i < kSteps; ++i) {
      const double ratio = low.steps[i].result.loss / plain.steps[i].result.loss;
      worst = std::max(worst, std::abs(ratio - 1));
    }
    std::cout << job.key << ": loss " << plain.steps.front().result.loss << " to "
              << plain.steps.back().result.loss << " plain, " << low.steps.back().result.loss
              << " cast; at most " << 100 * worst << " % apart\n";
    EXPECT_GT(worst, 0) << job.key;  // casts do round
    EXPECT_LT(worst, 0.005) << job.key;
  }
}

}  // namespace
}  // namespace orrery::runtime_test
