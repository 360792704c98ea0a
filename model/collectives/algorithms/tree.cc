// SPDX-License-Identifier: Apache-2.0
// Double binary tree over nodes with a chain inside each: reduce up, broadcast down.
//
// Two complementary trees carry half of the data each: up every edge goes S/2 of partial sums, down comes
// S/2 of sums. Latency grows with log2 N, that of a ring with N.
// Invariant: an interior node of one tree is a leaf of the other, so that a node sends S when there are
// two of them and at most 2 S when there are more. All-reduce only.
// Chunks have a fixed size: the first takes all steps up and down, and only then is the pipeline full.
// Source: Sanders, Speck, Traeff 2009 (two-tree algorithms); NCCL since 2.4.
#include <algorithm>
#include <bit>

#include "model/collectives/routing.h"

namespace orrery {
namespace {

// NCCL (comm.h, enqueue.cc): by the bandwidth protocol an eighth of a channel's buffer of 4 MiB.
constexpr double kChunkOfChannel = 512.0 * 1024;
// NCCL 2.28.9 (enqueue.cc, topoGetAlgoInfo): LL opens another channel once each of 512 threads has 8 bytes. Rings do so for the
// share of a rank, but runs on 32 and 64 nodes show no such time per hop.
constexpr double kLowLatencyChannelBytes = 512 * 8;
// NCCL (graph/tuning.cc): microseconds of a hop by LL128 and by LL, over NVLink and over a network.
constexpr double kTreeLineInside = 1.25 / 0.6, kTreeLineBetween = 8.5 / 5.0;

class DoubleBinaryTreeImpl : public Algorithm {
 public:
  DoubleBinaryTreeImpl() : Algorithm("tree") {}

  bool Serves(Collective collective, const GroupShape& shape) const override {
    return collective == Collective::kAllReduce && shape.nodes() > 1;
  }

  InsideAndBetween<double> Efficiency(const Network& network) const override {
    return {network.InsideShare("ring_efficiency"), network.BetweenShare("nic_tree_efficiency")};
  }

  LineRates Lines(const Network& network) const override {
    return {network.inside, network.between() * network.tree_uplinks};
  }

  // A chain inside a node sends down what it sent up.
  net::Traffic Route(Collective, net::GroupRoutes* routes) const override {
    return net::InOnePhase(routes->DoubleTree([&](const std::vector<int64_t>& walk, int turn) {
      for (std::size_t i = 1; i < walk.size(); ++i) {
        routes->AddEdge(walk[i - 1], walk[i], turn);
        routes->AddEdge(walk[i], walk[i - 1], turn);
      }
    }));
  }

 private:
  // NCCL 2.28.9 (enqueue.cc): by LL128 a channel's chunk of 640 threads x 120 words, of which 15 of 16 are data, is halved while
  // a message has fewer of them than keep the tree busy.
  static ChunkSizes LineChunks(const Network& network) {
    constexpr double kWhole = 640 * 120 * 8 * 15.0 / 16;
    constexpr double kLarge = 131072, kSmall = 32768;
    constexpr double kManyOfLarge = 64, kManyOfSmall = 16, kStepOfRank = 0.1;
    const int nodes = network.shape.nodes(), each = network.shape.ranks_per_node;
    const double steps = std::bit_width(static_cast<unsigned>(nodes)) +
                         kStepOfRank * each;  // 1 + floor(log2 N) + ...
    ChunkSizes sizes;
    double chunk = kWhole;
    for (; chunk > kSmall; chunk /= 2) {
      const double many = (chunk > kLarge ? kManyOfLarge : kManyOfSmall) * steps / each;
      sizes.Add(network.channels() * chunk * many, network.channels() * chunk);
    }
    sizes.Add(0, network.channels() * chunk);
    return sizes;
  }

  AlgorithmCost CostOf(Collective, const Network& network) const override {
    const int nodes = network.shape.nodes();
    const int depth = std::bit_width(static_cast<unsigned>(nodes - 1));  // ceil(log2 N)
    AlgorithmCost cost;
    cost.hops = 2 * depth;
    cost.steps = cost.hops + 2 * (network.shape.ranks_per_node - 1);
    cost.scaleup_load = network.shape.ranks_per_node > 1 ? 2.0 : 0.0;
    cost.nic_load = nodes == 2 ? 1.0 : 2.0;
    cost.between_step = 1 / network.efficiency("tree_step_efficiency");
    const double chunk = network.channels() * kChunkOfChannel;
    cost.chunks = ChunkSizes(chunk);
    cost.line_hop = {kTreeLineInside, kTreeLineBetween};
    cost.line_chunks = LineChunks(network);
    // Flags bound the latency protocol, whatever goes where: what a ring reaches with them a tree does, too (NCCL 2.28.9,
    // graph/tuning.cc, caps both at one bus bandwidth). Measured: 48 GB/s out of 64 nodes of B200, 42 of two of a3-mega.
    cost.latency_share = std::max(network.BetweenShare("nic_tree_efficiency"),
                                  network.BetweenShare("nic_ring_efficiency"));
    cost.channel_bytes = kLowLatencyChannelBytes;
    FillTimeLines(*this, network, 0.0, &cost);
    return cost;
  }
};

}  // namespace

const Algorithm& DoubleBinaryTreeAlgorithm() {
  static const DoubleBinaryTreeImpl tree;
  return tree;
}

}  // namespace orrery
