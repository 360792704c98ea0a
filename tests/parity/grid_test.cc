// SPDX-License-Identifier: Apache-2.0
// The whole legal grid of a tiny GPT on 1, 2, 3, 4 and 8 ranks against one rank.
#include <gtest/gtest.h>

#include <iostream>

#include "tests/parity/grid.h"
#include "tests/parity/jobs.h"

namespace orrery::parity {
namespace {

constexpr uint64_t kSeed = 20240607;

class GptGrid : public testing::TestWithParam<int> {};

TEST_P(GptGrid, EveryLegalPlanEqualsOneRank) {
  const int ranks = GetParam();
  std::vector<Case> cases;
  const Job tied = ranks == 3 ? ThreeWayGpt(true) : TinyGpt(true), untied = ranks == 3 ? ThreeWayGpt(false) : TinyGpt(false);
  for (const Job* job : {&tied, &untied}) {
    const std::vector<Case> grid = Grid(*job, ranks, kSeed);
    cases.insert(cases.end(), grid.begin(), grid.end());
  }
  ASSERT_FALSE(cases.empty());
  const Summary summary = RunAll(cases);
  std::cout << summary.Text(std::to_string(ranks) + " ranks");
  EXPECT_TRUE(summary.failures.empty()) << summary.Text("failures");
}
INSTANTIATE_TEST_SUITE_P(Ranks, GptGrid, testing::Values(1, 2, 3, 4, 8), testing::PrintToStringParamName());

}  // namespace
}  // namespace orrery::parity
