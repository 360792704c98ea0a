// SPDX-License-Identifier: Apache-2.0
// Fabrics of named switches and hosts: unequal leaves, rails, failed links, min-cuts.
#include <gmock/gmock.h>

#include "model/hardware/flow.h"
#include "model/hardware/host_order.h"
#include "model/hardware/node_order.h"
#include "model/hardware/print.h"
#include "tests/topo/testing.h"

namespace orrery {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// Leaves of 3, 2 and 1 hosts with one NIC of 12.5 GB/s each; two spines.
constexpr const char* kUnequal =
    "kind: named, switches: [{name: leaf0, hosts: [a, b, c]}, {name: leaf1, hosts: [d, e]}, "
    "{name: leaf2, hosts: [f]}, {name: spine0}, {name: spine1}], links: ["
    "{between: [leaf0, spine0], rate: 100Gbps}, {between: [leaf0, spine1], rate: 100Gbps}, "
    "{between: [leaf1, spine0], rate: 100Gbps}, {between: [leaf1, spine1], rate: 100Gbps}, "
    "{between: [leaf2, spine0], rate: 100Gbps}]";

TopologySpec Unequal() { return ParseTopology(TopologyText(1, 6, kUnequal)); }

std::string ErrorOf(const std::string& fabric, int gpus = 1, int nodes = 2) {
  try {
    ParseTopology(TopologyText(gpus, nodes, fabric));
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(NamedFabric, RoutesEveryPair) {
  ASSERT_NO_FATAL_FAILURE(ExpectAllRoutesValid(BuildCluster(Unequal(), 6), 3));
  ASSERT_NO_FATAL_FAILURE(ExpectAllRoutesValid(BuildCluster(Unequal(), 4), 3));
}

TEST(NamedFabric, HostsOfALeafMeetThereAndOthersAboveIt) {
  const Cluster cluster = BuildCluster(Unequal(), 6);
  EXPECT_EQ(cluster.Route(0, 2).size(), 4 + 2u);  // PCIe on both sides, NIC ports of the leaf
  EXPECT_EQ(cluster.Route(0, 3).size(), 4 + 4u);  // over a spine
  EXPECT_NE(cluster.Route(0, 3, 0), cluster.Route(0, 3, 1));  // channels take both spines
  EXPECT_EQ(cluster.summary.leaf_nodes, 3);
  EXPECT_DOUBLE_EQ(cluster.summary.oversubscription, 1.5);
}

TEST(NamedFabric, BisectionIsTheMinCut) {
  const Cluster cluster = BuildCluster(Unequal(), 6);
  const Halves halves = WorstHalves(cluster);
  // a b c against d e f: leaf0 sends two links of 12.5 GB/s.
  EXPECT_DOUBLE_EQ(halves.rate.value, 25e9);
  EXPECT_EQ(halves.nodes.size(), 3u);
  EXPECT_DOUBLE_EQ(Bisection(Unequal(), 6).value, halves.rate.value);
  double cut = 0;
  for (const LinkId link : halves.cut)
    cut += cluster.links[static_cast<std::size_t>(link)].capacity.value;
  EXPECT_DOUBLE_EQ(cut, halves.rate.value);
}

TEST(NamedFabric, MinCutOfRegularFabricsIsTheClosedForm) {
  for (const char* fabric :
       {"kind: single-switch", "kind: fat-tree, levels: 2, leaf_ports: 4, oversubscription: 2"}) {
    const TopologySpec spec = ParseTopology(TopologyText(2, 8, fabric));
    EXPECT_NEAR(WorstHalves(BuildCluster(spec, 8)).rate.value, Bisection(spec, 8).value, 1)
        << fabric;
  }
}

TEST(NamedFabric, DetoursAroundAFailedLink) {
  Cluster cluster = BuildCluster(Unequal(), 6);
  bool detour = true;
  const std::vector<LinkId> whole = RouteAround(cluster, 0, 3, &detour);
  EXPECT_FALSE(detour);
  const std::string name = cluster.DeviceName(cluster.links[static_cast<std::size_t>(whole[3])].to);
  const std::vector<LinkId> failed = LinksBetween(cluster, "leaf0-" + name);
  ASSERT_EQ(failed.size(), 2u);
  FailLinks(failed, &cluster);
  const std::vector<LinkId> around = RouteAround(cluster, 0, 3, &detour);
  EXPECT_TRUE(detour);
  EXPECT_EQ(around.size(), whole.size());
  EXPECT_GT(cluster.Bottleneck(around).value, 0);
  EXPECT_DOUBLE_EQ(WorstHalves(cluster).rate.value, 12.5e9);
}

TEST(NamedFabric, SaysWhenNoRouteIsLeft) {
  Cluster cluster = BuildCluster(Unequal(), 6);
  const std::vector<LinkId> failed = LinksBetween(cluster, "f-leaf2");
  ASSERT_EQ(failed.size(), 2u);
  FailLinks(failed, &cluster);
  bool detour = false;
  EXPECT_TRUE(RouteAround(cluster, 0, 5, &detour).empty());
  EXPECT_TRUE(LinksBetween(cluster, "leaf0-leaf1").empty());
}

TEST(NamedFabric, RailsHaveALeafForEachNic) {
  const TopologySpec spec = ParseTopology(TopologyText(
      2, 3,
      "kind: named, switches: [{name: r0, hosts: [a, b, c], nics: [nic0]}, "
      "{name: r1, hosts: [a, b, c], nics: [nic1]}], links: [{between: [r0, r1], rate: 50Gbps}]"));
  const Cluster cluster = BuildCluster(spec, 3);
  EXPECT_TRUE(cluster.summary.rail_optimised);
  ASSERT_NO_FATAL_FAILURE(ExpectAllRoutesValid(cluster, 2));
  EXPECT_THAT(PrintTopology(spec, 3), HasSubstr("r0: a .. c (3 hosts, nodes 0..2), nic0"));
}

// Two leaves as they are cabled: even hosts on one, odd ones on the other.
std::string Interleaved(const std::string& more = "") {
  return "kind: named, " + more +
         "switches: [{name: leaf0, hosts: [node10, node0, node2]}, {name: leaf1, hosts: [node3, "
         "node1, node11]}, {name: spine}], links: [{between: [leaf0, spine], rate: 25Gbps}, "
         "{between: [leaf1, spine], rate: 25Gbps}]";
}

TEST(NamedFabric, NumbersHostsByNameInNaturalOrder) {
  const TopologySpec spec = ParseTopology(TopologyText(1, 6, Interleaved()));
  EXPECT_THAT(spec.fabric.hosts,
              ElementsAre("node0", "node1", "node2", "node3", "node10", "node11"));
  EXPECT_THAT(spec.fabric.switches[0].hosts, ElementsAre(0, 2, 4));
  EXPECT_THAT(spec.fabric.switches[1].hosts, ElementsAre(1, 3, 5));
  EXPECT_EQ(LeafNodes(spec), 1);  // node 1 is on another leaf than node 0
  const Cluster cluster = BuildCluster(spec, 6);
  ASSERT_NO_FATAL_FAILURE(ExpectAllRoutesValid(cluster, 2));
  EXPECT_EQ(cluster.Route(0, 2).size(), 4 + 2u);  // below leaf0
  EXPECT_EQ(cluster.Route(0, 1).size(), 4 + 4u);  // over the spine
  EXPECT_EQ(LinksBetween(cluster, "node1-leaf1"), LinksBetween(cluster, "n1-leaf1"));
  EXPECT_EQ(LinksBetween(cluster, "node1-leaf1").size(), 2u);
  const std::vector<Uplinks> uplinks = UplinksOf(spec, 6);
  ASSERT_EQ(uplinks.size(), 2u);
  EXPECT_THAT(uplinks[0].share, ElementsAre(1, 0, 1, 0, 1, 0));
  EXPECT_THAT(PrintTopology(spec, 6),
              AllOf(HasSubstr("nodes 0 to 5 are node0, node1, node2, node3, node10, node11, in "
                              "natural order of names"),
                    HasSubstr("leaf1: node1 .. node11 (3 hosts, nodes 1,3,5)"),
                    HasSubstr("spine > leaf1 > n1.nic0 > n1.cpu0 > n1.gpu0  (node0 to node1)")));
}

TEST(NamedFabric, NumbersHostsAsTheirListHasThem) {
  const TopologySpec spec = ParseTopology(
      TopologyText(1, 6, Interleaved("hosts: [node0, node2, node10, node1, node3, node11], ")));
  EXPECT_THAT(spec.fabric.hosts,
              ElementsAre("node0", "node2", "node10", "node1", "node3", "node11"));
  EXPECT_THAT(spec.fabric.switches[0].hosts, ElementsAre(0, 1, 2));
  EXPECT_EQ(LeafNodes(spec), 3);
  EXPECT_THAT(PrintTopology(spec, 6),
              AllOf(HasSubstr("as the list `hosts` has them"), HasSubstr("(node0 to node2)")));
}

// Neighbours of the halves share switches, whatever their numbers.
TEST(NamedFabric, NumbersDoNotMoveTheBisection) {
  const TopologySpec by_name = ParseTopology(TopologyText(1, 6, Interleaved()));
  EXPECT_DOUBLE_EQ(Bisection(by_name, 6).value, 25e9 / 8);
  EXPECT_THAT(WorstHalves(BuildCluster(by_name, 6)).nodes, ElementsAre(0, 2, 4));
}

TEST(NamedFabric, ComparesNumbersInNames) {
  EXPECT_TRUE(NaturallyLess("node2", "node10"));
  EXPECT_FALSE(NaturallyLess("node10", "node2"));
  EXPECT_TRUE(NaturallyLess("rack1-node9", "rack1-node10"));
  EXPECT_TRUE(NaturallyLess("rack2-node1", "rack10-node0"));
  EXPECT_TRUE(NaturallyLess("node", "node0"));
  EXPECT_TRUE(NaturallyLess("node02", "node2"));  // alike but for the zero: one order all the same
  EXPECT_FALSE(NaturallyLess("node2", "node02"));
  EXPECT_TRUE(NaturallyLess("n99999999999999999999998", "n99999999999999999999999"));
  EXPECT_FALSE(NaturallyLess("a", "a"));
}

TEST(NamedFabric, HostsAreNodesByNameToo) {
  const TopologySpec spec = ParseTopology(TopologyText(1, 6, Interleaved()));
  NamedNodes reader(spec.fabric);
  int64_t first = 0, last = 0;
  const auto read = [&](const char* text) {
    return reader.Read(text, &first, &last) ? std::pair(first, last)
                                            : std::pair(int64_t{-1}, int64_t{-1});
  };
  using Nodes = std::pair<int64_t, int64_t>;
  EXPECT_EQ(read("3"), Nodes(3, 3));
  EXPECT_EQ(read("node10"), Nodes(4, 4));
  EXPECT_EQ(read("node2..node10"), Nodes(2, 4));
  EXPECT_EQ(read("1..node3"), Nodes(1, 3));
  EXPECT_EQ(read("node12"), Nodes(-1, -1));
  EXPECT_THAT(reader.why, HasSubstr("'node12' is neither a node's number nor a host"));
  EXPECT_THAT(reader.hint, HasSubstr("did you mean 'node1"));
  EXPECT_EQ(read("node10..node2"), Nodes(-1, -1));
  EXPECT_THAT(reader.why, HasSubstr("begins with node 4 and ends with node 2"));
  EXPECT_EQ(reader.InNumbers("node10,0..2,node3,node11"), "4,0..2,3,5");
  EXPECT_EQ(reader.InNumbers("tp-cp-pp-dp:node10,node0..node3,5"), "tp-cp-pp-dp:4,0..3,5");
  EXPECT_EQ(reader.InNumbers("tp-cp-pp-dp"), "tp-cp-pp-dp");
  EXPECT_EQ(reader.InNumbers("node0,nod1"), std::nullopt);
  EXPECT_THAT(HostsInOrder(spec.fabric, std::vector<int32_t>{4, 0}), "node10, node0");
  NamedNodes unnamed{FabricSpec()};
  EXPECT_FALSE(unnamed.Read("node0", &first, &last));
  EXPECT_EQ(unnamed.why, "");
}

TEST(NamedFabric, ExplainsWrongListsOfHosts) {
  const std::string switches = "switches: [{name: s, hosts: [a, b]}]";
  EXPECT_THAT(ErrorOf("kind: named, hosts: [a, c], " + switches),
              HasSubstr("host 'c' is on no switch"));
  EXPECT_THAT(ErrorOf("kind: named, hosts: [a, a], " + switches),
              HasSubstr("host 'a' stands here twice"));
  EXPECT_THAT(ErrorOf("kind: named, hosts: [b], " + switches),
              HasSubstr("1 of 2 hosts: 'a' is missing"));
  EXPECT_THAT(ErrorOf("kind: named, hosts: a, " + switches),
              AllOf(HasSubstr("expected a list"), Not(HasSubstr("is missing"))));
  EXPECT_THAT(ErrorOf("kind: single-switch, hosts: [a, b]"), HasSubstr("hosts"));
}

TEST(NamedFabric, ExplainsWhatIsWrong) {
  EXPECT_THAT(ErrorOf("kind: named, switches: [{name: s, hosts: [a]}]"),
              HasSubstr("max_nodes is 2, but these switches have 1 hosts"));
  EXPECT_THAT(ErrorOf("kind: named, switches: [{name: s, hosts: [a]}, {name: t, hosts: [b]}]"),
              HasSubstr("no way from switch 's' to 't'"));
  EXPECT_THAT(ErrorOf("kind: named, switches: [{name: s, hosts: [a, b]}, {name: t, hosts: [b]}]"),
              HasSubstr("on switch 's' already"));
  EXPECT_THAT(ErrorOf("kind: named, switches: [{name: s, hosts: [a, b]}], links: [{between: [s, "
                      "leaf], rate: 1GB/s}]"),
              HasSubstr("no switch 'leaf'"));
  EXPECT_THAT(ErrorOf("kind: named, switches: [{name: s, hosts: [a, b], nics: [nic0]}]", 2),
              HasSubstr("nic1 of host 'a' is on no switch"));
  EXPECT_THAT(ErrorOf("kind: named, switches: [{name: \"s t\", hosts: [a, b]}]"),
              HasSubstr("no name of a switch"));
}

}  // namespace
}  // namespace orrery
