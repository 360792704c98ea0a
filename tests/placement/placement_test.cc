// SPDX-License-Identifier: Apache-2.0
// What a placement does to a step, by both engines.
#include <gmock/gmock.h>

#include <algorithm>

#include "model/twin/other_nodes.h"
#include "model/twin/stage_gpus.h"
#include "tests/placement/clusters.h"

namespace orrery::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

double Simulated(const Job& job, const Strategy& layout) {
  return SimulateLayout(job, layout, LowerLegal(job, layout), ClusterOf(job), nullptr).total;
}

// Two leaves of four nodes with thin uplinks.
TopologySpec TwoLeaves() {
  return SmallCluster(8, 2,
                      "kind: named, switches: [{name: leaf0, hosts: [a, b, c, d]}, "
                      "{name: leaf1, hosts: [e, f, g, h]}, {name: spine}], "
                      "links: [{between: [leaf0, spine], rate: 25Gbps}, "
                      "{between: [leaf1, spine], rate: 25Gbps}]");
}

TEST(Placement, GathersTheRanksOfAGroupBelowOneLeaf) {
  const SmallJob small(TwoLeaves(), 8, 64);
  Strategy layout = Layout(1, 1, 16);
  layout.zero = 1;  // gathers and scatters are rings, where all-reduces may be trees
  const Strategy good = Placed(layout, false, {0, 1, 2, 3, 4, 5, 6, 7});
  const Strategy bad = Placed(layout, false, {0, 4, 1, 5, 2, 6, 3, 7});
  EXPECT_LT(PlacedSeconds(small.job, good), 0.95 * PlacedSeconds(small.job, bad));
  EXPECT_LT(Simulated(small.job, good), 0.95 * Simulated(small.job, bad));
}

// The same cluster with every other host on the other leaf: numbers go by names, not by cables.
TopologySpec EveryOther(const std::string& order, const std::string& others = "[]") {
  return SmallCluster(8, 2,
                      "kind: named, " + order +
                          "switches: [{name: leaf0, hosts: [h0, h2, h4, h6]}, "
                          "{name: leaf1, hosts: [h1, h3, h5, h7]}, {name: spine}], "
                          "links: [{between: [leaf0, spine], rate: 25Gbps}, "
                          "{between: [leaf1, spine], rate: 25Gbps}]",
                      others);
}

TEST(Placement, NumbersOfNamedHostsAreThoseOfTheirNames) {
  const SmallJob in_rows(TwoLeaves(), 8, 64);
  const SmallJob by_name(EveryOther(""), 8, 64);
  const SmallJob as_listed(EveryOther("hosts: [h0, h2, h4, h6, h1, h3, h5, h7], "), 8, 64);
  const std::vector<int32_t> rows = {0, 1, 2, 3, 4, 5, 6, 7}, mixed = {0, 4, 1, 5, 2, 6, 3, 7},
                             back = {0, 2, 4, 6, 1, 3, 5, 7};
  const Strategy layout = Layout(1, 2, 8);
  const auto same = [](double a, double b) { EXPECT_NEAR(a, b, 1e-9 * b); };
  same(PlacedSeconds(by_name.job, layout),
       PlacedSeconds(in_rows.job, Placed(layout, false, mixed)));
  same(Simulated(by_name.job, layout), Simulated(in_rows.job, Placed(layout, false, mixed)));
  same(PlacedSeconds(as_listed.job, layout), PlacedSeconds(in_rows.job, layout));
  same(Simulated(as_listed.job, layout), Simulated(in_rows.job, layout));
  same(PlacedSeconds(by_name.job, Placed(layout, false, back)),
       PlacedSeconds(in_rows.job, Placed(layout, false, rows)));
  // Not by the order in which switches list hosts: that one is another step.
  EXPECT_GT(std::abs(1 - PlacedSeconds(in_rows.job, layout) / PlacedSeconds(by_name.job, layout)),
            0.02);
}

TEST(Placement, OtherNodesAreThoseOfTheirHosts) {
  // h1 is node 1, which is slow; with the list of rows it is node 4.
  TopologySpec by_name = EveryOther("", "[{nodes: \"1\", slower: 2}]");
  TopologySpec in_rows =
      EveryOther("hosts: [h0, h2, h4, h6, h1, h3, h5, h7], ", "[{nodes: \"4\", slower: 2}]");
  const ModelSpec model = LoadModel("gpt2-medium").spec;
  Workload work;
  work.seq_len = 512;
  for (TopologySpec* one : {&by_name, &in_rows}) PriceOtherNodes(model, work, true, "orrery", one);
  ASSERT_GT(by_name.slowdown.at(1), 1.9);
  const SmallJob named(std::move(by_name), 8, 64), listed(std::move(in_rows), 8, 64);
  const Strategy layout = Layout(1, 2, 8);
  const Strategy mixed = Placed(layout, false, {0, 4, 1, 5, 2, 6, 3, 7});
  EXPECT_DOUBLE_EQ(Simulated(named.job, layout), Simulated(listed.job, mixed));
}

TEST(Placement, KeepsStagesBelowOneLeafWhereTheirTensorsAreMore) {
  // By default all tensors between both stages cross the uplinks, gradients stay below a leaf.
  const SmallJob small(TwoLeaves(), 4, 2048);
  const PlacementChoice choice = ChoosePlacement(small.job, Layout(1, 2, 8));
  ASSERT_TRUE(choice.placed.simulated);
  EXPECT_GT(choice.gain(), 0.1);
  EXPECT_LT(choice.found.seconds, choice.found.plain);
}

TEST(Placement, GainsOnAnOversubscribedFatTree) {
  // By default each tensor between both stages leaves its leaf of four nodes.
  for (const int oversubscription : {4, 8}) {
    const SmallJob small(
        SmallCluster(8, 2,
                     fmt::format("kind: fat-tree, levels: 2, leaf_ports: 4, oversubscription: {}",
                                 oversubscription)),
        8, 64);
    const PlacementChoice choice = ChoosePlacement(small.job, Layout(1, 2, 8));
    ASSERT_TRUE(choice.placed.simulated);
    EXPECT_GT(choice.gain(), 0.1) << oversubscription;
    EXPECT_LT(choice.found.seconds, choice.found.plain) << oversubscription;
    EXPECT_DOUBLE_EQ(Simulated(small.job, choice.strategy), choice.placed.time.total);
  }
}

TEST(Placement, IsNeverSlowerThanTheDefaultWhenSimulated) {
  const SmallJob small(SmallCluster(12, 1,
                                    "kind: fat-tree, levels: 2, leaf_ports: 3, "
                                    "oversubscription: 6"),
                       12, 96);
  for (const auto& [pp, dp] : {std::pair{4, 3}, {3, 4}, {2, 6}, {12, 1}, {1, 12}}) {
    const PlacementChoice choice = ChoosePlacement(small.job, Layout(1, pp, dp));
    ASSERT_TRUE(choice.placed.simulated);
    EXPECT_LE(choice.placed.time.total, choice.plain.time.total);
    EXPECT_LE(choice.found.seconds, choice.found.plain);
    EXPECT_LE(choice.found.bound, choice.found.seconds);
  }
}

TEST(Placement, MixedGpusGetLayersByTheirSpeed) {
  TopologySpec cluster = SmallCluster(4, 1, "kind: single-switch",
                                      "[{nodes: \"1\", gpu: v100-sxm2-32gb}, "
                                      "{nodes: \"3\", gpu: v100-sxm2-32gb}]");
  ModelSpec model = LoadModel("gpt2-medium").spec;
  Workload work;
  work.seq_len = 512;
  work.precision = Precision::kFp16;
  PriceOtherNodes(model, work, true, "orrery", &cluster);
  ASSERT_THAT(cluster.slowdown, SizeIs(4));
  EXPECT_DOUBLE_EQ(cluster.slowdown[0], 1);
  EXPECT_GT(cluster.slowdown[1], 1.3);
  EXPECT_LT(cluster.slowdown[1], 5);
  const double slower = cluster.slowdown[3];
  const SmallJob small(std::move(cluster), 24, 64);
  const PlacementChoice choice = ChoosePlacement(small.job, Layout(1, 2, 2));
  ASSERT_TRUE(choice.placed.simulated);
  ASSERT_TRUE(choice.strategy.layout);
  const auto [few, many] = std::ranges::minmax(*choice.strategy.layout);
  EXPECT_NEAR(many / static_cast<double>(few), slower, 0.5 * slower);
  EXPECT_GT(choice.gain(), 0.1);
}

TEST(Placement, TakesSlowNodesIntoOneReplica) {
  TopologySpec cluster = SmallCluster(4, 1, "kind: single-switch");
  cluster.slowdown = {1.5, 1, 1, 1.5};
  const SmallJob small(std::move(cluster), 8, 32);
  PlacementOptions options;
  options.layers = false;
  const PlacementChoice choice = ChoosePlacement(small.job, Layout(1, 2, 2), options);
  ASSERT_TRUE(choice.strategy.placement);
  EXPECT_GT(choice.gain(), 0.05);
  EXPECT_TRUE(choice.found.exact);
}

TEST(Placement, GivesSlowStagesFewerLayers) {
  TopologySpec cluster = SmallCluster(2, 1, "kind: single-switch");
  cluster.slowdown = {1, 3};
  const SmallJob small(std::move(cluster), 24, 32);
  const PlacementChoice choice = ChoosePlacement(small.job, Layout(1, 2, 1));
  ASSERT_TRUE(choice.strategy.layout);
  const std::vector<int>& layers = *choice.strategy.layout;
  ASSERT_THAT(layers, SizeIs(2));
  const bool swapped = choice.strategy.placement != nullptr;
  EXPECT_GT(layers[swapped ? 1 : 0], 2 * layers[swapped ? 0 : 1]);
  EXPECT_GT(choice.gain(), 0.2);  // 12 layers at a third of the speed against 18 at full speed
}

// More layers on the fast node would take the margin of memory that the layout keeps: its gain was recommended as one of time.
TEST(Placement, KeepsTheMarginOfMemory) {
  TopologySpec cluster = SmallCluster(2, 1, "kind: single-switch");
  cluster.slowdown = {1, 1.5};
  const SmallJob small(std::move(cluster), 24, 32);
  Job job = small.job;
  const Strategy layout = Layout(1, 2, 1);
  const auto memory = [&](const Strategy& of) {
    return ReportMemory(LowerLegal(job, of), LimitsOf(job, of), Communicators(of));
  };
  const PlacementChoice free = ChoosePlacement(job, layout);
  EXPECT_GT(free.gain(), 0.02);
  const double margin = LimitsOf(job, layout).nearly_full;
  ASSERT_LT(margin, 1);
  const Bytes total = memory(layout).total;
  job.memory_limit = total / (margin - 0.001);
  ASSERT_TRUE(memory(layout).fits && !memory(layout).nearly_full);
  const PlacementChoice close = ChoosePlacement(job, layout);
  EXPECT_FALSE(memory(close.strategy).nearly_full) << memory(close.strategy).summary;
  // Where the layout itself has none left, all that fits is looked at.
  job.memory_limit = total / (margin + 0.001);
  ASSERT_TRUE(memory(layout).nearly_full);
  const PlacementChoice full = ChoosePlacement(job, layout);
  EXPECT_TRUE(memory(full.strategy).fits);
  EXPECT_GT(full.gain(), close.gain());
}

// One slow node of two, whose stage any order can be: all of the gain is the layers'.
TEST(Placement, GainsOfOrderAndLayersComeFromSearchesOfTheirOwn) {
  TopologySpec cluster = SmallCluster(4, 1, "kind: single-switch");
  cluster.slowdown = {1, 2, 1, 1};
  const SmallJob small(std::move(cluster), 23, 32);
  for (const Engine engine : {Engine::kAuto, Engine::kClosed}) {
    PlacementOptions options;
    options.engine = engine;
    const PlacementChoice both = ChoosePlacement(small.job, Layout(1, 4, 1), options);
    options.layers = false;
    const PlacementChoice order = ChoosePlacement(small.job, Layout(1, 4, 1), options);
    options.layers = true, options.order = false;
    const PlacementChoice layers = ChoosePlacement(small.job, Layout(1, 4, 1), options);
    EXPECT_EQ(both.placed.simulated.has_value(), engine == Engine::kAuto);
    EXPECT_FALSE(order.strategy.layout);
    EXPECT_FALSE(layers.strategy.placement);
    EXPECT_LE(both.placed.time.total, layers.placed.time.total);
    EXPECT_LT(layers.placed.time.total, 0.8 * layers.plain.time.total);
    ASSERT_TRUE(both.order_alone && both.layers_alone) << DescribeLayout(both.strategy);
    EXPECT_DOUBLE_EQ(both.order_alone->value, order.placed.time.total);
    EXPECT_DOUBLE_EQ(both.layers_alone->value, layers.placed.time.total);
  }
}

// The layers of the given order are looked for, and the order stays whatever it costs.
TEST(Placement, AGivenOrderGetsLayersOfItsOwn) {
  TopologySpec cluster = SmallCluster(2, 1, "kind: single-switch");
  cluster.slowdown = {1, 3};
  const SmallJob small(std::move(cluster), 24, 32);
  PlacementOptions options;
  options.order = false;
  const Strategy shared = ChoosePlacement(small.job, Layout(1, 2, 1), options).strategy;
  ASSERT_TRUE(shared.layout);
  EXPECT_GT((*shared.layout)[0], 2 * (*shared.layout)[1]);
  options.order = true;
  options.given = std::make_shared<const Placement>(Placement{false, {1, 0}});
  const PlacementChoice choice = ChoosePlacement(small.job, shared, options);
  ASSERT_TRUE(choice.strategy.placement && choice.strategy.layout);
  EXPECT_EQ(*choice.strategy.placement, *options.given);
  EXPECT_LT(2 * (*choice.strategy.layout)[0], (*choice.strategy.layout)[1]);
  options.layers = false;
  const PlacementChoice kept = ChoosePlacement(small.job, shared, options);
  EXPECT_EQ(kept.strategy.layout, shared.layout);
  EXPECT_GT(kept.placed.time.total, 1.5 * choice.placed.time.total);
}

TEST(Placement, SlowNodesCountAlikeInBothEngines) {
  TopologySpec cluster = SmallCluster(4, 1, "kind: single-switch");
  cluster.slowdown = {1, 1, 2};
  const SmallJob small(std::move(cluster), 12, 64);
  for (const auto& [pp, dp] : {std::pair{1, 4}, {2, 2}, {4, 1}}) {
    const Strategy layout = Layout(1, pp, dp);
    const double closed = PlacedSeconds(small.job, layout);
    EXPECT_NEAR(closed / Simulated(small.job, layout), 1, 0.05) << "pp " << pp;
    for (int at = 0; at < 4; ++at) {
      std::vector<int32_t> order = {0, 1, 2, 3};
      std::swap(order[2], order[static_cast<std::size_t>(at)]);
      const Strategy placed = Placed(layout, false, order);
      EXPECT_NEAR(PlacedSeconds(small.job, placed) / Simulated(small.job, placed), 1, 0.05)
          << "pp " << pp << " at " << at;
    }
  }
}

TEST(Placement, StagesInsideAreNeighbours) {
  const SmallJob small(SmallCluster(2, 4, "kind: single-switch"), 8, 64);
  const Strategy layout = Layout(1, 4, 2);
  const PlacedTraffic outside(layout, 4), inside(Placed(layout, true, {}), 4);
  EXPECT_TRUE(outside.spans(kStageMessages));
  EXPECT_FALSE(outside.spans(kDataMessages));
  EXPECT_FALSE(inside.spans(kStageMessages));
  EXPECT_TRUE(inside.spans(kDataMessages));
  const Strategy placed = Placed(layout, true, {});
  EXPECT_NEAR(PlacedSeconds(small.job, placed) / Simulated(small.job, placed), 1, 0.05);
}

TEST(Placement, StretchIsWhatLeavesALeaf) {
  const TopologySpec cluster =
      SmallCluster(4, 1, "kind: fat-tree, levels: 2, leaf_ports: 2, oversubscription: 2");
  const std::vector<Uplinks> uplinks = UplinksOf(cluster, 4);
  ASSERT_THAT(uplinks, SizeIs(2));
  EXPECT_DOUBLE_EQ(uplinks[0].rate.value, 12.5e9);  // two NICs of 100 Gbps, halved
  const PlacedTraffic ring(Layout(1, 1, 4), 1);
  // Neighbours on one leaf: one edge out of each; alternating: two, over half of the NICs' rate.
  EXPECT_DOUBLE_EQ(ring.StretchesOf(std::vector<int32_t>{0, 1, 2, 3}, uplinks,
                                    BytesPerSecond(12.5e9))[kDataMessages],
                   1);
  EXPECT_DOUBLE_EQ(ring.StretchesOf(std::vector<int32_t>{0, 2, 1, 3}, uplinks,
                                    BytesPerSecond(12.5e9))[kDataMessages],
                   2);
}

TEST(Placement, PartsOfEachFabric) {
  const auto parts = [](int nodes, const std::string& fabric) {
    return UplinksOf(SmallCluster(nodes, 1, fabric), nodes);
  };
  EXPECT_THAT(parts(4, "kind: single-switch"), SizeIs(0));
  EXPECT_THAT(parts(8, "kind: torus, dims: [2, 4], link_rate: 100Gbps"), SizeIs(2 + 4));
  EXPECT_THAT(parts(8,
                    "kind: dragonfly, routers_per_group: 2, ports_per_router: 2, "
                    "global_links: 1, link_rate: 100Gbps"),
              SizeIs(2));
}

TEST(Placement, NamesNodesOnce) {
  EXPECT_NO_THROW(CheckNodeOrder(std::vector<int32_t>{2, 0, 1}, 3, 1));
  for (const std::vector<int32_t>& wrong :
       {std::vector<int32_t>{0, 1}, {0, 1, 1}, {0, 1, 3}, {0, 1, 2, 3}})
    EXPECT_THROW(CheckNodeOrder(wrong, 3, 1), InputError);
  EXPECT_THROW(CheckNodeOrder(std::vector<int32_t>{1, 0}, 2, 2), InputError);
}

TEST(Placement, OtherNodesOfATopologyAreRead) {
  const TopologySpec cluster =
      SmallCluster(4, 1, "kind: single-switch",
                   "[{nodes: \"2..3\", gpu: v100-sxm2-32gb}, {nodes: \"0, 1\", slower: 1.2}]");
  ASSERT_THAT(cluster.other_nodes, SizeIs(3));
  EXPECT_EQ(cluster.other_nodes[0].last, 3);
  for (const int row : {1, 2}) {
    EXPECT_EQ(cluster.other_nodes[row].last, row - 1);
    EXPECT_DOUBLE_EQ(cluster.other_nodes[row].slower, 1.2);
  }
  for (const char* wrong : {"[{nodes: \"4\", slower: 2}]", "[{nodes: \"x\"}]", "[{nodes: \"1,\"}]",
                            "[{nodes: \"0\"}, {nodes: \"0..1\"}]", "[{nodes: \"0,0\"}]",
                            "[{nodes: \"0\", slower: 0}]", "[{nodes: \"0\", slower: 0.5}]"})
    EXPECT_THROW(SmallCluster(4, 1, "kind: single-switch", wrong), InputError) << wrong;
}

}  // namespace
}  // namespace orrery::testing
