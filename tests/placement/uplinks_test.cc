// SPDX-License-Identifier: Apache-2.0
// Narrow uplinks: one order of ranks has one price, however it is spelled, and the simulation agrees with it.
#include <gtest/gtest.h>

#include <numeric>

#include "model/engine/event/simulation.h"
#include "model/twin/search.h"
#include "tests/placement/clusters.h"

namespace orrery::testing {
namespace {

// Leaves of two nodes of four GPUs.
std::string Leaves(int oversubscription) {
  return fmt::format("kind: fat-tree, levels: 2, leaf_ports: 2, oversubscription: {}",
                     oversubscription);
}

std::vector<int32_t> Spelled(int nodes) {
  std::vector<int32_t> order(static_cast<std::size_t>(nodes));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

struct Step {
  double seconds = 0, contention = 0;
};

Step Simulated(const Job& job, const Strategy& layout, bool contention) {
  const Cluster cluster = ClusterOf(job);
  const ir::Plan plan = LowerLegal(job, layout);
  sim::SimulationOptions options;
  options.contention = contention;
  sim::Simulation simulation(plan, cluster, job.prices(), options);
  const double seconds = simulation.Run();
  return {seconds, simulation.breakdown().contention};
}

struct Case {
  int nodes;
  Strategy layout;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  const auto add = [&](int nodes, int tp, int pp, int dp, int zero, int micro_batch) {
    cases.push_back({nodes, Layout(tp, pp, dp, micro_batch)});
    cases.back().layout.zero = zero;
  };
  for (const int micro_batch : {1, 4}) {
    add(4, 4, 1, 4, 1, micro_batch);   // rings
    add(4, 1, 1, 16, 0, micro_batch);  // trees, unless their uplinks are too narrow
    add(4, 2, 2, 4, 1, micro_batch);   // each stage below a leaf
    add(4, 4, 4, 1, 0, micro_batch);   // one hop of three leaves its leaf
    add(8, 2, 4, 4, 1, micro_batch);
    add(8, 4, 2, 4, 1, micro_batch);
  }
  return cases;
}

TEST(NarrowUplinks, OneOrderHasOnePriceHoweverItIsSpelled) {
  for (const int oversubscription : {1, 4, 8}) {
    for (const Case& one : Cases()) {
      const SmallJob small(SmallCluster(one.nodes, 4, Leaves(oversubscription)), 12, 64);
      const double plain = PlacedSeconds(small.job, one.layout);
      const std::string where = fmt::format("{} on {} nodes, {}:1", DescribeLayout(one.layout),
                                            one.nodes, oversubscription);
      EXPECT_DOUBLE_EQ(PlacedSeconds(small.job, Placed(one.layout, false, Spelled(one.nodes))),
                       plain)
          << where;
      const double inside = PlacedSeconds(small.job, Placed(one.layout, true, {}));
      EXPECT_DOUBLE_EQ(PlacedSeconds(small.job, Placed(one.layout, true, Spelled(one.nodes))),
                       inside)
          << where;
      // With one replica, or one stage, both orders of axes are one.
      if (one.layout.dp == 1 || one.layout.pp == 1) {
        EXPECT_DOUBLE_EQ(inside, plain) << where;
      }
      PlacementOptions options;
      options.order = options.layers = false;
      options.engine = Engine::kClosed;
      EXPECT_DOUBLE_EQ(ChoosePlacement(small.job, one.layout, options).plain.time.total, plain)
          << where;
    }
  }
}

TEST(NarrowUplinks, ASearchHasThePriceOfAPrediction) {
  const SmallJob small(SmallCluster(8, 4, Leaves(8)), 12, 64);
  SearchRequest request;
  request.model = small.job.model, request.work = small.job.work;
  request.topology = small.topology, request.framework = "orrery";
  request.nodes = {8}, request.top = 20, request.refine = 0;
  for (const Candidate& candidate : Search(request, small.profiles).ranked)
    EXPECT_NEAR(PlacedSeconds(small.job, candidate.strategy) / candidate.time.total, 1, 1e-12)
        << DescribeLayout(candidate.strategy);
}

TEST(NarrowUplinks, BothEnginesAgreeWithContentionAndWithoutIt) {
  for (const int oversubscription : {4, 8}) {
    for (const Case& one : Cases()) {
      const SmallJob small(SmallCluster(one.nodes, 4, Leaves(oversubscription)), 12, 64);
      for (const bool inside : {false, true}) {
        const Strategy layout = inside ? Placed(one.layout, true, {}) : one.layout;
        const double closed = PlacedSeconds(small.job, layout);
        const std::string where = fmt::format("{} on {} nodes, {}:1", DescribeLayout(layout),
                                              one.nodes, oversubscription);
        EXPECT_NEAR(closed / Simulated(small.job, layout, false).seconds, 1, 0.03) << where;
        // Of a stage with a leaf of its own, forward and backward messages meet on one uplink: contention, which the closed
        // form leaves to the simulation, and nothing else.
        const bool meet = !inside && one.layout.pp == 4 && one.nodes == 8;
        const Step step = Simulated(small.job, layout, true);
        EXPECT_NEAR((closed + (meet ? step.contention : 0)) / step.seconds, 1, 0.03) << where;
      }
    }
  }
}

}  // namespace
}  // namespace orrery::testing
