// SPDX-License-Identifier: Apache-2.0
// Slow links and failed NICs: names, routes around them, what they cost.
#include "model/hardware/faults.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tests/topo/testing.h"

namespace orrery {
namespace {

using testing::HasSubstr;

const char* const kFabrics[] = {
    "kind: single-switch",
    "kind: fat-tree, levels: 2, leaf_ports: 8, oversubscription: 2",
    "kind: rail-optimised, levels: 2, leaf_ports: 2",
    "kind: dragonfly, routers_per_group: 2, ports_per_router: 4, global_links: 2, link_rate: "
    "25GB/s",
    "kind: torus, dims: [2, 2], link_rate: 25GB/s",
};

Cluster Build(const std::string& fabric, int gpus = 4, int64_t nodes = 4) {
  return BuildCluster(ParseTopology(TopologyText(gpus, 4, fabric)), nodes);
}

// One edge of every ring that spans two nodes: GPU i of node 0 to GPU i of node 1 and back.
double RingSeconds(const Cluster& cluster) {
  std::vector<Flow> flows;
  for (int64_t i = 0; i < cluster.gpus_per_node; ++i) {
    flows.push_back({i, i + cluster.gpus_per_node, Bytes(1e9), 0});
    flows.push_back({i + cluster.gpus_per_node, i, Bytes(1e9), 0});
  }
  return BottleneckTime(cluster, flows).value;
}

TEST(FailedNic, RoutesAvoidItOnEveryFabric) {
  for (const char* fabric : kFabrics) {
    SCOPED_TRACE(fabric);
    Cluster cluster = Build(fabric);
    FailNics(std::vector<NicOfNode>{{0, 1}, {2, 0}, {2, 3}}, &cluster);
    ExpectAllRoutesValid(cluster, 4);  // with capacity on every link
  }
}

TEST(FailedNic, LeavesTheRoutesOfOthersAsTheyWere) {
  const Cluster healthy = Build(kFabrics[1]);
  Cluster cluster = healthy;
  FailNics(std::vector<NicOfNode>{{0, 1}}, &cluster);
  for (int64_t from = 0; from < cluster.ranks(); ++from) {
    for (int64_t to = 0; to < cluster.ranks(); ++to) {
      if (from != 1 && to != 1) {
        EXPECT_EQ(cluster.Route(from, to), healthy.Route(from, to)) << from << " to " << to;
      }
    }
  }
  EXPECT_NE(cluster.Route(1, 4), healthy.Route(1, 4));
}

TEST(FailedNic, ItsGpuTakesTheNearestOneLeft) {
  Cluster cluster = BuildCluster(LoadTopology("dgx-a100-80"), 2);  // 2 GPUs, 2 NICs on a switch
  const auto nic_of = [&](int64_t rank) {
    for (const LinkId id : cluster.Route(rank, 8)) {
      const Link& link = cluster.links[static_cast<std::size_t>(id)];
      if (link.kind == LinkKind::kNicPort) return cluster.DeviceName(link.from);
    }
    return std::string();
  };
  EXPECT_EQ(nic_of(0), "n0.nic0");
  FailNics(std::vector<NicOfNode>{{0, 0}}, &cluster);
  EXPECT_EQ(nic_of(0), "n0.nic1");
  EXPECT_EQ(nic_of(1), "n0.nic1");
  FailNics(std::vector<NicOfNode>{{0, 0}, {0, 1}}, &cluster);
  EXPECT_EQ(nic_of(0), "n0.nic2");  // the other switch of the same host
  EXPECT_EQ(nic_of(1), "n0.nic3");
  EXPECT_EQ(nic_of(2), "n0.nic2");
  EXPECT_EQ(nic_of(3), "n0.nic3");
}

TEST(FailedNic, DoublesTheTimeOfTheNicThatTakesOver) {
  Cluster cluster = Build(kFabrics[0], 8, 2);
  const double healthy = RingSeconds(cluster);
  EXPECT_NEAR(healthy, 1e9 / 12.5e9, 1e-12);
  FailNics(std::vector<NicOfNode>{{0, 3}}, &cluster);
  EXPECT_NEAR(RingSeconds(cluster), 2 * healthy, 1e-12);
}

TEST(FailedNic, LosesItsLinks) {
  Cluster cluster = Build(kFabrics[0]);
  FailNics(std::vector<NicOfNode>{{3, 2}}, &cluster);
  EXPECT_EQ(
      std::ranges::count(cluster.links, 0.0, [](const Link& link) { return link.capacity.value; }),
      4);  // host and switch, both ways
}

TEST(FailedNic, TheLastOneOfANodeCutsItOff) {
  Cluster cluster = Build(kFabrics[0], 2, 3);
  FailNics(std::vector<NicOfNode>{{1, 0}, {1, 1}}, &cluster);
  EXPECT_FALSE(cluster.Route(2, 3).empty());  // inside node 1
  EXPECT_FALSE(cluster.Route(0, 4).empty());  // past it
  for (const auto& [from, to] : {std::pair(0, 2), std::pair(3, 5)}) {
    try {
      cluster.Route(from, to);
      ADD_FAILURE() << from << " reaches " << to;
    } catch (const NoRoute& gap) {
      EXPECT_EQ(gap.from(), from);
      EXPECT_EQ(gap.to(), to);
      EXPECT_THAT(gap.Of("send").what(),
                  HasSubstr("send: no route from rank " + std::to_string(from) + " to rank " +
                            std::to_string(to) + ": every NIC of node 1 has failed"));
    }
  }
}

TEST(SlowLink, SlowsARingInProportionWhenItIsTheBottleneck) {
  for (const double share : {0.9, 0.5, 0.1}) {
    Cluster cluster = Build(kFabrics[0], 8, 2);
    const double healthy = RingSeconds(cluster);
    DegradeLinks(MatchLinks(cluster, "n0.nic3 -> switch"), share, &cluster);
    EXPECT_NEAR(RingSeconds(cluster), healthy / share, 1e-12);
  }
}

TEST(SlowLink, CostsNothingWhileAnotherLinkIsSlower) {
  Cluster cluster = Build(kFabrics[0], 8, 2);
  const double healthy = RingSeconds(cluster);
  DegradeLinks(MatchLinks(cluster, "n0.gpu3 -> n0.cpu0"), 0.5, &cluster);  // 63 GB/s to 31.5 GB/s
  EXPECT_EQ(RingSeconds(cluster), healthy);
}

TEST(LinkNames, AreTakenAsTheyArePrinted) {
  const Cluster cluster = Build(kFabrics[1]);
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const auto link = static_cast<LinkId>(i);
    const std::vector<LinkId> found = MatchLinks(cluster, cluster.LinkName(link));
    EXPECT_NE(std::ranges::find(found, link), found.end()) << cluster.LinkName(link);
    EXPECT_EQ(found.size(), 1u) << cluster.LinkName(link);
  }
  const std::vector<LinkId> one = MatchLinks(cluster, "n0.nic1 -> leaf0");
  EXPECT_EQ(one.size(), 1u);
  EXPECT_EQ(MatchLinks(cluster, "n0.nic1>leaf0"), one);
  EXPECT_EQ(MatchLinks(cluster, "n0.nic1 > leaf0"), one);
  EXPECT_EQ(MatchLinks(cluster, "n0.nic1 <-> leaf0").size(), 2u);
  EXPECT_EQ(MatchLinks(cluster, "n0.nic? -> leaf*").size(), 4u);
  EXPECT_EQ(MatchLinks(cluster, "*").size(), cluster.links.size());
  EXPECT_EQ(MatchLinks(cluster, "*nic1->leaf*").size(), 4u);
  for (const char* nothing : {"", "n0.nic1", "leaf0 -> n0.nic", "n0.nic1 -> leaf0x", "->", "?"})
    EXPECT_TRUE(MatchLinks(cluster, nothing).empty()) << nothing;
}

TEST(LinkNames, SuggestWhatIsNear) {
  const Cluster cluster = Build(kFabrics[1]);
  EXPECT_THAT(SuggestLink(cluster, "n0.nic1 -> laef0"), HasSubstr("'n0.nic1 -> leaf0'"));
  EXPECT_THAT(SuggestLink(cluster, "n0.nic1"), HasSubstr("is a device; links of it are 'n0."));
  EXPECT_THAT(SuggestLink(cluster, "the cable"), HasSubstr("`plan topo test`"));
}

}  // namespace
}  // namespace orrery
