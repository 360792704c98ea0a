// SPDX-License-Identifier: Apache-2.0
// Reduction inside the NVLink switch, on one node and as the intra-node part of a tree over nodes.
//
// The switch adds what all ranks of the node write, so that each rank sends and receives S once:
// measured bus bandwidth exceeds the link rate. Between nodes each node sends S (two nodes) or 2 S
// (interior of the two trees) over all NICs at once. All-reduce only.
#include <bit>

#include "model/collectives/algorithm.h"

namespace orrery {
namespace {

// Time lines of `messages` network hops around one reduction in the switch of every node.
AlgorithmCost SwitchCost(const Network& network, int hops, double nic_load) {
  AlgorithmCost cost;
  cost.hops = hops;
  cost.steps = hops;
  // In terms of bus bandwidth a node's switch is loaded with 2 (g-1)/g S.
  const double wire = WireFactor(Collective::kAllReduce, network.shape.ranks_per_node);
  cost.scaleup_load = wire * network.intra.value / network.in_switch.value;
  cost.nic_load = nic_load;
  FillTimeLines(network, network.inter_nvls_tree, 0.0, &cost);
  cost.bandwidth.latency += network.switch_round_trip.value;
  cost.steps = hops + 2;
  cost.scaleup_load = 1.0;
  cost.latency.reset();  // the switch works with the bandwidth protocol only
  return cost;
}

bool HasSwitch(Collective collective, const Network& network) {
  return collective == Collective::kAllReduce && network.shape.ranks_per_node > 2 &&
         network.in_switch.value > 0;
}

}  // namespace

std::optional<AlgorithmCost> NvlsCost(Collective collective, const Network& network) {
  if (!HasSwitch(collective, network) || network.shape.nodes() > 1) return std::nullopt;
  return SwitchCost(network, 0, 0.0);
}

std::optional<AlgorithmCost> NvlsTreeCost(Collective collective, const Network& network) {
  const int nodes = network.shape.nodes();
  if (!HasSwitch(collective, network) || nodes < 2) return std::nullopt;
  const int depth = std::bit_width(static_cast<unsigned>(nodes - 1));  // ceil(log2 N)
  return SwitchCost(network, 2 * depth, nodes == 2 ? 1.0 : 2.0);
}

}  // namespace orrery
