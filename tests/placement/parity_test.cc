// SPDX-License-Identifier: Apache-2.0
// Stages inside of data ranks: every layout still equals one rank.
#include <gtest/gtest.h>

#include <iostream>
#include <memory>

#include "tests/parity/grid.h"
#include "tests/parity/jobs.h"

namespace orrery::parity {
namespace {

TEST(PlacementParity, TheOrderOfAxesLeavesTheNumbersAsTheyAre) {
  constexpr uint64_t kSeed = 71;
  constexpr std::size_t kPlans = 12;
  const auto stages_inside = std::make_shared<const Placement>(Placement{true, {}});
  const Job jobs[] = {TinyGpt(true), TinyLlama()};
  for (const Job& job : jobs) {
    std::vector<Case> cases;
    for (const int ranks : {4, 8}) {
      std::vector<Case> all = Grid(job, ranks, kSeed);
      std::erase_if(all, [](const Case& one) {
        return one.strategy.pp == 1 || one.strategy.data_parallel() == 1 || one.strategy.cp > 1;
      });
      ASSERT_FALSE(all.empty());
      for (Case& one : all) one.strategy.placement = stages_inside;
      const std::vector<Case> some = Sample(all, kPlans, kSeed);
      cases.insert(cases.end(), some.begin(), some.end());
    }
    const Summary summary = RunAll(cases);
    std::cout << summary.Text(job.key);
    EXPECT_TRUE(summary.failures.empty());
  }
}

}  // namespace
}  // namespace orrery::parity
