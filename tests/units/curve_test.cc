// SPDX-License-Identifier: Apache-2.0
#include "model/base/curve.h"

#include <gtest/gtest.h>

namespace orrery {
namespace {

TEST(IncreasingCurve, IsStraightBetweenItsPointsAndInProportionBeyond) {
  const IncreasingCurve curve({{1, 10}, {2, 30}, {4, 40}});
  EXPECT_DOUBLE_EQ(curve.At(1), 10);
  EXPECT_DOUBLE_EQ(curve.At(1.5), 20);
  EXPECT_DOUBLE_EQ(curve.At(3), 35);
  EXPECT_DOUBLE_EQ(curve.At(0.5), 5);
  EXPECT_DOUBLE_EQ(curve.At(8), 80);
  for (const double y : {5.0, 10.0, 20.0, 30.0, 35.0, 40.0, 80.0})
    EXPECT_DOUBLE_EQ(curve.At(curve.Inverse(y)), y);
}

TEST(IncreasingCurve, NeverFallsBackAndItsInverseIsTheLargest) {
  const IncreasingCurve curve({{1, 10}, {2, 30}, {3, 25}, {4, 50}});
  EXPECT_DOUBLE_EQ(curve.At(3), 30);
  EXPECT_DOUBLE_EQ(curve.At(2.5), 30);
  EXPECT_DOUBLE_EQ(curve.Inverse(30), 3);
  EXPECT_DOUBLE_EQ(curve.Inverse(40), 3.5);
}

}  // namespace
}  // namespace orrery
