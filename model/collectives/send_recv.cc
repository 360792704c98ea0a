// SPDX-License-Identifier: Apache-2.0
// One message between two ranks, all groups of the node sending at once.
#include "model/collectives/algorithm.h"

namespace orrery {

std::optional<AlgorithmCost> SendRecvCost(Collective collective, const Network& network) {
  if (collective != Collective::kSendRecv || network.shape.ranks < 2) return std::nullopt;
  AlgorithmCost cost;
  cost.steps = 1;
  const bool crosses = network.shape.nodes() > 1;
  cost.hops = crosses ? 1 : 0;
  cost.scaleup_load = crosses ? 0.0 : 1.0;
  cost.nic_load = crosses ? 1.0 : 0.0;  // in rank order one rank of the group leaves each node
  FillTimeLines(network, network.inter_direct, 0.0, &cost);
  cost.bandwidth.per_root_byte = 0.0;
  return cost;
}

}  // namespace orrery
