// SPDX-License-Identifier: Apache-2.0
// Ring: n ranks pass chunks of S/n around; every node is entered and left once per lap.
//
// All-reduce takes two laps (2(n-1) steps, 2(N-1) of them between nodes): in the first each rank adds
// its own chunk to what comes in, in the second the sums go round. All-gather and reduce-scatter take
// one. A broadcast is the same chain from its root, with all of S over each edge.
// Invariant: every edge carries the wire volume f S, the least that any algorithm can send, so that the
// bus bandwidth is the rate of a line. Inside a node the wire time is f S / B and each rank adds one
// local pass over its chunk, S / (n C) in all (without it two ranks are predicted 10 % too fast).
// Source: Patarasuk, Yuan 2009 (bandwidth optimal all-reduce); NCCL's ring and its chains.
#include <algorithm>

#include "model/collectives/routing.h"

namespace orrery {
namespace {

// NCCL (graph/tuning.cc): microseconds of a hop by LL128 and by LL, over NVLink and over a network.
constexpr double kRingLineInside = 1.9 / 0.6, kRingLineBetween = 4.0 / 2.7;

class RingImpl : public Algorithm {
 public:
  RingImpl() : Algorithm("ring") {}

  bool Serves(Collective collective, const GroupShape&) const override {
    return Laps(collective) > 0;
  }

  // Collisions cost long rings a part of the rate that two nodes reach.
  InsideAndBetween<double> Efficiency(const Network& network) const override {
    return {network.InsideShare("ring_efficiency"),
            network.BetweenShare("nic_ring_efficiency") * network.ring_collisions};
  }

  // Of collisions and full uplinks only the worse one counts.
  LineRates Lines(const Network& network) const override {
    const double left = std::min(1.0, network.ring_uplinks / network.ring_collisions);
    return {network.inside, network.between() * left};
  }

  net::Traffic Route(Collective collective, net::GroupRoutes* routes) const override {
    const bool chain = collective == Collective::kBroadcast;
    return net::InOnePhase(routes->Ring(routes->nodes(), WireFactor(collective, routes->ranks()),
                                        chain ? routes->members().front() : -1));
  }

 private:
  static int Laps(Collective collective) {
    switch (collective) {
      case Collective::kAllReduce:
        return 2;
      case Collective::kAllGather:
      case Collective::kReduceScatter:
      case Collective::kBroadcast:
        return 1;
      case Collective::kAllToAll:
      case Collective::kSendRecv:
        break;
    }
    return 0;
  }

  AlgorithmCost CostOf(Collective collective, const Network& network) const override {
    const int ranks = network.shape.ranks, nodes = network.shape.nodes();
    AlgorithmCost cost;
    cost.steps = Laps(collective) * (ranks - 1);
    cost.hops = Laps(collective) * (nodes - 1);
    // Between nodes chunks are large and each step waits for the slowest: a step inside a node takes longer, too.
    if (nodes > 1) cost.inside_step = 1 / network.efficiency("ring_step_efficiency");
    cost.scaleup_load = network.shape.ranks_per_node > 1 ? WireFactor(collective, ranks) : 0.0;
    cost.nic_load = nodes > 1 ? WireFactor(collective, ranks) : 0.0;
    cost.line_hop = {kRingLineInside, kRingLineBetween};
    const bool copies = collective == Collective::kAllReduce && network.local_copy.value > 0;
    FillTimeLines(*this, network, copies ? 1.0 / (ranks * network.local_copy.value) : 0.0, &cost);
    return cost;
  }
};

}  // namespace

const Algorithm& RingAlgorithm() {
  static const RingImpl ring;
  return ring;
}

}  // namespace orrery
