// SPDX-License-Identifier: Apache-2.0
// Ring: n ranks pass chunks of S/n around; every node is entered and left once per lap.
//
// All-reduce takes two laps (2(n-1) steps, 2(N-1) of them between nodes), all-gather and
// reduce-scatter one; a broadcast is the same chain from its root, with all of S over each edge.
// Inside a node the wire time is f S / B and each rank adds one local pass over its chunk, S / (n
// C) in all (without it two ranks are predicted 10 % too fast); between nodes f S leaves every
// node. Bus bandwidth = B.
#include <algorithm>

#include "model/collectives/algorithm.h"

namespace orrery {

std::optional<AlgorithmCost> RingCost(Collective collective, const Network& network) {
  int laps = 0;
  switch (collective) {
    case Collective::kAllReduce:
      laps = 2;
      break;
    case Collective::kAllGather:
    case Collective::kReduceScatter:
    case Collective::kBroadcast:
      laps = 1;
      break;
    case Collective::kAllToAll:
    case Collective::kSendRecv:
      return std::nullopt;
  }
  const int ranks = network.shape.ranks;
  const int nodes = network.shape.nodes();
  AlgorithmCost cost;
  cost.steps = laps * (ranks - 1);
  cost.hops = laps * (nodes - 1);
  cost.scaleup_load = network.shape.ranks_per_node > 1 ? WireFactor(collective, ranks) : 0.0;
  cost.nic_load = nodes > 1 ? WireFactor(collective, ranks) : 0.0;
  const bool copies = collective == Collective::kAllReduce && network.local_copy.value > 0;
  FillTimeLines(network, network.inter_ring,
                copies ? 1.0 / (ranks * network.local_copy.value) : 0.0, &cost);
  return cost;
}

}  // namespace orrery
