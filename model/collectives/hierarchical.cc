// SPDX-License-Identifier: Apache-2.0
// Hierarchical: reduce-scatter inside every node, one ring per local rank between nodes, all-gather
// inside.
//
// The NICs carry what a flat ring makes them carry, but the chain of dependent steps is 2(g-1) +
// 2(N-1) long instead of 2(n-1). Phases follow each other, so that their times add. All-reduce,
// all-gather and reduce-scatter on several nodes with several ranks each.
#include "model/collectives/algorithm.h"

namespace orrery {

std::optional<AlgorithmCost> HierarchicalCost(Collective collective, const Network& network) {
  const int local = network.shape.ranks_per_node;
  const int nodes = network.shape.nodes();
  if (local < 2 || nodes < 2) return std::nullopt;
  int laps = 0;
  switch (collective) {
    case Collective::kAllReduce:
      laps = 2;
      break;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
      laps = 1;
      break;
    case Collective::kAllToAll:
    case Collective::kSendRecv:
    case Collective::kBroadcast:
      return std::nullopt;
  }
  AlgorithmCost cost;
  cost.hops = laps * (nodes - 1);
  cost.steps = cost.hops + laps * (local - 1);
  cost.nic_load = WireFactor(collective, nodes);
  const double inside = WireFactor(collective, local) / network.intra.value;
  FillTimeLines(network, network.inter_ring, inside, &cost);
  cost.scaleup_load = WireFactor(collective, local);
  return cost;
}

}  // namespace orrery
