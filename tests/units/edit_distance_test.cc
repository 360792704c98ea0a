// SPDX-License-Identifier: Apache-2.0
// The distance behind "did you mean".
#include "model/base/edit_distance.h"

#include <gtest/gtest.h>

#include <string>

namespace orrery {
namespace {

TEST(HalfEdits, CountsEveryKindOfSlip) {
  EXPECT_EQ(HalfEdits("bandwidth", "bandwidth"), 0u);
  EXPECT_EQ(HalfEdits("bandwith", "bandwidth"), 2u);    // insertion
  EXPECT_EQ(HalfEdits("bandwiddth", "bandwidth"), 2u);  // deletion
  EXPECT_EQ(HalfEdits("bandwodth", "bandwidth"), 2u);   // substitution
  EXPECT_EQ(HalfEdits("bandwitdh", "bandwidth"), 2u);   // swap of neighbours
  EXPECT_EQ(HalfEdits("gib", "GiB"), 2u);               // two changes of case
}

TEST(HalfEdits, FromAndToNothingCostsTheLength) {
  EXPECT_EQ(HalfEdits("", ""), 0u);
  EXPECT_EQ(HalfEdits("", "abc"), 6u);
  EXPECT_EQ(HalfEdits("abc", ""), 6u);
}

TEST(HalfEdits, IsSymmetricAndBounded) {
  const std::string words[] = {"", "a", "ab", "ba", "nodes", "node", "Nodes", "noeds", "gpus"};
  for (const auto& a : words) {
    for (const auto& b : words) {
      EXPECT_EQ(HalfEdits(a, b), HalfEdits(b, a)) << a << " " << b;
      EXPECT_LE(HalfEdits(a, b), 2 * std::max(a.size(), b.size())) << a << " " << b;
    }
  }
}

}  // namespace
}  // namespace orrery
