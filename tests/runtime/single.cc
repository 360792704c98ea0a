// SPDX-License-Identifier: Apache-2.0
// Comparison with one rank.
#include "tests/runtime/single.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

namespace orrery::runtime_test {

Deviation worst_deviation;
const Trained& OneRankRun(const parity::Job& job) {
  static std::map<std::string, Trained> known;
  const std::string key = job.key + std::to_string(static_cast<int>(job.work.precision)) +
                          std::to_string(static_cast<int>(job.work.optimizer));
  const auto [entry, fresh] = known.try_emplace(key);
  if (fresh) entry->second = Train(LowerFor(job, OneRank(job)), job, kTrainedSteps);
  return entry->second;
}

void ExpectLikeOneRank(const parity::Job& job, const Strategy& strategy, double tolerance) {
  const ir::Plan plan = LowerFor(job, strategy);
  const Trained run = Train(plan, job, kTrainedSteps);
  ASSERT_EQ(run.failure, "");
  const Trained& reference = OneRankRun(job);
  ASSERT_EQ(reference.failure, "");
  const Deviation deviation = Compare(run, reference);
  EXPECT_LE(deviation.loss, tolerance);
  EXPECT_LE(deviation.norm, tolerance);
  worst_deviation = {std::max(worst_deviation.loss, deviation.loss),
                     std::max(worst_deviation.norm, deviation.norm)};
  for (std::size_t r = 0; r < run.arenas.size(); ++r) {
    const std::vector<int> coords = plan.mesh.Coords(static_cast<int64_t>(r));
    const auto stage =
        static_cast<std::size_t>(coords[static_cast<std::size_t>(plan.mesh.program_axis)]);
    EXPECT_EQ(run.arenas[r], ir::ComputeLayout(plan, plan.programs[stage]).arena_bytes);
  }
}

}  // namespace orrery::runtime_test
