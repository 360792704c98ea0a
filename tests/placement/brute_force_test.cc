// SPDX-License-Identifier: Apache-2.0
// The search for placements against all orders of axes and nodes and all splits of the layers, on random small clusters.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <random>

#include "model/twin/other_nodes.h"
#include "tests/from_environment.h"
#include "tests/placement/clusters.h"

namespace orrery::testing {
namespace {

// Of each test; placement_brute_force_test_full: 200.
const int kClusters = static_cast<int>(FromEnvironment("ORRERY_CLUSTERS", 50));

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

// Every split of the layers over `chunks` chunks, of which any may stay without.
std::vector<std::vector<int>> AllSplits(int64_t layers, std::size_t chunks) {
  std::vector<std::vector<int>> all;
  std::vector<int> one;
  const std::function<void(int)> next = [&](int left) {
    if (one.size() + 1 == chunks) {
      all.push_back(one);
      all.back().push_back(left);
      return;
    }
    for (int here = 0; here <= left; ++here) {
      one.push_back(here);
      next(left - here);
      one.pop_back();
    }
  };
  next(static_cast<int>(layers));
  return all;
}

struct Least {
  double all = std::numeric_limits<double>::infinity();     // any order and split
  double order = std::numeric_limits<double>::infinity();   // any order, the layout's own split
  double layers = std::numeric_limits<double>::infinity();  // any split, the default order
};

// Each layout priced by itself, nothing left out.
Least LeastOf(const Job& job, const Strategy& layout) {
  StepPredictor predictor(job);
  Least least;
  std::vector<std::shared_ptr<const std::vector<int>>> splits = {layout.layout};
  if (layout.pp > 1) {
    for (std::vector<int>& split : AllSplits(job.model.layers, std::size_t(layout.pp) * layout.vpp))
      splits.push_back(std::make_shared<const std::vector<int>>(std::move(split)));
  }
  for (const bool inside : {false, true}) {
    if (inside && (layout.pp == 1 || layout.data_parallel() == 1)) continue;
    for (const auto& split : splits) {
      Strategy one = layout;
      one.layout = split;
      if (CheckStrategy(job.model, job.work, one)) continue;
      std::vector<int32_t> order(static_cast<std::size_t>(job.cluster.nodes));
      std::iota(order.begin(), order.end(), 0);
      do {
        const double seconds =
            std::get<StepTime>(predictor.Predict(Placed(one, inside, order))).total;
        const bool plain = !inside && std::ranges::is_sorted(order);
        least.all = std::min(least.all, seconds);
        if (split == layout.layout) least.order = std::min(least.order, seconds);
        if (plain) least.layers = std::min(least.layers, seconds);
      } while (std::ranges::next_permutation(order).found);
    }
  }
  return least;
}

// Few micro-batches and many, every schedule; chunks few enough for all splits.
Strategy RandomLayout(int ranks, std::mt19937* random) {
  std::vector<int> stages;
  for (int pp = 1; pp <= std::min(ranks, 6); ++pp)
    if (ranks % pp == 0) stages.push_back(pp);
  Strategy layout = Layout(1, stages[(*random)() % stages.size()], 1);
  layout.dp = ranks / layout.pp;
  layout.zero = layout.dp > 1 ? static_cast<int>((*random)() % 4) : 0;
  if (layout.pp == 1) return layout;
  layout.zero = std::min(layout.zero, 1);
  constexpr PipelineSchedule kSchedules[] = {
      PipelineSchedule::k1F1B,        PipelineSchedule::k1F1B,
      PipelineSchedule::kGpipe,       PipelineSchedule::kZeroBubble,
      PipelineSchedule::kInterleaved, PipelineSchedule::kZeroBubbleV};
  layout.schedule = kSchedules[(*random)() % (layout.pp <= 3 ? 6 : 4)];
  if (layout.schedule == PipelineSchedule::kInterleaved ||
      layout.schedule == PipelineSchedule::kZeroBubbleV)
    layout.vpp = 2;
  return layout;
}

struct Counts {
  int gains = 0, cut = 0, both = 0, splits = 0;
  double loosest = 1;
};

// A search that is cut short says so, and its bound is one.
void ExpectBounds(const Job& job, const Strategy& layout, PlacementOptions options, double least,
                  Counts* counts) {
  options.most = 2;
  for (const int64_t most_splits : {options.most_splits, int64_t{3}}) {
    options.most_splits = most_splits;
    const PlacementFound short_one = FindPlacement(job, layout, options);
    EXPECT_LE(short_one.bound, least * (1 + 1e-9));
    EXPECT_GE(short_one.seconds, least * (1 - 1e-9));
    if (short_one.exact) {
      EXPECT_NEAR(short_one.seconds / least, 1, 1e-8);
    }
    counts->cut += !short_one.exact;
    if (most_splits == 3) continue;
    EXPECT_GT(short_one.bound, 0.25 * least);  // what thin uplinks cost is not in it
    counts->loosest = std::max(counts->loosest, least / short_one.bound);
  }
}

void ExpectBruteForce(const Job& job, const Strategy& layout, Counts* counts) {
  PlacementOptions options;
  options.most = 1'000'000, options.most_splits = 10'000'000;
  options.engine = Engine::kClosed;
  const PlacementChoice choice = ChoosePlacement(job, layout, options);
  const PlacementFound& found = choice.found;
  const Least least = LeastOf(job, layout);
  EXPECT_TRUE(found.exact);
  EXPECT_NEAR(found.seconds / least.all, 1, 1e-8);
  // What is recommended is that optimum, or the default where it gains less than 0.05 %.
  const double plain = choice.plain.time.total;
  const auto recommended = [&](double best) { return best < plain * (1 - 5e-4) ? best : plain; };
  EXPECT_NEAR(choice.placed.time.total / recommended(least.all), 1, 1e-8);
  EXPECT_NEAR(PlacedSeconds(job, found.strategy.placement ? found.strategy
                                                          : Placed(found.strategy, false, {})) /
                  found.seconds,
              1, 1e-12);
  if (choice.order_alone) {
    EXPECT_NEAR(choice.order_alone->value / recommended(least.order), 1, 1e-8);
    EXPECT_NEAR(choice.layers_alone->value / recommended(least.layers), 1, 1e-8);
  }
  ExpectBounds(job, layout, options, least.all, counts);
  counts->gains += found.seconds < found.plain * 0.99;
  counts->both += choice.order_alone.has_value();
  counts->splits += found.strategy.layout != nullptr;
}

// Few micro-batches, too.
void DrawMicroBatch(int64_t global_batch, std::mt19937* random, Strategy* layout) {
  std::vector<int> sizes;
  for (int size = 1; size <= 8; ++size)
    if (global_batch / layout->dp % size == 0) sizes.push_back(size);
  layout->micro_batch = sizes[(*random)() % sizes.size()];
}

TEST(PlacementBruteForce, EqualsAllOrdersAndSplitsOnRandomClusters) {
  std::mt19937 random(17);
  Counts counts;
  for (int i = 0; i < kClusters; ++i) {
    const int nodes = 2 + static_cast<int>(random() % 4), gpus = 1 + static_cast<int>(random() % 2);
    TopologySpec cluster = SmallCluster(nodes, gpus, RandomFabric(nodes, &random));
    cluster.slowdown = RandomSpeeds(nodes, &random);
    const int64_t layers = 5 + static_cast<int64_t>(random() % 4);
    const SmallJob small(std::move(cluster), layers, 120);
    Strategy layout = RandomLayout(nodes * gpus, &random);
    DrawMicroBatch(120, &random, &layout);
    if (CheckStrategy(small.job.model, small.job.work, layout))
      layout.schedule = PipelineSchedule::k1F1B, layout.vpp = 1;
    SCOPED_TRACE(fmt::format("cluster {}: {} nodes of {} GPUs, {} layers, {}", i, nodes, gpus,
                             layers, DescribeLayout(layout)));
    ExpectBruteForce(small.job, layout, &counts);
  }
  EXPECT_GT(counts.gains, 0.15 * kClusters);
  EXPECT_GT(counts.cut, 0.05 * kClusters);
  EXPECT_GT(counts.both, 0.05 * kClusters);
  EXPECT_GT(counts.splits, 0.15 * kClusters);
  std::printf(
      "%d of %d with other layers, %d of them with another order too; %d searches cut short, the "
      "least at most %.2f times the bound\n",
      counts.splits, kClusters, counts.both, counts.cut, counts.loosest);
}

// Nodes with GPUs that are faster, or as fast with half the memory, and slow ones.
std::string RandomOthers(int nodes, std::mt19937* random) {
  const char* const kinds[] = {"gpu: h100-sxm5-80gb", "gpu: a100-sxm4-40gb", "slower: 1.4",
                               "gpu: h100-sxm5-80gb, slower: 3"};
  std::string rows;
  for (int node = 0; node < nodes; ++node) {
    if ((*random)() % 2 == 0) continue;
    rows += fmt::format("{}{{nodes: \"{}\", {}}}", rows.empty() ? "" : ", ", node,
                        kinds[(*random)() % 4]);
  }
  return rows.empty() ? "[]" : "[" + rows + "]";
}

// Whatever layers the layout comes with; within the usual budget, exact or with a bound.
void ExpectSameFromAnyLayers(const Job& job, Strategy layout, std::mt19937* random,
                             Counts* counts) {
  const double least = LeastOf(job, layout).all;
  if (layout.pp > 1) {
    const auto splits = AllSplits(job.model.layers, std::size_t(layout.pp) * layout.vpp);
    Strategy other = layout;
    other.layout = std::make_shared<const std::vector<int>>(splits[(*random)() % splits.size()]);
    if (!CheckStrategy(job.model, job.work, other)) layout = other;
  }
  const PlacementFound found = FindPlacement(job, layout);
  EXPECT_GE(found.seconds, least * (1 - 1e-9));
  EXPECT_LE(found.bound, least * (1 + 1e-9));
  if (found.exact) {
    EXPECT_NEAR(found.seconds / least, 1, 1e-8);
  } else {
    std::printf("not exact: %.6g s, the least is %.6g s, the bound %.6g s\n", found.seconds, least,
                found.bound);
    counts->loosest = std::max(counts->loosest, least / found.bound);
  }
  counts->cut += !found.exact;
  counts->gains += found.seconds < found.plain * 0.99;
  counts->splits += found.strategy.layout != layout.layout;
}

TEST(PlacementBruteForce, EqualsAllOrdersAndSplitsOnMixedClustersFromAnyLayers) {
  std::mt19937 random(23);
  Counts counts;
  for (int i = 0; i < kClusters; ++i) {
    const int nodes = 2 + static_cast<int>(random() % 4), gpus = 1 + static_cast<int>(random() % 2);
    const int64_t layers = 5 + static_cast<int64_t>(random() % 4);
    TopologySpec cluster =
        SmallCluster(nodes, gpus, RandomFabric(nodes, &random), RandomOthers(nodes, &random));
    {
      const SmallJob alike(cluster, layers, 120);
      PriceOtherNodes(alike.job.model, alike.job.work, true, "orrery", &cluster);
    }
    const SmallJob small(std::move(cluster), layers, 120);
    Strategy layout = RandomLayout(nodes * gpus, &random);
    DrawMicroBatch(120, &random, &layout);
    if (CheckStrategy(small.job.model, small.job.work, layout))
      layout.schedule = PipelineSchedule::k1F1B, layout.vpp = 1;
    SCOPED_TRACE(fmt::format("cluster {}: {} nodes of {} GPUs, {} layers, {}", i, nodes, gpus,
                             layers, DescribeLayout(layout)));
    ExpectSameFromAnyLayers(small.job, layout, &random, &counts);
  }
  EXPECT_GT(counts.gains, 0.3 * kClusters);
  EXPECT_GT(counts.splits, 0.15 * kClusters);
  EXPECT_LT(counts.cut, 0.025 * kClusters);
  std::printf(
      "%d of %d gain, %d with other layers; %d not exact, the least at most %.2f times the "
      "bound\n",
      counts.gains, kClusters, counts.splits, counts.cut, counts.loosest);
}

// Tensor groups of 3, 5 and 6 that some stages or replicas have on one node, others on several.
struct StraddlingShape {
  int tp, gpus, nodes;
};
constexpr StraddlingShape kStraddling[] = {{3, 2, 3}, {3, 4, 3}, {3, 2, 6}, {5, 4, 5},
                                           {5, 2, 5}, {6, 4, 3}, {3, 5, 3}, {6, 5, 6}};

Strategy StraddlingLayout(const StraddlingShape& shape, std::mt19937* random) {
  const int left = shape.gpus * shape.nodes / shape.tp;
  Strategy layout = RandomLayout(left, random);
  layout.tp = shape.tp;
  if (left < 3) return layout;
  // Of one stage there is little to find.
  for (int draws = 0; layout.pp == 1 && draws < 4; ++draws)
    layout = RandomLayout(left, random), layout.tp = shape.tp;
  return layout;
}

TEST(PlacementBruteForce, EqualsAllOrdersAndSplitsWhereTensorGroupsStraddleNodes) {
  std::mt19937 random(19);
  Counts counts;
  int tried = 0;
  for (int i = 0; i < kClusters; ++i) {
    const StraddlingShape& shape = kStraddling[random() % std::size(kStraddling)];
    TopologySpec cluster =
        SmallCluster(shape.nodes, shape.gpus, RandomFabric(shape.nodes, &random));
    cluster.slowdown = RandomSpeeds(shape.nodes, &random);
    const int64_t layers = 4 + static_cast<int64_t>(random() % 3);
    const SmallJob small(std::move(cluster), layers, 60, [](ModelSpec* model) {
      model->heads = model->kv_heads = 30, model->head_dim = 32;  // which 3, 5 and 6 divide
      model->hidden = 960, model->ffn = 3840, model->vocab = 30000;
    });
    Strategy layout = StraddlingLayout(shape, &random);
    DrawMicroBatch(60, &random, &layout);
    if (CheckStrategy(small.job.model, small.job.work, layout))
      layout.schedule = PipelineSchedule::k1F1B, layout.vpp = 1;
    if (CheckStrategy(small.job.model, small.job.work, layout)) continue;
    ++tried;
    SCOPED_TRACE(fmt::format("cluster {}: {} nodes of {} GPUs, {} layers, {}", i, shape.nodes,
                             shape.gpus, layers, DescribeLayout(layout)));
    ExpectBruteForce(small.job, layout, &counts);
  }
  EXPECT_GT(tried, 0.75 * kClusters);
  EXPECT_GT(counts.gains, 0.1 * kClusters);
  std::printf(
      "%d clusters: %d gain, %d with other layers; %d searches cut short, the least at "
      "most %.2f times the bound\n",
      tried, counts.gains, counts.splits, counts.cut, counts.loosest);
}

}  // namespace
}  // namespace orrery::testing
