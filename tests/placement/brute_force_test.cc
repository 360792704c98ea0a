// SPDX-License-Identifier: Apache-2.0
// The search for placements against all orders of nodes, on random small clusters.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "tests/placement/clusters.h"

namespace orrery::testing {
namespace {

constexpr int kClusters = 200;

// Leaves of unequal size and rate below one spine, hosts in random order: the default order of ranks is a bad one.
std::string RandomLeaves(int nodes, std::mt19937* random) {
  std::vector<int> hosts(static_cast<std::size_t>(nodes));
  std::iota(hosts.begin(), hosts.end(), 0);
  std::ranges::shuffle(hosts, *random);
  std::string switches, links;
  int leaf = 0;
  for (int at = 0; at < nodes; ++leaf) {
    const int size = std::min(nodes - at, 1 + static_cast<int>((*random)() % 3));
    std::string of_leaf;
    for (int i = 0; i < size; ++i)
      of_leaf += fmt::format("{}h{}", i == 0 ? "" : ", ", hosts[static_cast<std::size_t>(at + i)]);
    at += size;
    switches += fmt::format("{{name: leaf{}, hosts: [{}]}}, ", leaf, of_leaf);
    const char* rates[] = {"25Gbps", "50Gbps", "100Gbps"};
    links += fmt::format("{}{{between: [leaf{}, spine], rate: {}}}", leaf == 0 ? "" : ", ", leaf,
                         rates[(*random)() % 3]);
  }
  return fmt::format("kind: named, switches: [{}{{name: spine}}], links: [{}]", switches, links);
}

std::string RandomFabric(int nodes, std::mt19937* random) {
  switch ((*random)() % 4) {
    case 0:
      return "kind: single-switch";
    case 1:
    case 2:
      return RandomLeaves(nodes, random);
    default:
      return fmt::format("kind: fat-tree, levels: 2, leaf_ports: {}, oversubscription: {}",
                         2 + (*random)() % 2, 1 + (*random)() % 4);
  }
}

std::vector<double> RandomSpeeds(int nodes, std::mt19937* random) {
  std::vector<double> slowdown;
  if ((*random)() % 3 == 0) return slowdown;
  for (int node = 0; node < nodes; ++node)
    slowdown.push_back((*random)() % 3 == 0 ? 1.0 + 0.5 * static_cast<double>((*random)() % 3)
                                            : 1.0);
  return slowdown;
}

// The least seconds over all variants and all orders of the nodes, nothing left out.
double LeastOfAll(const Job& job, const Strategy& layout, const PlacementOptions& options) {
  StepPredictor predictor(job);
  double least = std::numeric_limits<double>::infinity();
  for (const Strategy& variant : PlacementVariants(job, layout, options)) {
    std::vector<int32_t> order(static_cast<std::size_t>(job.cluster.nodes));
    std::iota(order.begin(), order.end(), 0);
    do {
      const auto priced =
          predictor.Predict(Placed(variant, variant.placement->stages_inside, order));
      least = std::min(least, std::get<StepTime>(priced).total);
    } while (std::ranges::next_permutation(order).found);
  }
  return least;
}

TEST(PlacementBruteForce, EqualsAllOrdersOnRandomClusters) {
  std::mt19937 random(17);
  int gains = 0, cut = 0;
  double loosest = 1;
  for (int i = 0; i < kClusters; ++i) {
    const int nodes = 2 + static_cast<int>(random() % 5), gpus = 1 + static_cast<int>(random() % 2);
    TopologySpec cluster = SmallCluster(nodes, gpus, RandomFabric(nodes, &random));
    cluster.slowdown = RandomSpeeds(nodes, &random);
    const SmallJob small(std::move(cluster), 8, int64_t{120} * (1 + random() % 2));
    const int ranks = nodes * gpus;
    std::vector<int> stages;
    for (int pp = 1; pp <= ranks; ++pp) {
      if (ranks % pp == 0 && pp <= 6) stages.push_back(pp);
    }
    Strategy layout = Layout(1, stages[random() % stages.size()], 1);
    layout.dp = ranks / layout.pp;
    layout.zero = layout.dp > 1 ? static_cast<int>(random() % 4) : 0;
    if (layout.pp > 1) layout.zero = std::min(layout.zero, 1);
    PlacementOptions options;
    options.most = 1'000'000;
    const PlacementFound found = FindPlacement(small.job, layout, options);
    const double least = LeastOfAll(small.job, layout, options);
    SCOPED_TRACE(fmt::format("cluster {}: {} nodes of {} GPUs, pp {}, dp {}", i, nodes, gpus,
                             layout.pp, layout.dp));
    EXPECT_TRUE(found.exact);
    EXPECT_NEAR(found.seconds / least, 1, 1e-8);
    EXPECT_NEAR(
        PlacedSeconds(small.job, found.strategy.placement ? found.strategy
                                                          : Placed(found.strategy, false, {})) /
            found.seconds,
        1, 1e-12);
    // A search that is cut short says so, and its bound is one.
    options.most = 2;
    const PlacementFound short_one = FindPlacement(small.job, layout, options);
    EXPECT_LE(short_one.bound, least * (1 + 1e-9));
    EXPECT_GT(short_one.bound, 0.25 * least);  // what thin uplinks cost is not in it
    loosest = std::max(loosest, least / short_one.bound);
    EXPECT_GE(short_one.seconds, least * (1 - 1e-9));
    gains += found.seconds < found.plain * 0.99;
    cut += !short_one.exact;
  }
  EXPECT_GT(gains, 30);
  EXPECT_GT(cut, 10);
  std::printf("%d searches cut short; the least is at most %.2f times the bound\n", cut, loosest);
}

}  // namespace
}  // namespace orrery::testing
