// SPDX-License-Identifier: Apache-2.0
// Double binary tree over nodes with a chain inside each: reduce up, broadcast down.
//
// Two complementary trees carry half of the data each, so that an interior node of one is a leaf of
// the other (Sanders, Speck, Traeff 2009). Latency grows with log2 N. A node sends S when there are
// two of them and 2 S when it is interior to a tree. All-reduce only.
#include <bit>

#include "model/collectives/algorithm.h"

namespace orrery {

std::optional<AlgorithmCost> DoubleBinaryTreeCost(Collective collective, const Network& network) {
  const int nodes = network.shape.nodes();
  if (collective != Collective::kAllReduce || nodes < 2) return std::nullopt;
  const int depth = std::bit_width(static_cast<unsigned>(nodes - 1));  // ceil(log2 N)
  AlgorithmCost cost;
  cost.hops = 2 * depth;
  cost.steps = cost.hops + 2 * (network.shape.ranks_per_node - 1);
  cost.scaleup_load = network.shape.ranks_per_node > 1 ? 2.0 : 0.0;
  cost.nic_load = nodes == 2 ? 1.0 : 2.0;
  FillTimeLines(network, network.inter_tree, 0.0, &cost);
  return cost;
}

}  // namespace orrery
