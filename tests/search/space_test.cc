// SPDX-License-Identifier: Apache-2.0
// The enumeration of the space.
#include "model/twin/space.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>

namespace orrery {
namespace {

SearchRequest Request() {
  SearchRequest request;
  request.model.layers = 12;
  return request;
}

TEST(Space, DivisorsAreCompleteAndAscending) {
  EXPECT_EQ(Divisors(1), (std::vector<int64_t>{1}));
  EXPECT_EQ(Divisors(36), (std::vector<int64_t>{1, 2, 3, 4, 6, 9, 12, 18, 36}));
  EXPECT_EQ(Divisors(7), (std::vector<int64_t>{1, 7}));
}

TEST(Space, DegreesMultiplyToTheRanksAndTpBeyondANodeComesLast) {
  const SearchRequest request = Request();
  const std::vector<Split> degrees = Space(request, FindFramework("orrery")).Degrees(16, 4);
  EXPECT_EQ(degrees.size(), 15u);  // ordered triples of factors of 2^4
  bool beyond = false;
  for (const Split& job : degrees) {
    EXPECT_EQ(job.tp * job.pp * job.data, 16);
    EXPECT_FALSE(beyond && job.tp <= 4);
    beyond = beyond || job.tp > 4;
  }
}

TEST(Space, FixedAxesAndFrameworksCutIt) {
  SearchRequest request = Request();
  request.fixed.tp = 2;
  request.fixed.pp = 4;
  EXPECT_EQ(Space(request, FindFramework("orrery")).Degrees(16, 8).size(), 1u);
  request.fixed = {};
  for (const Split& job : Space(request, FindFramework("ddp")).Degrees(16, 8))
    EXPECT_EQ(job.data, 16);
  EXPECT_EQ(Space(request, FindFramework("megatron")).Shards(2, 4).size(), 2u);
  EXPECT_EQ(Space(request, FindFramework("fsdp")).Shards(1, 1).size(),
            1u);  // one rank: nothing to shard
}

// A search looks at no ring whose ranks have too few tokens to hide it; who asks for one gets it.
TEST(Space, ContextRanksShareLongSequencesAlone) {
  const auto most = [](int64_t tokens, std::optional<int> fixed) {
    SearchRequest request = Request();
    request.work.seq_len = tokens;
    request.fixed.cp = fixed;
    int cp = 0;
    for (const Split& split : Space(request, FindFramework("megatron")).Degrees(1024, 8))
      cp = std::max(cp, split.cp);
    return cp;
  };
  EXPECT_EQ(most(32767, {}), 1);
  EXPECT_EQ(most(32768, {}), 32);
  EXPECT_EQ(most(131072, {}), 128);
  EXPECT_EQ(most(1 << 20, {}), 1024);
  EXPECT_EQ(most(131072, 256), 256);
  EXPECT_EQ(most(8192, 16), 16);
}

TEST(Space, OldMegatronInterleavesOnlyEvenly) {
  const SearchRequest request = Request();
  int even = 0, all = 0;
  for (const ScheduleChoice& choice : Space(request, FindFramework("megatron@2021")).Schedules(2))
    even += choice.vpp > 1;
  for (const ScheduleChoice& choice : Space(request, FindFramework("megatron")).Schedules(2))
    all += choice.vpp > 1;
  EXPECT_EQ(even, 3);     // 2, 3, 6 chunks of 12 layers on 2 stages
  EXPECT_EQ(all, 6 * 3);  // 2 to 7, each by the rule, balanced and with a lighter first stage
}

TEST(Space, ChunksOfVeryDeepModelsAreSpread) {
  SearchRequest request = Request();
  request.model.layers = 1000;
  std::set<int> chunks;
  for (const ScheduleChoice& choice : Space(request, FindFramework("megatron")).Schedules(2)) {
    if (choice.schedule == PipelineSchedule::kInterleaved) chunks.insert(choice.vpp);
  }
  EXPECT_EQ(chunks.size(), 128u);  // 2 to 128, and 256
  EXPECT_TRUE(chunks.contains(127) && chunks.contains(256));
  request.fixed.vpp = 250;  // who asks for it gets it
  EXPECT_FALSE(Space(request, FindFramework("megatron")).Schedules(2).empty());
}

TEST(Space, AGivenLayoutFixesStagesTimesChunks) {
  SearchRequest request = Request();
  request.fixed.layout = std::make_shared<const std::vector<int>>(std::vector<int>{2, 4, 4, 2});
  const Space space(request, FindFramework("megatron"));
  EXPECT_TRUE(space.Schedules(1).empty());
  EXPECT_TRUE(space.Schedules(3).empty());
  ASSERT_EQ(space.Schedules(2).size(), 1u);
  EXPECT_EQ(space.Schedules(2)[0].vpp, 2);
  ASSERT_EQ(space.Schedules(4).size(), 1u);
  EXPECT_EQ(space.Schedules(4)[0].vpp, 1);
}

}  // namespace
}  // namespace orrery
