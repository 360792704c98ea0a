// SPDX-License-Identifier: Apache-2.0
// Direct all-to-all: every rank sends S/n to every other one.
//
// What stays in the node goes over scale-up links, the rest, (n-g)/n S of each of the g local
// ranks, over the NICs. The floor is higher than that of a ring: n-1 sends to different peers.
#include "model/collectives/algorithm.h"

namespace orrery {

std::optional<AlgorithmCost> DirectAllToAllCost(Collective collective, const Network& network) {
  if (collective != Collective::kAllToAll) return std::nullopt;
  const int ranks = network.shape.ranks;
  const int local = network.shape.ranks_per_node;
  const int nodes = network.shape.nodes();
  AlgorithmCost cost;
  cost.steps = ranks - 1;
  cost.hops = nodes - 1;
  cost.scaleup_load = static_cast<double>(local - 1) / ranks;
  cost.nic_load = nodes > 1 ? static_cast<double>(local) * (ranks - local) / ranks : 0.0;
  FillTimeLines(network, network.inter_direct, 0.0, &cost);
  return cost;
}

}  // namespace orrery
