// SPDX-License-Identifier: Apache-2.0
// Elements of shards against elements of whole tensors.
#include <gtest/gtest.h>

#include <map>

#include "runtime/train/snapshot/state.h"

namespace orrery::snapshot {
namespace {

TEST(Cut, ShardsOfEachDimensionCoverTheTensorOnce) {
  const std::vector<int64_t> shape = {4, 6, 12};
  for (int dimension = 0; dimension < 3; ++dimension) {
    std::map<int64_t, int> seen;
    for (int64_t shard = 0; shard < 2; ++shard) {
      for (const auto& run : RunsOf(CutOf(shape, dimension, 2, shard), 0, 144)) {
        for (int64_t i = 0; i < run.n; ++i) ++seen[run.global + i];
      }
    }
    ASSERT_EQ(seen.size(), 288u);
    EXPECT_EQ(seen.begin()->first, 0);
    EXPECT_EQ(seen.rbegin()->first, 287);
  }
}

TEST(Cut, RunsFollowRowMajorOrder) {
  // Columns 2 and 3 of a matrix of 3 x 4; of them elements 1 to 4.
  const auto runs = RunsOf(CutOf({3, 4}, 1, 2, 1), 1, 5);
  ASSERT_EQ(runs.size(), 3u);
  EXPECT_EQ(runs[0].global, 3);
  EXPECT_EQ(runs[0].n, 1);
  EXPECT_EQ(runs[1].global, 6);
  EXPECT_EQ(runs[1].local, 2);
  EXPECT_EQ(runs[1].n, 2);
  EXPECT_EQ(runs[2].global, 10);
  EXPECT_EQ(runs[2].n, 1);
}

// Every pair of cuts: what the overlaps copy is what a walk over all elements would.
TEST(Cut, OverlapsCopyEveryCommonElement) {
  const std::vector<int64_t> shape = {4, 6, 12};
  const Cut cuts[] = {CutOf(shape, -1, 1, 0), CutOf(shape, 0, 4, 2), CutOf(shape, 1, 3, 1),
                      CutOf(shape, 2, 2, 1), CutOf(shape, 2, 6, 3)};
  for (const Cut& a : cuts) {
    for (const Cut& b : cuts) {
      const auto from = RunsOf(a, 5, 288 / a.shards - 3), to = RunsOf(b, 2, 288 / b.shards - 1);
      std::map<int64_t, int64_t> local_of, expected, got;  // global to local; to -> from
      for (const auto& run : from) {
        for (int64_t i = 0; i < run.n; ++i) local_of[run.global + i] = run.local + i;
      }
      for (const auto& run : to) {
        for (int64_t i = 0; i < run.n; ++i) {
          const auto found = local_of.find(run.global + i);
          if (found != local_of.end()) expected[run.local + i] = found->second;
        }
      }
      for (const Overlap& o : Overlaps(from, to)) {
        for (int64_t i = 0; i < o.n; ++i) got[o.to + i] = o.from + i;
      }
      EXPECT_EQ(got, expected);
    }
  }
}

}  // namespace
}  // namespace orrery::snapshot
