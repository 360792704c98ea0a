// SPDX-License-Identifier: Apache-2.0
// Frozen weights with adapters: every layout equals one rank, gradients equal finite differences, and adapters that start at
// zero leave the model as it is. Built with ORRERY_PARITY_SAMPLE, a part of the plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "tests/parity/grid.h"
#include "tests/parity/jobs.h"

namespace orrery::parity {
namespace {

constexpr uint64_t kSeed = 158;
#ifdef ORRERY_PARITY_SAMPLE
constexpr std::size_t kPlans = ORRERY_PARITY_SAMPLE;  // of each job and number of ranks
#else
constexpr std::size_t kPlans = 300;
#endif

Job WithAdapters(Job job, int rank, LoraTargets targets) {
  job.key += " lora " + std::to_string(rank) + " " + LoraTargetWords(targets);
  job.work.lora = {rank, 2.0 * rank + 1, targets};
  return job;
}

using Cases = std::vector<Case> (*)(const Job&, int, uint64_t);
void ExpectParity(const Job& job, std::initializer_list<int> ranks, Cases grid) {
  std::vector<Case> cases;
  for (const int n : ranks) {
    const std::vector<Case> some = Sample(grid(job, n, kSeed), kPlans, kSeed);
    EXPECT_FALSE(some.empty()) << job.key << " on " << n << " ranks";
    cases.insert(cases.end(), some.begin(), some.end());
  }
  const Summary summary = RunAll(cases);
  std::cout << summary.Text(job.key);
  EXPECT_TRUE(summary.failures.empty());
}

TEST(Adapters, EveryLayoutEqualsOneRank) {
  ExpectParity(WithAdapters(TinyLlama(), 3, kLoraAll), {1, 2, 4, 8}, Grid);
  ExpectParity(WithAdapters(TinyGpt(true), 2, kLoraAll), {2, 4}, Grid);
}

// Both matrices are cut over tensor ranks, and outputs are gathered, or exchanged for rows (the grid draws which).
TEST(Adapters, CutByColumns) {
  ExpectParity(WithAdapters(TinyLlama(), 8, kLoraAll), {2, 4, 8}, Grid);
  ExpectParity(WithAdapters(TinyGptj(), 4, kLoraAll), {2, 4}, Grid);
  ExpectParity(WithAdapters(TinyOlmo(), 4, kLoraQkv | kLoraFc2), {4}, Grid);
  ExpectParity(WithAdapters(TinyLlama(), 4, kLoraAll), {4, 8}, ContextGrid);
}

TEST(Adapters, CutByColumnsDivideByTensorRanks) {
  const Job job = WithAdapters(TinyLlama(), 6, kLoraAll);
  Strategy s;
  s.tp = 4;
  s.adapter_split = AdapterSplit::kColumns;
  const auto refusal = CheckStrategy(job.model, job.work, s);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, "rank 6 of the adapters does not divide by tp 4");
  s.tp = 2;
  EXPECT_FALSE(CheckStrategy(job.model, job.work, s));
}

// The backward pass ends in the first layer in front of another map each time.
TEST(Adapters, EveryChoiceOfMaps) {
  for (const int targets : {1, 2, 4, 8, 3, 10, 12})
    ExpectParity(WithAdapters(TinyLlama(), 2, static_cast<LoraTargets>(targets)), {2, 4}, Grid);
}

// Queries and values alone are PEFT's default for a Llama.
TEST(Adapters, PartsOfAProduct) {
  constexpr unsigned kEach = kLoraPartsOfQkv | kLoraProj | kLoraPartsOfFc1 | kLoraFc2;
  for (const unsigned targets : {unsigned{kLoraQ | kLoraV}, unsigned{kLoraK}, kEach,
                                 unsigned{kLoraUp}, unsigned{kLoraGate | kLoraFc2 | kLoraQkv}})
    ExpectParity(WithAdapters(TinyLlama(), 2, static_cast<LoraTargets>(targets)), {2, 4}, Grid);
  ExpectParity(WithAdapters(TinyGpt(true), 2, kLoraQ | kLoraV), {2}, Grid);
  ExpectParity(WithAdapters(TinyGptj(), 4, kLoraQ | kLoraV), {4}, Grid);
  ExpectParity(WithAdapters(TinyGemma(), 4, kLoraPartsOfQkv | kLoraUp), {4}, Grid);
  ExpectParity(WithAdapters(TinyLlama(), 8, kLoraQ | kLoraV | kLoraGate), {4}, ContextGrid);
}

TEST(Adapters, OtherBlocks) {
  for (const Job& job : {TinyGemma(), TinyOlmo(), TinyNeox(), TinyGptj()}) {
    for (const LoraTarget targets : {kLoraAll, kLoraFc2})
      ExpectParity(WithAdapters(job, 2, targets), {2, 4}, Grid);
  }
}

// Nothing is trained in front of the first layer: no gradient goes back to where it came from.
TEST(Adapters, UnevenStages) {
  const Job job = WithAdapters(TinyLlama(), 2, kLoraAll);
  std::vector<Case> cases;
  for (const std::vector<int>& layers :
       {std::vector{1, 3}, {4, 0}, {2, 1, 1}, {1, 3, 0}, {1, 1, 2, 0}}) {
    for (const int zero : {0, 1, 2}) {
      Case c{&job, {}};
      c.strategy.pp = static_cast<int>(layers.size());
      c.strategy.dp = zero > 0 ? 2 : 1;
      c.strategy.zero = zero;
      c.strategy.micro_batch = 2;
      c.strategy.layout = std::make_shared<const std::vector<int>>(layers);
      cases.push_back(c);
    }
  }
  const Summary summary = RunAll(cases);
  std::cout << summary.Text(job.key + ", uneven stages");
  EXPECT_TRUE(summary.failures.empty());
  Strategy empty;
  empty.pp = 2;
  empty.layout = std::make_shared<const std::vector<int>>(std::vector<int>{0, 4});
  const auto refusal = CheckStrategy(job.model, job.work, empty);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->reason, "a first stage without layers has no adapter to train");
}

TEST(Adapters, SharedSequences) {
  ExpectParity(WithAdapters(TinyLlama(), 2, kLoraAll), {2, 4, 8}, ContextGrid);
}

TEST(Adapters, DropoutDropsTheSameElements) {
  Job job = WithAdapters(TinyGpt(true), 2, kLoraQkv | kLoraFc2);
  job.key += " dropout";
  job.work.dropout = 0.1;
  ExpectParity(job, {2, 4}, Grid);
}

// Casts that round nothing.
TEST(Adapters, BesideProductsInLowPrecision) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kCurrent, Fp8::kMxfp8, Fp8::kNvfp4}) {
    Job job = WithAdapters(LowPrecisionLlama(recipe), 2, kLoraAll);
    job.exact_casts = true;
    ExpectParity(job, {1, 2, 4}, Grid);
  }
}

struct OneRank {
  ir::Plan plan;
  interpreter::Interpreter run;

  OneRank(const Job& job, ir::Init init) : plan(PlanOf(job, init)), run(plan, Options(job)) {}

 private:
  static ir::Plan PlanOf(const Job& job, ir::Init init) {
    LowerOptions options;
    options.uniform_dtype = ir::Dtype::kF32;
    options.optimizer = job.optimizer;
    options.adapter_init = init;
    Strategy one;
    one.micro_batch = static_cast<int>(job.work.global_batch);
    return std::get<ir::Plan>(Lower(job.model, job.work, one, options));
  }
  static interpreter::RunOptions Options(const Job& job) {
    interpreter::RunOptions options;
    options.data.vocab = job.model.vocab;
    return options;
  }
};

void ExpectGradientsOfTheLoss(const Job& job) {
  OneRank trained(job, ir::Init::kNormal);
  const double loss = trained.run.Step().loss;
  for (int64_t layer = 0; layer < job.model.layers; ++layer) {
    const std::string unit = "a" + std::to_string(layer);
    const std::vector<double> gradient = trained.run.Read(0, "G." + unit);
    for (std::size_t at = 1; at < gradient.size(); at += gradient.size() / 9) {
      constexpr double kStep = 1e-4;
      double sides[2];
      for (const int side : {0, 1}) {
        OneRank moved(job, ir::Init::kNormal);
        std::vector<double> weights = moved.run.Read(0, "W." + unit);
        weights[at] += side == 0 ? -kStep : kStep;
        moved.run.Write(0, "W." + unit, weights);
        sides[side] = moved.run.Step().loss;
      }
      EXPECT_NEAR((sides[1] - sides[0]) / (2 * kStep), gradient[at], 1e-6 * loss)
          << unit << " element " << at;
    }
  }
}

TEST(Adapters, GradientsAreThoseOfTheLoss) {
  ExpectGradientsOfTheLoss(WithAdapters(TinyLlama(), 3, kLoraAll));
  ExpectGradientsOfTheLoss(WithAdapters(TinyLlama(), 3, kLoraQ | kLoraV | kLoraUp));
}

TEST(Adapters, StartAtTheFrozenModelAndLeaveItAsItIs) {
  const Job frozen = TinyLlama();
  const Job job = WithAdapters(frozen, 3, kLoraAll);
  OneRank plain(frozen, ir::Init::kZeros), trained(job, ir::Init::kZeros);
  const std::vector<double> before = trained.run.Read(0, "W.u1");
  EXPECT_EQ(trained.run.Step().loss, plain.run.Step().loss);
  const double second = trained.run.Step().loss;
  EXPECT_EQ(trained.run.Read(0, "W.u1"), before);
  EXPECT_GT(second, 0);
  // Gradients and moments belong to adapters alone.
  for (const ir::Buffer& buffer : trained.plan.programs[0].buffers) {
    if (buffer.cls != ir::BufferClass::kGrad && buffer.cls != ir::BufferClass::kOptimizer) continue;
    EXPECT_EQ(trained.plan.programs[0].units[static_cast<std::size_t>(buffer.unit)].name.front(),
              'a')
        << buffer.name;
  }
}

}  // namespace
}  // namespace orrery::parity
