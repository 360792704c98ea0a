// SPDX-License-Identifier: Apache-2.0
// A broken invariant says where, what and why, then aborts.
#include "model/base/check.h"

#include <gtest/gtest.h>

namespace orrery {
namespace {

TEST(CheckDeathTest, NamesPlaceConditionAndContext) {
  const int rank = 7;
  EXPECT_DEATH(ORRERY_CHECK(rank < 4, "rank {} of {}", rank, 4),
               "check_test.cc:[0-9]+: internal error: rank < 4 does not hold: rank 7 of 4");
}

TEST(Check, EvaluatesItsContextOnlyOnFailure) {
  int evaluated = 0;
  ORRERY_CHECK(true, "{}", ++evaluated);
  EXPECT_EQ(evaluated, 0);
}

}  // namespace
}  // namespace orrery
