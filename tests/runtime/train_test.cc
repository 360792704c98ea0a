// SPDX-License-Identifier: Apache-2.0
// A selection of strategies on threads against one rank, and against the double-precision
// interpreter.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/from_environment.h"
#include "tests/interpreter/interpreter.h"
#include "tests/parity/grid.h"
#include "tests/runtime/single.h"

namespace orrery::runtime_test {
namespace {

constexpr double kSingle = 1e-5, kHalf = 2e-2;  // relative

class Strategies : public testing::TestWithParam<int> {};

TEST_P(Strategies, TrainLikeOneRank) {
  const parity::Job job = InPrecision(
      GetParam() == 3 ? parity::ThreeWayGpt(true) : parity::TinyGpt(true), Precision::kFp32);
  for (const parity::Case& c : parity::Sample(parity::Grid(job, GetParam(), 7), 5, 11)) {
    SCOPED_TRACE(parity::Describe(c));
    ExpectLikeOneRank(job, c.strategy, kSingle);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Strategies, testing::Values(1, 2, 3, 4, 8));

TEST(Families, TrainLikeOneRank) {
  for (const parity::Job& family :
       {parity::TinyLlama(), parity::TinyBert(), parity::TinyT5(), parity::TinyMlp()}) {
    const parity::Job job = InPrecision(family, Precision::kFp32);
    for (const parity::Case& c : parity::Sample(parity::Grid(job, 4, 3), 2, 5)) {
      SCOPED_TRACE(parity::Describe(c));
      ExpectLikeOneRank(job, c.strategy, kSingle);
    }
  }
}

// Every second product, keys with their positions and the stream behind attention run again.
TEST(SplitProducts, TrainLikeOneRank) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    parity::Job job = InPrecision(parity::TinyLlama(), precision);
    job.split_products = true;
    job.key += " split";
    std::vector<parity::Case> by_op = parity::Grid(job, 4, 3);
    std::erase_if(by_op, [](const parity::Case& c) {
      return c.strategy.recompute.modules != Recompute::kByOp.modules;
    });
    for (const parity::Case& c : parity::Sample(by_op, precision == Precision::kFp32 ? 3 : 1, 5)) {
      SCOPED_TRACE(parity::Describe(c));
      ExpectLikeOneRank(job, c.strategy, precision == Precision::kFp32 ? kSingle : kHalf);
    }
  }
}

// Twenty steps of each method, both orders of rows.
class Context : public testing::TestWithParam<int> {};

TEST_P(Context, RanksThatShareSequencesTrainLikeOneRank) {
  for (const parity::Job& family : {parity::TinyGpt(true), parity::TinyLlama()}) {
    const parity::Job job = InPrecision(family, Precision::kFp32);
    const std::vector<parity::Case> all = parity::ContextGrid(job, GetParam(), 5);
    for (const CpMethod method :
         {CpMethod::kAllGather, CpMethod::kRing, CpMethod::kUlysses, CpMethod::kA2aRing}) {
      for (const bool zigzag : {false, true}) {
        std::vector<parity::Case> some;
        std::copy_if(all.begin(), all.end(), std::back_inserter(some), [&](const parity::Case& c) {
          const ContextLayout& context = c.strategy.context;
          const bool levels =
              method != CpMethod::kA2aRing || (context.inner > 1 && context.inner < c.strategy.cp);
          return context.method == method && context.zigzag == zigzag &&
                 (levels || GetParam() < 4) && (levels || context.inner > 1);
        });
        ASSERT_FALSE(some.empty());
        const uint64_t layouts = FromEnvironment("ORRERY_LAYOUTS_OF_EACH_KIND", 1);
        for (const parity::Case& c : parity::Sample(some, layouts, 13)) {
          SCOPED_TRACE(parity::Describe(c));
          ExpectLikeOneRank(job, c.strategy, kSingle);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Context, testing::Values(2, 4));
INSTANTIATE_TEST_SUITE_P(RanksSlow, Context, testing::Values(8));

// Copies to memory of the host and back, updates from there.
TEST(Offloaded, TrainsLikeOneRank) {
  for (const Precision precision : {Precision::kFp32, Precision::kBf16}) {
    const parity::Job job = InPrecision(parity::TinyGpt(true), precision);
    for (const Offload& offload : {Offload{1, false}, Offload{0.5, true}, Offload{1, true, true}}) {
      for (const int ranks : {1, 2, 4}) {
        for (parity::Case c : parity::Sample(parity::Grid(job, ranks, 7), 8, 17)) {
          c.strategy.offload = offload;
          if (offload.weights) c.strategy.zero = 3;
          if (CheckStrategy(job.model, job.work, c.strategy)) continue;
          SCOPED_TRACE(parity::Describe(c));
          ExpectLikeOneRank(job, c.strategy, precision == Precision::kFp32 ? kSingle : kHalf);
          break;
        }
      }
    }
  }
}

TEST(StagesInAV, TrainLikeOneRank) {
  const parity::Job job = InPrecision(parity::TinyGpt(true), Precision::kFp32);
  for (const int dp : {1, 2}) {
    Strategy s;
    s.pp = 2, s.vpp = 2, s.dp = dp, s.zero = dp > 1 ? 2 : 0;
    s.schedule = PipelineSchedule::kZeroBubbleV;
    s.reduce_once = dp > 1;
    ASSERT_FALSE(CheckStrategy(job.model, job.work, s));
    ExpectLikeOneRank(job, s, kSingle);
  }
}

TEST(MixedPrecision, TrainsLikeOneRank) {
  for (const Precision precision : {Precision::kBf16, Precision::kFp16}) {
    const parity::Job job = InPrecision(parity::TinyGpt(true), precision);
    for (const parity::Case& c : parity::Sample(parity::Grid(job, 4, 3), 2, 9)) {
      SCOPED_TRACE(parity::Describe(c));
      ExpectLikeOneRank(job, c.strategy, kHalf);
    }
  }
}

TEST(Optimizers, TrainLikeOneRank) {
  for (const Optimizer optimizer : {Optimizer::kSgd, Optimizer::kAdam, Optimizer::kLamb}) {
    parity::Job job = InPrecision(parity::TinyGpt(false), Precision::kFp32);
    job.work.optimizer = optimizer;
    for (const parity::Case& c : parity::Sample(parity::Grid(job, 4, 3), 1, 17)) {
      SCOPED_TRACE(parity::Describe(c));
      ExpectLikeOneRank(job, c.strategy, kSingle);
    }
  }
}

// The reference semantics in double precision, on the same plan.
TEST(Interpreter, ComputesTheSameLossesAndNorms) {
  const parity::Job job = InPrecision(parity::TinyGpt(true), Precision::kFp32);
  for (const parity::Case& c : parity::Sample(parity::Grid(job, 4, 7), 3, 23)) {
    SCOPED_TRACE(parity::Describe(c));
    const ir::Plan plan = LowerFor(job, c.strategy);
    const Trained run = Train(plan, job, 5);
    ASSERT_EQ(run.failure, "");
    interpreter::RunOptions options;
    options.data.vocab = job.model.vocab;
    interpreter::Interpreter reference(plan, options);
    for (const launch::StepRecord& step : run.steps) {
      const interpreter::StepResult due = reference.Step();
      EXPECT_NEAR(step.result.loss / due.loss, 1, kSingle);
      EXPECT_NEAR(step.result.gradient_norm / due.gradient_norm, 1, kSingle);
    }
  }
}

}  // namespace
}  // namespace orrery::runtime_test
