// SPDX-License-Identifier: Apache-2.0
// Every strategy on threads against one rank, in single precision.
#include <gtest/gtest.h>

#include <map>

#include "tests/parity/grid.h"
#include "tests/parity/jobs.h"
#include "tests/runtime/training.h"

namespace orrery::runtime_test {
namespace {

constexpr double kTolerance = 1e-5;  // relative, single precision
constexpr int64_t kSteps = 20;

// The parity jobs in fp32, with a learning rate at which rounding does not grow over the steps.
parity::Job Single(parity::Job job) {
  job.work.precision = Precision::kFp32;
  job.optimizer.lr = 1e-3;
  return job;
}

const Run& OneRankRun(const parity::Job& job) {
  static std::map<std::string, Run> known;
  const auto [entry, fresh] = known.try_emplace(job.key);
  if (fresh) entry->second = Train(LowerFor(job, OneRank(job)), job, kSteps);
  return entry->second;
}

void ExpectParity(const parity::Job& job, const Strategy& strategy) {
  const ir::Plan plan = LowerFor(job, strategy);
  const Run run = Train(plan, job, kSteps);
  ASSERT_EQ(run.failure, "");
  const Deviation deviation = Compare(run, OneRankRun(job));
  EXPECT_LE(deviation.loss, kTolerance);
  EXPECT_LE(deviation.norm, 10 * kTolerance);
  for (std::size_t r = 0; r < run.arenas.size(); ++r) {
    const auto& program = plan.programs[static_cast<std::size_t>(
        plan.mesh.Coords(static_cast<int64_t>(r))[static_cast<std::size_t>(plan.mesh.program_axis)])];
    EXPECT_EQ(run.arenas[r], ir::ComputeLayout(plan, program).arena_bytes);
  }
}

class Strategies : public testing::TestWithParam<int> {};

TEST_P(Strategies, TrainLikeOneRank) {
  const parity::Job job = Single(GetParam() == 3 ? parity::ThreeWayGpt(true) : parity::TinyGpt(true));
  for (const parity::Case& c : parity::Sample(parity::Grid(job, GetParam(), 7), 8, 11)) {
    SCOPED_TRACE(parity::Describe(c));
    ExpectParity(job, c.strategy);
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, Strategies, testing::Values(1, 2, 3, 4, 8));

}  // namespace
}  // namespace orrery::runtime_test
