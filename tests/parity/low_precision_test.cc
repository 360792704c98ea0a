// SPDX-License-Identifier: Apache-2.0
// Low precision in three steps: casts that round nothing give what a plan without casts gives; casts of equal blocks give
// the same numbers in every layout; what is left out of that says why.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <utility>

#include "tests/parity/expect_parity.h"
#include "tests/parity/grid.h"
#include "tests/parity/jobs.h"

namespace orrery::parity {
namespace {

#ifdef ORRERY_PARITY_SAMPLE
constexpr std::size_t kPlans = ORRERY_PARITY_SAMPLE;  // of each recipe and number of ranks
#else
constexpr std::size_t kPlans = 12;
#endif
constexpr uint64_t kSeed = 15;
constexpr Fp8 kRecipes[] = {Fp8::kDelayed, Fp8::kCurrent, Fp8::kBlockwise, Fp8::kMxfp8,
                            Fp8::kNvfp4};

template <class Keep>
std::vector<Case> Plans(const Job& job, std::initializer_list<int> ranks, std::size_t count,
                        const Keep& keep) {
  std::vector<Case> all;
  for (const int n : ranks) {
    std::vector<Case> legal = Grid(job, n, kSeed);
    std::erase_if(legal, [&](const Case& c) { return !keep(c.strategy); });
    const std::vector<Case> some = Sample(legal, count, kSeed);
    EXPECT_FALSE(some.empty()) << job.key << " on " << n << " ranks";
    all.insert(all.end(), some.begin(), some.end());
  }
  return all;
}

TEST(ExactCasts, ChangeNothing) {
  for (const Fp8 recipe : kRecipes) {
    if (recipe == Fp8::kBlockwise) continue;  // large; the same lowering as mxfp8
    Job job = LowPrecisionLlama(recipe);
    job.key += " exact";
    job.exact_casts = true;
    ExpectParity(job, Plans(job, {1, 2, 4}, kPlans, [](const Strategy&) { return true; }));
  }
}

// Products of the first and the last layer in the precision of the job, in units with others and alone, held in 8 bits or not.
TEST(SkippedLayers, ExactCastsOfTheOthersChangeNothing) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kCurrent, Fp8::kMxfp8, Fp8::kNvfp4}) {
    Job job = LowPrecisionLlama(recipe);
    job.key += " exact, ends skipped";
    job.model.layers = 3;
    job.work.fp8_skip = {1, 1};
    job.exact_casts = true;
    ExpectParity(job, Plans(job, {1, 2, 4}, kPlans, [](const Strategy&) { return true; }));
  }
}

TEST(SkippedLayers, RoundAlikeInEveryLayout) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kMxfp8}) {
    Job job = LowPrecisionLlama(recipe, 2);
    job.key += " ends skipped";
    job.model.layers = 3;
    job.work.fp8_skip = {1, 1};
    job.reference_micro_batch = 1;
    ExpectParity(job,
                 Plans(job, {2, 4}, kPlans, [&](const Strategy& s) { return s.micro_batch == 1; }));
  }
}

// Numbers of products by layer that read casts, and of casts.
std::map<int, std::pair<int, int>> CastsByLayer(const ModelSpec& model, const Workload& work,
                                                const Strategy& s) {
  std::map<int, std::pair<int, int>> by_layer;
  const LowerResult lowered = Lower(model, work, s);
  for (const ir::Program& program : std::get<ir::Plan>(lowered).programs) {
    for (const ir::Block& block : program.blocks) {
      for (const ir::Op& op : block.ops) {
        if (op.segment != ir::Segment::kLayer || op.layer < 0) continue;
        auto& [products, casts] = by_layer[op.layer];
        products += op.kind == ir::OpKind::kMatmul && op.attrs.Get(ir::Attr::kProduct) != 0;
        casts += op.kind == ir::OpKind::kQuantize;
      }
    }
  }
  return by_layer;
}

TEST(SkippedLayers, HaveNoCastsAndNoWeightsInEightBits) {
  Job job = LowPrecisionLlama(Fp8::kCurrent);
  job.model.layers = 5;
  job.work.fp8_skip = {2, 1};
  for (const bool held : {false, true}) {
    for (const int bucket : {1, 5}) {
      Strategy s;
      s.fp8_weights = held;
      s.bucket_layers = bucket;
      const auto casts = CastsByLayer(job.model, job.work, s);
      for (const int layer : {0, 1, 4}) EXPECT_EQ(casts.at(layer), std::pair(0, 0)) << layer;
      for (const int layer : {2, 3}) {
        EXPECT_GT(casts.at(layer).first, 0) << layer;
        EXPECT_GT(casts.at(layer).second, 0) << layer;
      }
      int coded = 0;
      const ir::Plan plan = std::get<ir::Plan>(Lower(job.model, job.work, s));
      for (const ir::Param& param : plan.params) coded += param.packing != ir::Packed::kNone;
      EXPECT_EQ(coded, held ? 2 * 4 : 0);
    }
  }
}

TEST(SkippedLayers, AreRefusedWhereNothingIsLeftToCast) {
  const Job job = LowPrecisionLlama(Fp8::kCurrent);
  const auto reason = [&](auto change) {
    ModelSpec model = job.model;
    Workload work = job.work;
    work.fp8_skip = {1, 0};
    change(model, work);
    const auto refused = CheckStrategy(model, work, Strategy{});
    return refused ? refused->reason : "";
  };
  EXPECT_EQ(reason([](auto&, auto&) {}), "");
  EXPECT_EQ(reason([](auto&, Workload& w) {
              w.fp8_skip = {1, 1};
            }),
            "products in 8 bits skip the first 1 and the last 1 of 2 layers");
  EXPECT_EQ(reason([](auto&, Workload& w) { w.fp8 = Fp8::kOff; }),
            "16-bit layers at both ends (fp8_skip) need products in 8 bits in the others");
  EXPECT_EQ(reason([](auto&, Workload& w) { w.lora.rank = 8; }),
            "16-bit layers at both ends (fp8_skip) are not supported with adapters");
}

TEST(ExactCasts, ChangeNothingWhereSingleProductsRunAgain) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kMxfp8, Fp8::kNvfp4}) {
    Job job = LowPrecisionLlama(recipe, 2);
    job.key += " exact split";
    job.model.kv_heads = 4;
    job.exact_casts = job.split_products = true;
    ExpectParity(job, Plans(job, {1, 2, 4}, kPlans, [](const Strategy& s) {
                   return (s.recompute.modules & (kRecomputeOut | kRecomputeUp)) != 0;
                 }));
  }
}

// Rows of a micro-batch share blocks: one sequence per micro-batch everywhere. With one scale per tensor a tensor rank
// has the scale of its part, unless the scale is the maximum over all ranks (delayed).
TEST(EqualBlocks, RoundAlikeInEveryLayout) {
  for (const Fp8 recipe : kRecipes) {
    const bool large = recipe == Fp8::kBlockwise;
    Job job = LowPrecisionLlama(recipe, large && kPlans < 12 ? 1 : 2);
    job.reference_micro_batch = 1;
    const bool by_part = recipe == Fp8::kCurrent || recipe == Fp8::kNvfp4;
    if (large) job.work.global_batch = 2;
    ExpectParity(job, Plans(job, {2, 4}, large ? 1 : kPlans, [&](const Strategy& s) {
                   return s.micro_batch == 1 && !(by_part && s.tp > 1);
                 }));
  }
}

// Ranks share a sequence: blocks along its rows do not cross ranks.
TEST(EqualBlocks, RoundAlikeWhereSequencesAreShared) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kMxfp8}) {
    Job job = LowPrecisionLlama(recipe);
    job.key += " shared sequences";
    job.reference_micro_batch = 1;
    std::vector<Case> cases;
    for (const int ranks : {2, 4}) {
      std::vector<Case> legal = ContextGrid(job, ranks, kSeed);
      std::erase_if(legal, [](const Case& c) { return c.strategy.micro_batch != 1; });
      const std::vector<Case> some = Sample(legal, kPlans, kSeed);
      EXPECT_FALSE(some.empty()) << job.key << " on " << ranks << " ranks";
      cases.insert(cases.end(), some.begin(), some.end());
    }
    ExpectParity(job, cases);
  }
}

TEST(LowPrecision, RoundsAndStaysNearPlainTraining) {
  for (const Fp8 recipe : {Fp8::kDelayed, Fp8::kCurrent, Fp8::kMxfp8, Fp8::kNvfp4}) {
    Job job = LowPrecisionLlama(recipe);
    Job same = job;
    same.work.fp8 = Fp8::kOff;
    same.key = job.key + " off";
    const double loss = Reference(job).back().loss, full = Reference(same).back().loss;
    EXPECT_NE(loss, full) << job.key;
    EXPECT_NEAR(loss / full, 1, 0.01) << job.key;
    std::cout << job.key << ": loss " << loss << ", without casts " << full << "\n";
  }
}

// Blocks along the rows hold other rows where two sequences share a micro-batch: only weight gradients differ, little.
TEST(LowPrecision, OtherTokenBlocksDifferLittle) {
  Job job = LowPrecisionLlama(Fp8::kMxfp8);
  job.reference_micro_batch = 1;
  const auto one = Reference(job);
  Job pairs = job;
  pairs.key += " pairs";
  pairs.reference_micro_batch = 2;
  const auto two = Reference(pairs);
  EXPECT_NEAR(one.front().loss / two.front().loss, 1, 1e-12);  // blocks along the width
  EXPECT_NEAR(one.back().loss / two.back().loss, 1, 1e-2);
}

TEST(LowPrecision, RefusesExtentsThatBlocksDoNotDivide) {
  const Job job = LowPrecisionLlama(Fp8::kMxfp8);
  const auto reason = [&](auto change) {
    ModelSpec model = job.model;
    Workload work = job.work;
    Strategy s;
    change(model, work, s);
    const auto refused = CheckStrategy(model, work, s);
    return refused ? refused->reason : "";
  };
  EXPECT_EQ(reason([](auto&, auto&, auto&) {}), "");
  EXPECT_EQ(reason([](ModelSpec& m, auto&, auto&) { m.ffn = 84; }),
            "MLP columns per rank 84 are no multiple of 32 (fp8 mxfp8)");
  EXPECT_EQ(reason([](auto&, Workload& w, auto&) { w.seq_len = 48; }),
            "rows of a sequence per rank 48 are no multiple of 32 (fp8 mxfp8)");
  EXPECT_EQ(reason([](ModelSpec& m, auto&, auto&) { m.hidden = 72; }),
            "hidden columns 72 are no multiple of 32 (fp8 mxfp8)");
}

}  // namespace
}  // namespace orrery::parity
