// SPDX-License-Identifier: Apache-2.0
// Weights held and gathered in 8 bits: casts that round nothing change nothing; rounded ones give every layout the numbers of
// one rank, and one rank the numbers that it has where each step casts its weights again.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "tests/parity/expect_parity.h"
#include "tests/parity/grid.h"
#include "tests/parity/jobs.h"

namespace orrery::parity {
namespace {

#ifdef ORRERY_PARITY_SAMPLE
constexpr std::size_t kPlans = ORRERY_PARITY_SAMPLE;  // of each recipe and number of ranks
#else
constexpr std::size_t kPlans = 40;
#endif
constexpr uint64_t kSeed = 1524;

Job Coded(Fp8 recipe, int tensor = 2) {
  Job job = LowPrecisionLlama(recipe, tensor);
  job.key += " weights";
  job.fp8_weights = true;
  return job;
}

template <class Keep>
void AddSample(const Job& job, std::vector<Case> legal, const Keep& keep, std::vector<Case>* all) {
  for (Case& c : legal) c.strategy.fp8_weights = true;
  std::erase_if(legal, [&](const Case& c) {
    return !keep(c.strategy) || CheckStrategy(job.model, job.work, c.strategy);
  });
  const std::vector<Case> some = Sample(legal, kPlans, kSeed);
  EXPECT_FALSE(some.empty()) << job.key;
  all->insert(all->end(), some.begin(), some.end());
}

template <class Keep>
std::vector<Case> Plans(const Job& job, std::initializer_list<int> ranks, const Keep& keep) {
  std::vector<Case> all;
  for (const int n : ranks) {
    for (int zero = 0; zero <= 3; ++zero) {
      if (n == 1 && zero > 0) continue;
      AddSample(
          job, Grid(job, n, kSeed),
          [&](const Strategy& s) { return s.zero == zero && (zero == 0 || s.dp > 1) && keep(s); },
          &all);
    }
  }
  return all;
}

TEST(CodedWeights, ExactCastsChangeNothing) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kCurrent}) {
    Job job = Coded(recipe);
    job.key += " exact";
    job.exact_casts = true;
    ExpectParity(job, Plans(job, {1, 2, 4}, [](const Strategy&) { return true; }));
  }
}

// One sequence per micro-batch everywhere; a tensor rank has the scale of its part, unless the scale is the maximum over all
// ranks (delayed) or of blocks.
TEST(CodedWeights, EveryLayoutRoundsAsOneRank) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kCurrent, Fp8::kBlockwise}) {
    const bool large = recipe == Fp8::kBlockwise;
    if (large && kPlans < 12) continue;  // blocks of 128 x 128: left to the long test
    Job job = Coded(recipe);
    job.reference_micro_batch = 1;
    if (large) job.work.global_batch = 2;
    std::vector<Case> cases = Plans(job, {2, 4}, [&](const Strategy& s) {
      return s.micro_batch == 1 && !(recipe == Fp8::kCurrent && s.tp > 1);
    });
    if (large) cases = Sample(cases, 4, kSeed);
    ExpectParity(job, cases);
  }
}

// The smallest layout whose shards cut blocks of 128 x 128: their parts meet in one magnitude.
TEST(CodedWeights, ShardsCutBlocks) {
  Job job = Coded(Fp8::kBlockwise, 1);
  job.key += " on shards";
  job.reference_micro_batch = 1;
  job.work.global_batch = 2;
  Case c{&job, {}};
  c.strategy.dp = 2;
  c.strategy.zero = 1;
  c.strategy.fp8_weights = true;
  ExpectParity(job, {c});
}

TEST(CodedWeights, SharedSequences) {
  Job job = Coded(Fp8::kDelayed);
  job.reference_micro_batch = 1;
  std::vector<Case> cases;
  AddSample(
      job, ContextGrid(job, 4, kSeed),
      [](const Strategy& s) { return s.micro_batch == 1 && s.zero > 0; }, &cases);
  ExpectParity(job, cases);
}

// The master copy is cast with the same scale, whether once behind the update or by each step.
TEST(CodedWeights, AreWhatEachStepWouldCast) {
  Job held = Coded(Fp8::kCurrent), cast = held;
  held.key += " held", cast.key += " cast";
  cast.fp8_weights = false;
  const auto a = Reference(held), b = Reference(cast);
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_EQ(a[step].loss, b[step].loss);
    EXPECT_EQ(a[step].gradient_norm, b[step].gradient_norm);
  }
}

// MXFP8: both casts of 16 bits that are gathered once a step, against one rank that has them.
TEST(CodedWeights, OfMxfp8AreCastFromOneGather) {
  for (const bool exact : {false, true}) {
    Job job = LowPrecisionLlama(Fp8::kMxfp8);
    job.key += exact ? " weights exact" : " weights";
    job.exact_casts = exact;
    job.reference_micro_batch = 1;
    std::vector<Case> cases;
    for (const int ranks : {2, 4}) {
      for (const int zero : {1, 2}) {
        AddSample(
            job, Grid(job, ranks, kSeed),
            [&](const Strategy& s) { return s.micro_batch == 1 && s.zero == zero; }, &cases);
      }
    }
    AddSample(
        job, ContextGrid(job, 4, kSeed),
        [](const Strategy& s) { return s.micro_batch == 1 && s.zero == 1; }, &cases);
    ExpectParity(job, cases);
  }
}

TEST(CodedWeights, RoundAndStayNearPlainTraining) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kCurrent}) {
    Job job = Coded(recipe), plain = job;
    job.key += " on";
    plain.work.fp8 = Fp8::kOff;
    plain.fp8_weights = false;
    plain.key += " off";
    const double loss = Reference(job).back().loss, full = Reference(plain).back().loss;
    EXPECT_NE(loss, full) << job.key;
    EXPECT_NEAR(loss / full, 1, 0.01) << job.key;
    std::cout << job.key << ": loss " << loss << ", without casts " << full << "\n";
  }
}

TEST(CodedWeights, AreRefusedByName) {
  const Job job = Coded(Fp8::kCurrent);
  const auto reason = [&](auto change) {
    Workload work = job.work;
    Strategy s;
    s.fp8_weights = true;
    change(work, s);
    const auto refused = CheckStrategy(job.model, work, s);
    return refused ? refused->reason : "";
  };
  EXPECT_EQ(reason([](auto&, auto&) {}), "");
  EXPECT_EQ(reason([](Workload& w, auto&) { w.fp8 = Fp8::kOff; }),
            "weights held in 8 bits, and products in 16 bits");
  EXPECT_EQ(reason([](Workload& w, auto&) {
              w.lora = {2, 4, kLoraAll};
            }),
            "weights held in 8 bits that adapters freeze");
  EXPECT_EQ(reason([](Workload& w, auto&) { w.master_weights = false; }),
            "weights held in 8 bits without an fp32 master copy");
  EXPECT_EQ(reason([](auto&, Strategy& s) { s.offload.optimizer = 1; }),
            "weights held in 8 bits with states or weights on the host are not lowered");
  EXPECT_EQ(reason([](Workload& w, auto&) { w.fp8 = Fp8::kNvfp4; }),
            "weights held in 4 bits (fp8 nvfp4) are not lowered: flat units have whole bytes");
  EXPECT_EQ(reason([](Workload& w, Strategy& s) {
              w.fp8 = Fp8::kMxfp8;
              s.zero = 3;
              s.dp = 2;
            }),
            "weights held in 8 bits with mxfp8 and ZeRO 3 on 2 shards: both casts come from 16 "
            "bits, which the rank gathers for each pass");
  EXPECT_EQ(reason([](Workload& w, auto&) { w.fp8 = Fp8::kMxfp8; }),
            "weights held in 8 bits with mxfp8 and ZeRO 0 on 1 shards: both casts come from 16 "
            "bits, which the rank has");
}

}  // namespace
}  // namespace orrery::parity
