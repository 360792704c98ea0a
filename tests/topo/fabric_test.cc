// SPDX-License-Identifier: Apache-2.0
// Between nodes: fat trees, rails, dragonflies and tori route every pair; bottleneck times by hand.
#include "tests/topo/testing.h"

namespace orrery {
namespace {

constexpr Bytes kGigabyte(1e9);
constexpr double kNic = 12.5e9;

Cluster Build(int gpus, int64_t nodes, const std::string& fabric) {
  return BuildCluster(ParseTopology(TopologyText(gpus, static_cast<int>(nodes), fabric)), nodes);
}

// Every rank sends one gigabyte to the rank `shift` further.
double ShiftSeconds(const Cluster& cluster, int64_t shift) {
  std::vector<Flow> flows;
  for (int64_t r = 0; r < cluster.ranks(); ++r)
    flows.push_back({r, (r + shift) % cluster.ranks(), kGigabyte});
  return BottleneckTime(cluster, flows).value;
}

std::size_t CountKind(const Cluster& cluster, DeviceKind kind) {
  return static_cast<std::size_t>(
      std::count_if(cluster.devices.begin(), cluster.devices.end(),
                    [&](const Device& device) { return device.kind == kind; }));
}

class EveryFabric : public testing::TestWithParam<std::string> {};

TEST_P(EveryFabric, RoutesEveryPair) {
  for (const int gpus : {1, 2}) {
    for (const int64_t nodes : {1, 2, 5, 12})
      ExpectAllRoutesValid(Build(gpus, nodes, GetParam()), 4);
  }
}

TEST_P(EveryFabric, NodesReachEachOtherAtMostAtNicRate) {
  const Cluster cluster = Build(2, 12, GetParam());
  EXPECT_GE(ShiftSeconds(cluster, 2), 1e9 / kNic * (1 - 1e-12));
}

INSTANTIATE_TEST_SUITE_P(
    Fabrics, EveryFabric,
    testing::Values(
        "kind: single-switch", "kind: fat-tree, levels: 2, leaf_ports: 4",
        "kind: fat-tree, levels: 2, leaf_ports: 4, oversubscription: 3",
        "kind: fat-tree, levels: 3, leaf_ports: 4, pod_leaves: 2",
        "kind: rail-optimised, levels: 2, leaf_ports: 4",
        "kind: rail-optimised, levels: 3, leaf_ports: 2, pod_leaves: 2, oversubscription: 2",
        "kind: dragonfly, routers_per_group: 2, ports_per_router: 2, global_links: 3, link_rate: "
        "100Gbps",
        "kind: dragonfly, routers_per_group: 3, ports_per_router: 1, global_links: 7, link_rate: "
        "100Gbps",
        "kind: dragonfly, routers_per_group: 1, ports_per_router: 2, global_links: 11, link_rate: "
        "200Gbps",
        "kind: torus, dims: [12], link_rate: 100Gbps",
        "kind: torus, dims: [4, 3], link_rate: 100Gbps",
        "kind: torus, dims: [2, 2, 3], link_rate: 100Gbps",
        "kind: torus, dims: [1, 12, 1], link_rate: 100Gbps"));

TEST(FatTree, FullBisectionCarriesEveryShiftBetweenLeaves) {
  const Cluster cluster = Build(1, 16, "kind: fat-tree, levels: 2, leaf_ports: 4");
  EXPECT_EQ(CountKind(cluster, DeviceKind::kLeaf), 4u);
  EXPECT_EQ(CountKind(cluster, DeviceKind::kSpine), 4u);
  for (int64_t shift = 1; shift < 16; ++shift) {
    EXPECT_NEAR(ShiftSeconds(cluster, shift), 1e9 / kNic, 1e-12) << "shift by " << shift;
  }
}

TEST(FatTree, ThreeLevelsCarryShiftsBetweenPods) {
  const Cluster cluster = Build(1, 16, "kind: fat-tree, levels: 3, leaf_ports: 2, pod_leaves: 2");
  EXPECT_EQ(CountKind(cluster, DeviceKind::kCore), 4u);
  EXPECT_EQ(cluster.Route(0, 15).size(), 10u);  // GPU, host, NIC, leaf, spine, core and down again
  for (const int64_t shift : {2, 4, 8})
    EXPECT_NEAR(ShiftSeconds(cluster, shift), 1e9 / kNic, 1e-12) << shift;
}

TEST(FatTree, OversubscriptionDividesWhatLeavesALeaf) {
  for (const double ratio : {1.0, 2.0, 4.0}) {
    const Cluster cluster = Build(
        1, 16,
        "kind: fat-tree, levels: 2, leaf_ports: 8, oversubscription: " + std::to_string(ratio));
    EXPECT_NEAR(ShiftSeconds(cluster, 8), ratio * 1e9 / kNic,
                1e-9);  // all flows between the two leaves
    EXPECT_NEAR(Bisection(cluster.spec, 16).value, 8 * kNic / ratio, 1);
    EXPECT_NEAR(Bisection(cluster.spec, 8).value, 4 * kNic, 1) << "one leaf";
  }
}

TEST(FatTree, UplinksOfALeafCarryExactlyTheRatio) {
  const Cluster cluster =
      Build(1, 16, "kind: fat-tree, levels: 2, leaf_ports: 8, oversubscription: 3");
  double uplinks = 0;
  for (const Link& link : cluster.links) {
    const Device& from = cluster.devices[static_cast<std::size_t>(link.from)];
    const Device& to = cluster.devices[static_cast<std::size_t>(link.to)];
    if (from.kind == DeviceKind::kLeaf && from.index == 0 && to.kind == DeviceKind::kSpine) {
      uplinks += link.capacity.value;
    }
  }
  EXPECT_NEAR(uplinks, 8 * kNic / 3, 1);
}

TEST(Rails, SameGpuIndexNeedsNoSpine) {
  const Cluster cluster =
      Build(4, 8, "kind: rail-optimised, levels: 2, leaf_ports: 8, oversubscription: 8");
  EXPECT_EQ(CountKind(cluster, DeviceKind::kLeaf), 4u);
  EXPECT_NEAR(ShiftSeconds(cluster, 4), 1e9 / kNic, 1e-12);  // GPU k to GPU k of the next node
  for (const LinkId id : cluster.Route(0, 4)) {
    EXPECT_NE(cluster.links[static_cast<std::size_t>(id)].kind, LinkKind::kFabric);
  }
  const std::vector<LinkId> across = cluster.Route(0, 5);
  EXPECT_TRUE(std::any_of(across.begin(), across.end(), [&](LinkId id) {
    return cluster.links[static_cast<std::size_t>(id)].kind == LinkKind::kFabric;
  }));
}

TEST(Dragonfly, MinimalRoutesTakeAtMostThreeSwitchLinks) {
  const Cluster cluster =
      Build(1, 24,
            "kind: dragonfly, routers_per_group: 4, ports_per_router: 2, global_links: 2, "
            "link_rate: 100Gbps");
  EXPECT_EQ(CountKind(cluster, DeviceKind::kRouter), 12u);
  ExpectAllRoutesValid(cluster, 4);
  for (int64_t to = 1; to < cluster.ranks(); ++to) {
    const std::vector<LinkId> route = cluster.Route(0, to);
    const auto hops = std::count_if(route.begin(), route.end(), [&](LinkId id) {
      return cluster.links[static_cast<std::size_t>(id)].kind == LinkKind::kFabric;
    });
    EXPECT_LE(hops, to < 8 ? 1 : 3) << to;
  }
}

TEST(Torus, TakesTheShorterWayRound) {
  const Cluster cluster = Build(1, 8, "kind: torus, dims: [8], link_rate: 100Gbps");
  const std::size_t ends = 6;  // GPU, host, NIC, router, and the same back
  EXPECT_EQ(cluster.Route(0, 3).size(), ends + 3);
  EXPECT_EQ(cluster.Route(0, 7).size(), ends + 1);
  EXPECT_NE(cluster.Route(0, 4, 0), cluster.Route(0, 4, 1))
      << "half-way round, channels go both ways";
  EXPECT_NEAR(Bisection(cluster.spec, 8).value, 2 * kNic, 1);
}

TEST(Bottleneck, AddsFlowsOnSharedLinks) {
  const Cluster cluster = BuildCluster(LoadTopology("aws-p4d"), 2);  // GPUs 0 and 1 share a NIC
  const std::vector<Flow> apart = {{0, 8, kGigabyte}, {2, 10, kGigabyte}};
  const std::vector<Flow> shared = {{0, 8, kGigabyte}, {1, 9, kGigabyte}};
  const std::vector<Flow> opposite = {{0, 8, kGigabyte}, {8, 0, kGigabyte}};
  EXPECT_NEAR(BottleneckTime(cluster, apart).value, 0.08, 1e-12);
  EXPECT_NEAR(BottleneckTime(cluster, shared).value, 0.16, 1e-12);
  EXPECT_NEAR(BottleneckTime(cluster, opposite).value, 0.08, 1e-12);
  EXPECT_EQ(BottleneckTime(cluster, {}).value, 0);
  const std::vector<Flow> self = {{3, 3, kGigabyte}};
  EXPECT_EQ(BottleneckTime(cluster, self).value, 0);
}

TEST(Bottleneck, ReproducesAnOversubscribedRing) {
  // Send/recv ring over all ranks: only the last GPU of a node sends to the next node. Measured on
  // this cluster: 43 GB/s on 4 nodes, 14.5 on 16 (togethercomputer/together-dgxc-benchmarking).
  const TopologySpec spec = LoadTopology("together-b200");
  const double four = 1 / ShiftSeconds(BuildCluster(spec, 4), 1);
  const double sixteen = 1 / ShiftSeconds(BuildCluster(spec, 16), 1);
  EXPECT_NEAR(four, 43.5, 3);
  EXPECT_NEAR(sixteen, 14.5, 1);
}

}  // namespace
}  // namespace orrery
