// SPDX-License-Identifier: Apache-2.0
// Inside one node: mesh rings, multi-hop routes, PCIe routes, nearest NICs.
#include <gmock/gmock.h>

#include "model/hardware/node_template.h"
#include "model/hardware/print.h"
#include "model/hardware/rings.h"
#include "tests/topo/testing.h"

namespace orrery {
namespace {

double Rate(const Cluster& cluster, int64_t from, int64_t to, int channel = 0) {
  return cluster.Bottleneck(cluster.Route(from, to, channel)).value / 1e9;
}

TEST(Rings, PackIntoTheHybridCubeMeshAsMeasured) {
  const ClusterSummary node = Summarise(LoadTopology("dgx1-v100"), 1);
  const int expected[] = {0, 0, 1, 2, 4, 0, 2, 4, 6};  // by number of GPUs
  for (int n = 0; n <= 8; ++n) EXPECT_EQ(node.PackedRings(n), expected[n]) << n << " GPUs";
  EXPECT_EQ(node.PackedRings(9), 0);
  for (int n = 0; n <= 9; ++n) EXPECT_EQ(node.RelayedRings(n), n == 5 ? 2 : 0) << n << " GPUs";
}

// All links, but of four and six GPUs (Tillson 1980).
TEST(Rings, PackIntoFullMeshes) {
  std::vector<MeshLink> mesh;
  for (int a = 0; a < 8; ++a) {
    for (int b = a + 1; b < 8; ++b) mesh.push_back({a, b, 1});
  }
  const int expected[] = {0, 0, 1, 2, 2, 4, 4, 6, 7};  // by number of GPUs
  for (int n = 0; n <= 8; ++n) EXPECT_EQ(PackedRings(mesh, n), expected[n]) << n << " GPUs";
}

TEST(Rings, OfSmallMeshesByHand) {
  EXPECT_EQ(PackedRings({{0, 1, 3}}, 2), 3);                        // both ways over each link
  EXPECT_EQ(PackedRings({{0, 1, 1}, {1, 2, 1}}, 3), 0);             // a chain has none
  EXPECT_EQ(PackedRings({{0, 1, 1}, {1, 2, 1}, {0, 2, 1}}, 3), 2);  // a triangle, both ways round
  EXPECT_EQ(PackedRings({{0, 1, 2}, {0, 2, 2}, {0, 3, 2}, {1, 2, 2}, {1, 3, 2}, {2, 3, 2}}, 4), 6);
  EXPECT_EQ(PackedRings({{0, 1, 1}}, 1), 0);
  EXPECT_EQ(RelayedRings({{0, 1, 1}, {1, 2, 1}}, 3), 1);             // there, and back through 1
  EXPECT_EQ(RelayedRings({{0, 1, 1}, {2, 3, 1}}, 4), 0);             // two parts
  EXPECT_EQ(RelayedRings({{0, 1, 1}, {1, 2, 1}, {0, 2, 1}}, 3), 2);  // no need to
}

TEST(Rings, NvSwitchHasNone) { EXPECT_EQ(Summarise(LoadTopology("aws-p4d"), 1).PackedRings(8), 0); }

TEST(NicsInUse, AreThoseNearestToAGpuInUse) {
  const auto nics = [](const std::string& topology, int gpus) {
    return Summarise(LoadTopology(topology), 2, gpus).nics_per_node;
  };
  EXPECT_EQ(nics("olivia-gh200", 1), 1);
  EXPECT_EQ(nics("olivia-gh200", 4), 4);
  EXPECT_EQ(nics("jean-zay-v100", 1), 2);  // two on its PCIe switch
  EXPECT_EQ(nics("jean-zay-v100", 3), 4);
  EXPECT_EQ(nics("dgx1-v100", 2), 1);  // two GPUs share one
  EXPECT_EQ(nics("dgx1-v100", 0), 4);
}

TEST(CubeMesh, HasSixLinksPerGpu) {
  const TopologySpec spec = LoadTopology("dgx1-v100");
  std::vector<int> links(8, 0);
  for (const MeshLink& link : spec.node.mesh) {
    links[static_cast<std::size_t>(link.a)] += link.count;
    links[static_cast<std::size_t>(link.b)] += link.count;
  }
  EXPECT_EQ(links, std::vector<int>(8, 6));
  EXPECT_DOUBLE_EQ(ScaleUpPerGpu(spec.node).value, 150e9);
}

TEST(CubeMesh, GoesOverAnotherGpuWithoutADirectLink) {
  const Cluster cluster = BuildCluster(LoadTopology("dgx1-v100"), 1);
  EXPECT_EQ(cluster.Route(0, 3).size(), 1u);
  EXPECT_DOUBLE_EQ(Rate(cluster, 0, 3), 50);  // two links
  EXPECT_DOUBLE_EQ(Rate(cluster, 0, 1), 25);
  EXPECT_EQ(cluster.Route(0, 7).size(), 2u);
  EXPECT_DOUBLE_EQ(Rate(cluster, 0, 7), 50);  // over GPU 4, the wider of two ways
}

TEST(Bridges, UnlinkedPairsUsePcie) {
  std::string text = TopologyText(4, 1, "kind: single-switch");
  const std::string switched = "{kind: nvswitch, links_per_gpu: 18, per_link: 25GB/s}";
  text.replace(text.find(switched), switched.size(),
               "{kind: cube-mesh, per_link: 25GB/s, links: [[gpu0, gpu1, 4], [gpu2, gpu3, 4]]}");
  const Cluster cluster = BuildCluster(ParseTopology(text), 1);
  EXPECT_DOUBLE_EQ(Rate(cluster, 0, 1), 100);
  EXPECT_DOUBLE_EQ(Rate(cluster, 1, 2), 63);
  ExpectAllRoutesValid(cluster, 1);
}

TEST(Pcie, PassesBetweenHosts) {
  const Cluster cluster = BuildCluster(LoadTopology("aws-g5-48xl"), 1);
  EXPECT_DOUBLE_EQ(Rate(cluster, 0, 3), 31.5);
  EXPECT_DOUBLE_EQ(Rate(cluster, 0, 7), 16);
}

TEST(Nics, NearestFirstAndSharedFairly) {
  const NodeTemplate dgx(LoadTopology("dgx-a100-80").node);  // 2 GPUs and 2 NICs per switch
  EXPECT_EQ(dgx.NearestNics(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(dgx.NearestNics(1), (std::vector<int>{1, 0}));
  EXPECT_EQ(dgx.NearestNics(7), (std::vector<int>{7, 6}));
  const NodeTemplate p4d(LoadTopology("aws-p4d").node);  // 2 GPUs share one NIC
  EXPECT_EQ(p4d.NearestNics(6), std::vector<int>{3});
  EXPECT_EQ(p4d.NearestNics(7), std::vector<int>{3});
  const NodeTemplate p5(LoadTopology("aws-p5").node);  // 4 NICs per GPU
  EXPECT_EQ(p5.NearestNics(2), (std::vector<int>{8, 9, 10, 11}));
  EXPECT_EQ(p5.NicOf(2, 5), 9);
  const NodeTemplate p3dn(LoadTopology("aws-p3dn").node);  // one NIC, on the other host of GPU 7
  EXPECT_EQ(p3dn.NearestNics(7), std::vector<int>{0});
}

// The port is as slow in the graph as it is, and closed forms go by the slowest.
TEST(Nics, OneThatIsDegradedHasItsOwnRate) {
  std::string text = TopologyText(4, 2, "kind: single-switch");
  const std::size_t at = text.find("nics: {"), end = text.find('}', at);
  ASSERT_NE(at, std::string::npos);
  const TopologySpec whole = ParseTopology(text);
  text.insert(end, ", degraded: {nic1: 10Gbps}");
  const TopologySpec spec = ParseTopology(text);
  EXPECT_DOUBLE_EQ(Summarise(spec, 2).nic_rate.value, 1.25e9);
  EXPECT_DOUBLE_EQ(spec.node.nic_rate.value, whole.node.nic_rate.value);
  const Cluster cluster = BuildCluster(spec, 2);
  std::size_t slow = 0;
  for (LinkId id = 0; id < static_cast<LinkId>(cluster.links.size()); ++id) {
    const Link& link = cluster.links[static_cast<std::size_t>(id)];
    if (link.kind != LinkKind::kNicPort) continue;
    const bool is_slow = cluster.LinkName(id).find("nic1") != std::string::npos;
    slow += is_slow ? 1 : 0;
    EXPECT_DOUBLE_EQ(link.capacity.value, is_slow ? 1.25e9 : spec.node.nic_rate.value);
  }
  EXPECT_EQ(slow, 4u);  // two nodes, both ways
  EXPECT_THAT(PrintTopology(spec, 2), testing::HasSubstr("nic1 at 1.25 GB/s = 10 Gbps"));
  for (const char* wrong : {"nic9: 10Gbps", "nic1: 900Gbps"}) {
    std::string bad = text;
    bad.replace(bad.find("nic1: 10Gbps"), 12, wrong);
    EXPECT_THROW(ParseTopology(bad), InputError) << wrong;
  }
}

TEST(Counts, PartOfANodeKeepsItsNumbering) {
  const Cluster cluster = BuildCluster(LoadTopology("aws-p4d"), 2, 2);
  EXPECT_EQ(cluster.ranks(), 4);
  EXPECT_EQ(cluster.DeviceName(cluster.GpuOf(3)), "n1.gpu1");
  ExpectAllRoutesValid(cluster, 2);
}

TEST(Counts, OutOfRangeIsAnInputError) {
  const TopologySpec spec = LoadTopology("selene");
  for (const int64_t nodes :
       {int64_t{0}, int64_t{-1}, int64_t{561}, int64_t{1'000'000'000}, INT64_MAX}) {
    EXPECT_THROW(Summarise(spec, nodes), InputError) << nodes;
    EXPECT_THROW(BuildCluster(spec, nodes), InputError) << nodes;
  }
  EXPECT_THROW(Summarise(spec, 1, 9), InputError);
  EXPECT_THROW(Summarise(spec, 1, -1), InputError);
  EXPECT_THROW(BuildCluster(LoadTopology("localhost"), 2), InputError);
}

// An NVL72: 18 trays of 4 GPUs on one switch, more trays behind NICs.
TEST(Domains, NodesOnOneSwitchReachEachOtherWithoutNics) {
  const Cluster cluster = BuildCluster(LoadTopology("nvl72-gb200"), 32);
  EXPECT_EQ(cluster.summary.domains(), 2);
  EXPECT_EQ(cluster.summary.domain_gpus(), 64);
  EXPECT_EQ(cluster.NodeOf(63), 15);
  EXPECT_EQ(cluster.DomainOf(63), 0);
  EXPECT_EQ(cluster.DomainOf(64), 1);
  const auto kinds = [&](int64_t from, int64_t to) {
    std::vector<LinkKind> found;
    for (const LinkId link : cluster.Route(from, to))
      found.push_back(cluster.links[static_cast<std::size_t>(link)].kind);
    return found;
  };
  const std::vector<LinkKind> switched{LinkKind::kScaleUp, LinkKind::kScaleUp};
  EXPECT_EQ(kinds(0, 1), switched);   // one tray
  EXPECT_EQ(kinds(0, 63), switched);  // the last tray of the rack
  EXPECT_TRUE(kinds(5, 5).empty());
  EXPECT_DOUBLE_EQ(Rate(cluster, 0, 63), 900);
  EXPECT_DOUBLE_EQ(Rate(cluster, 0, 64), 50);  // the next rack: a NIC of 400 Gbit/s
  EXPECT_EQ(std::ranges::count(kinds(0, 64), LinkKind::kScaleUp), 0);
  ExpectAllRoutesValid(cluster, 3);
}

TEST(Domains, NodesAreLaidEvenlyOverAsFewAsHoldThem) {
  const TopologySpec spec = LoadTopology("nvl72-gb200");
  const auto domains = [&](int64_t nodes) { return Summarise(spec, nodes).domains(); };
  EXPECT_EQ(domains(1), 1);
  EXPECT_EQ(domains(3), 1);
  EXPECT_EQ(domains(18), 1);
  EXPECT_EQ(domains(20), 2);
  EXPECT_EQ(domains(32), 2);
  EXPECT_EQ(domains(36), 2);
  EXPECT_EQ(domains(40), 4);  // three racks cannot take 40 trays evenly
  EXPECT_EQ(domains(64), 4);  // 256 GPUs: four racks of 64
  EXPECT_EQ(Summarise(spec, 64, 2).domain_gpus(), 32);
  EXPECT_EQ(Summarise(spec, 64).domain_nics(), 64);
  EXPECT_EQ(Summarise(LoadTopology("dgx-h100"), 64).domains(), 64);
}

TEST(Domains, UnevenCountsAreRefusedWithTheNearestThatWork) {
  const TopologySpec spec = LoadTopology("nvl72-gb200");
  for (const int64_t nodes : {19, 37}) {
    try {
      Summarise(spec, nodes);
      FAIL() << nodes << " nodes were accepted";
    } catch (const InputError& error) {
      const std::string hint = nodes == 19 ? "ask for 18 or 20" : "ask for 36 or 39";
      EXPECT_NE(std::string(error.what()).find(hint), std::string::npos) << error.what();
    }
  }
}

// A rack sends through all its NICs, and its halves meet on the switch.
TEST(Domains, BisectionIsOfTheSwitchInsideOneAndOfNicsBetween) {
  const TopologySpec spec = LoadTopology("nvl72-gb200");
  EXPECT_DOUBLE_EQ(Bisection(spec, 16).value, 8 * 4 * 900e9);
  EXPECT_DOUBLE_EQ(Bisection(spec, 32).value, 16 * 4 * 50e9);
}

TEST(Counts, TooManyForAGraphIsAnInputError) {
  std::string text = TopologyText(64, 65'536, "kind: single-switch");
  EXPECT_EQ(Summarise(ParseTopology(text), 65'536).ranks(), 4'194'304);
  EXPECT_THROW(BuildCluster(ParseTopology(text), 65'536), InputError);
}

TEST(Rings, DenseMeshesEndWithinTheBudget) {
  std::string text = TopologyText(64, 1, "kind: single-switch");
  const std::string switched = "{kind: nvswitch, links_per_gpu: 18, per_link: 25GB/s}";
  text.replace(text.find(switched), switched.size(),
               "{kind: full-mesh, links_per_pair: 1, per_link: 25GB/s}");
  const TopologySpec spec = ParseTopology(text);
  EXPECT_EQ(spec.node.packed_rings[3], 2);
  EXPECT_EQ(spec.node.packed_rings[5], 4);
  EXPECT_GE(spec.node.packed_rings[8], 6);
}

TEST(Summary, CarriesTheFigures) {
  const ClusterSummary p4d = Summarise(LoadTopology("aws-p4d"), 16);
  EXPECT_EQ(p4d.ranks(), 128);
  EXPECT_EQ(p4d.intra, IntraLink::kNvSwitch);
  EXPECT_DOUBLE_EQ(p4d.scaleup_per_gpu.value, 300e9);
  EXPECT_DOUBLE_EQ(p4d.node_rate().value, 50e9);
  ASSERT_TRUE(p4d.node_price.has_value());
  EXPECT_NEAR(p4d.node_price->value, 21.957642, 1e-9);
  EXPECT_FALSE(Summarise(LoadTopology("selene"), 1).node_price.has_value());
  EXPECT_TRUE(Summarise(LoadTopology("selene"), 1).rail_optimised);
  EXPECT_EQ(Summarise(LoadTopology("mistral-2x8"), 2).gpu, kUnknownGpu);
}

}  // namespace
}  // namespace orrery
