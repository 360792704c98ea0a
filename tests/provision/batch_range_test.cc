// SPDX-License-Identifier: Apache-2.0
// The batches that published runs of so many tokens used.
#include "model/provision/batch_range.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "model/provision/facts.h"

namespace orrery {
namespace {

TEST(BatchRange, HoldsWhatPublishedRunsUsed) {
  const BatchFacts facts = LoadBatch();
  const auto range = [&](double tokens) { return BatchRangeFor(facts, tokens); };
  const auto holds = [&](double tokens, double batch) {
    return range(tokens).least <= batch && batch <= range(tokens).most * (1 + 1e-12);
  };
  EXPECT_GE(facts.published.size(), 4u);
  for (const auto& [run, of] : facts.published) EXPECT_TRUE(holds(of.tokens, of.batch)) << run;
  EXPECT_TRUE(holds(15e12, 2048.0 * 8192));  // Llama 3 405B
  EXPECT_TRUE(holds(15.6e12, 2048.0 * 8192));
  EXPECT_NEAR(range(15e12).most / range(2e12).most, 2.58, 0.01);
  for (double tokens = 1e9; tokens < 1e14; tokens *= 1.1)  // more tokens never mean a smaller batch
    EXPECT_LE(range(tokens).most, range(tokens * 1.1).most);
}

// A few more tokens are a little more: by a step, 300 B would be cheaper to train than 299 B.
TEST(BatchRange, HasNoSteps) {
  const BatchFacts facts = LoadBatch();
  double shortest = 1e300;
  for (const auto& [run, of] : facts.published) shortest = std::min(shortest, of.tokens);
  for (double tokens = 1e9; tokens < 1e14; tokens *= 1.001) {
    const BatchRange now = BatchRangeFor(facts, tokens),
                     next = BatchRangeFor(facts, tokens * 1.001);
    EXPECT_LT(next.most / now.most, 1.003) << tokens;
    EXPECT_EQ(now.below, tokens < shortest ? shortest : 0) << tokens;
  }
}

TEST(BatchRange, EndsAtTheLargestPublishedBatch) {
  const BatchFacts facts = LoadBatch();
  double longest = 0, largest = 0;
  for (const auto& [run, of] : facts.published) {
    longest = std::max(longest, of.tokens);
    largest = std::max(largest, of.batch);
  }
  EXPECT_EQ(BatchRangeFor(facts, longest).beyond, 0);
  for (const double tokens : {1.01 * longest, 1e14, 1e16, 1e18}) {
    const BatchRange range = BatchRangeFor(facts, tokens);
    EXPECT_EQ(range.most, largest) << tokens;
    EXPECT_EQ(range.least, facts.least_share * largest) << tokens;
    EXPECT_EQ(range.beyond, longest) << tokens;
  }
}

TEST(BatchRange, IsThatOfItsSequences) {
  const BatchRange range = BatchRangeFor(LoadBatch(), 15e12);
  const BatchSpan batches = SequencesOf(range, 8192);
  EXPECT_EQ(batches.most, 2048);
  EXPECT_EQ(batches.least, 512);
  EXPECT_EQ(SequencesOf({10, 40}, 8192).most, 1);
  EXPECT_EQ(SequencesOf({10, 40}, 8192).least, 1);
  for (const int64_t gpus : {1, 8, 24, 96, 768, 8192, 16384}) {
    const int64_t batch = DividingBatch(batches, gpus);
    EXPECT_TRUE(batches.least <= batch && batch <= batches.most) << gpus;
    int64_t part = gpus;
    while (part > batch) part /= 2;
    EXPECT_EQ(batch % part, 0) << gpus;
  }
}

}  // namespace
}  // namespace orrery
