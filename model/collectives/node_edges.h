// SPDX-License-Identifier: Apache-2.0
// What leaves parts of a network: the edges between nodes of one kind of message, and how much longer uplinks take for them.
//
// Seconds of the uplinks of a part, over those of the NICs of the busiest node:
//   stretch = edges out of the part / rate out of it / (edges of the busiest node / rate of its NICs)
// All links out of a part count as one (Uplinks); what single links lose to collisions is left to the simulation.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/hardware/node_order.h"

namespace orrery {

// Of groups of ranks that send at the same time. Nodes by place in the order of ranks.
class NodeEdges {
 public:
  struct Edge {
    int from = 0, to = 0;
    double count = 0;  // of ranks that send
    int hop = 0;       // the stage that sends, between stages
  };

  void AddHop(int from, int to);
  // `nodes`: of each rank of a group, in its order; equal ones follow each other.
  void AddRing(std::span<const int> nodes);
  // The double binary tree (routing.h), S/2 both ways over each edge. Its price has a node with two edges up and two down: so
  // many count for the busiest one.
  void AddTrees(std::span<const int> nodes);

  bool empty() const { return edges_.empty(); }
  std::vector<Edge> edges(int hop = 0) const;
  double busiest() const;  // edges of one node

 private:
  std::map<std::pair<int, int>, double> edges_;
  std::map<int, double> priced_;  // by node: edges that the price of trees has
};

// Edges out of a part of the network or into it, whichever are more. `order`: nodes by place.
double Crossing(std::span<const NodeEdges::Edge> edges, std::span<const int32_t> order,
                const Uplinks& part);

// Whether an edge leaves a part.
bool Crosses(const NodeEdges::Edge& edge, std::span<const int32_t> order, const Uplinks& part);

// Parent of member n of `count` in the first or second tree (shift 0, 1); -1: the root.
int64_t ParentInTree(int64_t n, int64_t count, int64_t shift);

}  // namespace orrery
