// SPDX-License-Identifier: Apache-2.0
// Frozen weights in 4 and 8 bits under adapters: every layout has the numbers of one rank, with the same rounding.
#include "model/plan/ir/packed.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>

#include "model/plan/lower/names.h"
#include "runtime/exec/initial.h"
#include "tests/parity/grid.h"
#include "tests/parity/jobs.h"

namespace orrery::parity {
namespace {

constexpr uint64_t kSeed = 164;
#ifdef ORRERY_PARITY_SAMPLE
constexpr std::size_t kPlans = ORRERY_PARITY_SAMPLE;  // of each job and number of ranks
#else
constexpr std::size_t kPlans = 60;
#endif
constexpr LoraBase kBases[] = {LoraBase::kInt8, LoraBase::kNf4, LoraBase::kFp8};

// On two tensor ranks a row has two of nf4's blocks on each.
Job Packed(LoraBase base, Fp8 recipe = Fp8::kOff) {
  Job job = LowPrecisionLlama(recipe == Fp8::kBlockwise ? recipe : Fp8::kMxfp8,
                              recipe == Fp8::kBlockwise ? 2 : 4);
  job.key +=
      std::string(" on ") + NameIn(kLoraBaseNames, base) + " for " + NameIn(kFp8Names, recipe);
  job.work.lora = {2, 5, kLoraAll, base};
  job.work.fp8 = recipe;
  if (recipe == Fp8::kOff) job.work.seq_len = 8;
  return job;
}

template <class Keep>
void ExpectParity(const Job& job, std::initializer_list<int> ranks, std::size_t count,
                  const Keep& keep) {
  std::vector<Case> cases;
  for (const int n : ranks) {
    std::vector<Case> legal = Grid(job, n, kSeed);
    std::erase_if(legal, [&](const Case& c) { return !keep(c.strategy); });
    const std::vector<Case> some = Sample(legal, count, kSeed);
    EXPECT_FALSE(some.empty()) << job.key << " on " << n << " ranks";
    cases.insert(cases.end(), some.begin(), some.end());
  }
  const Summary summary = RunAll(cases);
  std::cout << summary.Text(job.key);
  EXPECT_TRUE(summary.failures.empty());
}

TEST(PackedWeights, EveryLayoutEqualsOneRank) {
  for (const LoraBase base : kBases)
    ExpectParity(Packed(base), {1, 2, 4}, kPlans, [](const Strategy&) { return true; });
}

TEST(PackedWeights, SharedSequences) {
  const Job job = Packed(LoraBase::kNf4);
  const std::vector<Case> cases = Sample(ContextGrid(job, 4, kSeed), kPlans, kSeed);
  const Summary summary = RunAll(cases);
  std::cout << summary.Text(job.key + ", shared sequences");
  EXPECT_TRUE(summary.failures.empty());
}

// Products in 8 bits read the codes as they are; activations are cast in blocks that layouts share.
TEST(PackedWeights, AreReadAsTheyAreByProductsInEightBits) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kCurrent, Fp8::kBlockwise}) {
    Job job = Packed(LoraBase::kFp8, recipe);
    job.reference_micro_batch = 1;
    const bool large = recipe == Fp8::kBlockwise;
    if (large && kPlans < 12) continue;  // blocks of 128 x 128: left to the long test
    job.work.global_batch = 2;
    ExpectParity(job, {2}, large ? 1 : std::min<std::size_t>(kPlans, 6), [&](const Strategy& s) {
      return s.micro_batch == 1 && !(recipe == Fp8::kCurrent && s.tp > 1);
    });
  }
}

ir::Plan OneRank(const Job& job) {
  LowerOptions options;
  options.uniform_dtype = ir::Dtype::kF32;
  Strategy one;
  one.micro_batch = static_cast<int>(job.work.global_batch);
  return std::get<ir::Plan>(Lower(job.model, job.work, one, options));
}

// What the products read is the packed form of what they would read without packing.
TEST(PackedWeights, StandForTheWeightsOfThePlainModel) {
  for (const LoraBase base : kBases) {
    const Job job = Packed(base);
    Job plain = job;
    plain.work.lora.base = LoraBase::kPlain;
    const ir::Plan packed_plan = OneRank(job), plain_plan = OneRank(plain);
    int compared = 0;
    for (const ir::Param& param : packed_plan.params) {
      if (param.init != ir::Init::kCodes) continue;
      const auto whole = std::ranges::find(plain_plan.params, param.name, &ir::Param::name);
      ASSERT_NE(whole, plain_plan.params.end()) << param.name;
      EXPECT_EQ(whole->shape, param.of);
      const int64_t rows = param.of[0], width = param.of[1];
      std::vector<double> values(static_cast<std::size_t>(rows * width));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = train::InitialValue(7, *whole, static_cast<int64_t>(i));
      const ir::PackedTensor due = ir::Pack(param.packing, values, rows, width);
      for (std::size_t i = 0; i < due.codes.size(); i += 97)
        EXPECT_EQ(train::InitialValue(7, param, static_cast<int64_t>(i)), due.codes[i]);
      ++compared;
    }
    EXPECT_EQ(compared, 4 * job.model.layers);
  }
}

TEST(PackedWeights, RoundAndStayNearPlainTraining) {
  for (const LoraBase base : kBases) {
    Job job = Packed(base), plain = job;
    plain.work.lora.base = LoraBase::kPlain;
    plain.key += " plain";
    const double loss = Reference(job).back().loss, full = Reference(plain).back().loss;
    EXPECT_NE(loss, full) << job.key;
    EXPECT_NEAR(loss / full, 1, 0.01) << job.key;
    std::cout << job.key << ": loss " << loss << ", without packing " << full << "\n";
  }
}

TEST(PackedWeights, AreRefusedWhereBlocksDoNotFit) {
  const auto reason = [](const Job& job, int tp) {
    Strategy s;
    s.tp = tp;
    ModelSpec model = job.model;
    model.kv_heads = model.heads;
    const auto refused = CheckStrategy(model, job.work, s);
    return refused ? refused->reason : "";
  };
  EXPECT_EQ(reason(Packed(LoraBase::kNf4), 2), "");
  EXPECT_EQ(reason(Packed(LoraBase::kNf4), 4),
            "attention columns per rank 32 are no multiple of 64, nf4's block");
  EXPECT_EQ(reason(Packed(LoraBase::kInt8), 4), "");
  EXPECT_EQ(reason(Packed(LoraBase::kNf4, Fp8::kCurrent), 1),
            "products in 8 bits (fp8 current) of weights kept in nf4");
  EXPECT_EQ(reason(Packed(LoraBase::kFp8, Fp8::kMxfp8), 1),
            "weights kept in fp8 with mxfp8, whose two casts of a weight differ, are not lowered");
}

}  // namespace
}  // namespace orrery::parity
