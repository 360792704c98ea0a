// SPDX-License-Identifier: Apache-2.0
// The health check finds what was made slow, and nothing else.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "model/hardware/catalog.h"
#include "runtime/health/health.h"
#include "runtime/launch/local_ranks.h"

namespace orrery::check {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// Four equal hosts and all their pairs.
Health Equal() {
  Health health;
  for (int i = 0; i < 4; ++i) {
    NodeHealth node;
    node.host = fmt::format("node{}", i);
    node.compute = 5e10;
    node.memory = 1e10;
    node.disk = 5e8;
    health.nodes.push_back(node);
  }
  for (int a = 0; a < 4; ++a) {
    for (int b = a + 1; b < 4; ++b) health.pairs.push_back({a, b, 1e9, 1e-5});
  }
  return health;
}

TEST(Check, EqualNodesAreHealthy) {
  Health health = Equal();
  Judge({}, &health);
  EXPECT_THAT(health.findings, IsEmpty());
  EXPECT_THAT(HealthText(health, {}), HasSubstr("all inside"));
}

// Ranks of one host do not cross the network that a topology describes.
TEST(Check, SaysWhichPairsTheTopologyIsNotComparedWith) {
  Health health = Equal();
  for (NodeHealth& node : health.nodes) node.host = "node0";
  Bounds bounds;
  bounds.network = 5e10;
  Judge(bounds, &health);
  EXPECT_THAT(HealthText(health, bounds),
              HasSubstr("6 pairs of ranks on one host: not compared with the topology's network"));
  EXPECT_EQ(HealthJson(health, bounds)["pairs_of_one_host"], 6);
  EXPECT_EQ(HealthText(Equal(), bounds).find("one host"), std::string::npos);
}

TEST(Check, NamesTheSlowNodeAndWhatIsSlow) {
  for (double NodeHealth::*rate : {&NodeHealth::compute, &NodeHealth::memory, &NodeHealth::disk}) {
    Health health = Equal();
    health.nodes[2].*rate *= 0.5;
    Judge({}, &health);
    ASSERT_EQ(health.findings.size(), 1u);
    EXPECT_THAT(health.bad_hosts, ElementsAre("node2"));
  }
}

TEST(Check, NamesTheHostThatBadPairsShare) {
  Health health = Equal();
  for (PairHealth& pair : health.pairs) {
    if (pair.a == 1 || pair.b == 1) pair.rate = 1e8;
  }
  Bounds bounds;
  bounds.network = 5e8;
  bounds.topology = "mine";
  Judge(bounds, &health);
  EXPECT_EQ(health.findings.size(), 3u);
  EXPECT_THAT(health.bad_hosts, ElementsAre("node1"));
  EXPECT_THAT(health.findings[0].text, HasSubstr("mine expects at least 500 MB/s"));
}

// A topology that knows a port as degraded expects what the port is to carry: half of a NIC, for two ranks on one.
TEST(Check, ADegradedPortIsHeldToTheRateOfTheOthers) {
  TopologySpec spec = LoadTopology("dgx-h100");
  const double least = LeastPairRate(spec, 8).value;
  EXPECT_DOUBLE_EQ(least, 25e9);
  spec.node.degraded_nics[3] = BytesPerSecond(12.5e9);
  EXPECT_DOUBLE_EQ(LeastPairRate(spec, 8).value, least);
  EXPECT_DOUBLE_EQ(LeastPairRate(spec, 16).value, least / 2);
  EXPECT_DOUBLE_EQ(LeastPairRate(LoadTopology("localhost"), 1).value, 0);
}

TEST(Check, RanksOfOneHostAreNotHeldToTheNetwork) {
  Health health = Equal();
  for (NodeHealth& node : health.nodes) node.host = "alone";
  Bounds bounds;
  bounds.network = 1e12;
  Judge(bounds, &health);
  EXPECT_THAT(health.findings, IsEmpty());
}

TEST(Check, AWrongClockOfTheFirstRankIsItsOwn) {
  Health health = Equal();
  for (int i = 1; i < 4; ++i) health.nodes[static_cast<std::size_t>(i)].skew = -2;
  Judge({}, &health);
  EXPECT_THAT(health.bad_hosts, ElementsAre("node0"));
  EXPECT_EQ(health.findings[0].what, "clock");
}

TEST(Check, OneNodeIsHeldToGivenBounds) {
  Health health = Equal();
  health.nodes.resize(1);
  health.pairs.clear();
  Bounds bounds;
  bounds.compute = 1e11;
  Judge(bounds, &health);
  ASSERT_EQ(health.findings.size(), 1u);
  EXPECT_EQ(HealthJson(health, bounds)["healthy"], false);
}

TEST(Check, ADiskThatCannotBeWrittenIsAFinding) {
  const NodeHealth node = MeasureNode("/no/such/folder");
  EXPECT_THAT(node.problem, HasSubstr("cannot write to /no/such/folder"));
  EXPECT_GT(node.compute, 0);
  EXPECT_GT(node.memory, 0);
}

TEST(Check, EveryPairMeetsOnce) {
  for (int64_t ranks = 1; ranks <= 9; ++ranks) {
    std::set<std::pair<int64_t, int64_t>> pairs;
    for (const std::vector<int64_t>& round : PairRounds(ranks)) {
      for (int64_t a = 0; a < ranks; ++a) {
        const int64_t b = round[static_cast<std::size_t>(a)];
        if (b < 0) continue;
        ASSERT_EQ(round[static_cast<std::size_t>(b)], a);
        if (a < b) {
          EXPECT_TRUE(pairs.emplace(a, b).second);
        }
      }
    }
    EXPECT_EQ(pairs.size(), static_cast<std::size_t>(ranks * (ranks - 1) / 2)) << ranks;
  }
}

TEST(Check, RanksMeasureAllTheirPairs) {
  std::vector<PairHealth> pairs;
  std::vector<NodeHealth> nodes;
  const std::string failure = launch::RunLocalRanks(3, [&](comm::Endpoint* endpoint) {
    NodeHealth own;
    own.compute = 1e9 * static_cast<double>(endpoint->rank() + 1);
    const std::vector<NodeHealth> all = GatherNodes(endpoint, own, 30);
    const std::vector<PairHealth> measured = MeasurePairs(endpoint, 30);
    if (endpoint->rank() != 0) return;
    nodes = all;
    pairs = measured;
  });
  EXPECT_EQ(failure, "");
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_DOUBLE_EQ(nodes[2].compute, 3e9);
  ASSERT_EQ(pairs.size(), 3u);
  for (const PairHealth& pair : pairs) EXPECT_GT(pair.rate, 0);
}

}  // namespace
}  // namespace orrery::check
