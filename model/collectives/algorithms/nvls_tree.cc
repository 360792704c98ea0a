// SPDX-License-Identifier: Apache-2.0
// Reduction inside the NVLink switch of every node, and a double binary tree over the nodes (NVLSTree).
//
// What the switch of a node has added up goes up and down the trees of tree.cc over all NICs at once.
// Between nodes each node sends S (two nodes) or 2 S (interior of the two trees).
// Invariant: each GPU sends and receives S once inside its node. All-reduce on several nodes.
// Source: NCCL since 2.18; the switch works with the bandwidth protocol only.
#include <bit>

#include "model/collectives/routing.h"

namespace orrery {
namespace {

// NCCL 2.28.9 (enqueue.cc, NVLSTree): 64 KiB of each channel and rank that talks to the switch, 32 in messages that would be
// smaller than one such chunk; below four nodes 128 KiB in messages of four chunks.
ChunkSizes Chunks(const Network& network) {
  constexpr double kKiB = 1024;
  const double each = kKiB * network.switch_channels * network.shape.ranks_per_node;
  const int nodes = network.shape.nodes();
  const double most = (nodes < 4 ? 128 : 64) * each;
  ChunkSizes sizes;
  sizes.Add(4 * most, most);
  sizes.Add(64 * each, 64 * each);
  sizes.Add(0, 32 * each);
  return sizes;
}

class NvlsTreeImpl : public Algorithm {
 public:
  NvlsTreeImpl() : Algorithm("nvls-tree") {}

  bool Serves(Collective collective, const GroupShape& shape) const override {
    return collective == Collective::kAllReduce && shape.ranks_per_node > 2 && shape.nodes() > 1;
  }
  bool Possible(const Network& network) const override { return network.into_switch.value > 0; }

  // Two nodes exchange S each way. The switch serves the tree, too; in its interior chips differ.
  InsideAndBetween<double> Efficiency(const Network& network) const override {
    const double inside =
        network.InsideShare("nvls_efficiency") * network.efficiency("nvls_tree_efficiency");
    if (network.shape.nodes() == 2)
      return {inside, network.BetweenShare("nic_nvls_pair_efficiency")};
    return {inside, network.BetweenShare("nic_nvls_tree_efficiency") *
                        network.efficiency("nvls_interior_efficiency")};
  }
  LineRates Lines(const Network& network) const override {
    return {network.into_switch, network.between() * network.tree_uplinks};
  }

  // Each GPU sends and receives everything once: the edges of a ring through the switch do as much.
  net::Traffic Route(Collective, net::GroupRoutes* routes) const override {
    return net::InOnePhase(routes->DoubleTree([&](const std::vector<int64_t>& walk, int turn) {
      for (std::size_t i = 0; i < walk.size() && walk.size() > 1; ++i)
        routes->AddEdge(walk[i], walk[(i + 1) % walk.size()], turn);
    }));
  }

 private:
  AlgorithmCost CostOf(Collective collective, const Network& network) const override {
    const int nodes = network.shape.nodes();
    const int depth = std::bit_width(static_cast<unsigned>(nodes - 1));  // ceil(log2 N)
    AlgorithmCost cost;
    cost.hops = cost.steps = 2 * depth;
    // In terms of bus bandwidth a node's switch is loaded with 2 (g-1)/g S.
    cost.scaleup_load = WireFactor(collective, network.shape.ranks_per_node);
    cost.nic_load = nodes == 2 ? 1.0 : 2.0;
    cost.between_step = 1 / network.efficiency("tree_step_efficiency");
    cost.by_switch = true;
    cost.chunks = Chunks(network);
    FillTimeLines(*this, network, 0.0, &cost);
    cost.bandwidth.line.latency += network.switch_round_trip.value;
    // The route has S, not the bus's 2 (g-1)/g S, on the links of a node: there it goes as a ring.
    cost.bandwidth.share.scale_up = network.InsideShare("ring_efficiency");
    cost.steps += 2;
    cost.scaleup_load = 1.0;
    cost.latency.reset();
    return cost;
  }
};

}  // namespace

const Algorithm& NvlsTreeAlgorithm() {
  static const NvlsTreeImpl tree;
  return tree;
}

}  // namespace orrery
