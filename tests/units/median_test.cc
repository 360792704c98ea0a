// SPDX-License-Identifier: Apache-2.0
#include "model/base/median.h"

#include <gtest/gtest.h>

namespace orrery {
namespace {

TEST(Median, IsTheMiddleOrTheMeanOfTheTwoThere) {
  EXPECT_EQ(Median({}), 0);
  EXPECT_EQ(Median({7}), 7);
  EXPECT_EQ(Median({9, 1, 4}), 4);
  EXPECT_EQ(Median({8, 1, 100, 2}), 5);
}

}  // namespace
}  // namespace orrery
