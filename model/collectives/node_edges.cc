// SPDX-License-Identifier: Apache-2.0
// Rings, trees and hops as edges between nodes.
#include "model/collectives/node_edges.h"

#include <algorithm>

namespace orrery {
namespace {

// Parent of position p in 1..n of a balanced tree in which every other position is a leaf; 0: root.
// With k trailing zeros p stands k levels above the leaves; its parent is p with the lowest bit moved up
// by one, or, where that lies beyond n, with the lowest bit taken away.
int64_t TreeParent(int64_t p, int64_t n) {
  const int64_t step = p & -p;
  const int64_t up = (p ^ step) | (step << 1);
  return up <= n ? up : p ^ step;
}

}  // namespace

// The second tree is the first one shifted by a member: leaves become interior.
int64_t ParentInTree(int64_t n, int64_t count, int64_t shift) {
  const int64_t parent = TreeParent((n + shift) % count + 1, count);
  return parent == 0 ? -1 : (parent - 1 - shift + count) % count;
}

void NodeEdges::AddHop(int from, int to) {
  if (from != to) edges_[{from, to}] += 1;
}

void NodeEdges::AddRing(std::span<const int> nodes) {
  for (std::size_t i = 0; i < nodes.size(); ++i) AddHop(nodes[i], nodes[(i + 1) % nodes.size()]);
}

void NodeEdges::AddTrees(std::span<const int> nodes) {
  std::vector<int> each;
  std::ranges::unique_copy(nodes, std::back_inserter(each));
  const auto count = static_cast<int64_t>(each.size());
  if (count < 2) return;
  for (const int64_t shift : {0, 1}) {
    for (int64_t n = 0; n < count; ++n) {
      const int64_t parent = ParentInTree(n, count, shift);
      if (parent < 0) continue;
      const int here = each[static_cast<std::size_t>(n)];
      const int above = each[static_cast<std::size_t>(parent)];
      AddHop(here, above);
      AddHop(above, here);
    }
  }
  for (const int node : each) priced_[node] += count == 2 ? 2 : 4;
}

std::vector<NodeEdges::Edge> NodeEdges::edges(int hop) const {
  std::vector<Edge> all;
  for (const auto& [ends, count] : edges_) all.push_back({ends.first, ends.second, count, hop});
  return all;
}

double NodeEdges::busiest() const {
  std::map<int, double> out, in;
  double most = 0;
  for (const auto& [ends, count] : edges_) {
    most = std::max(most, out[ends.first] += count);
    most = std::max(most, in[ends.second] += count);
  }
  for (const auto& [node, count] : priced_) most = std::max(most, count);
  return most;
}

double Crossing(std::span<const NodeEdges::Edge> edges, std::span<const int32_t> order,
                const Uplinks& part) {
  const auto share = [&](int place) {
    return part.share[static_cast<std::size_t>(order[static_cast<std::size_t>(place)])];
  };
  double out = 0, in = 0;
  for (const NodeEdges::Edge& edge : edges) {
    if (share(edge.to) == 0) out += edge.count * share(edge.from);
    if (share(edge.from) == 0) in += edge.count * share(edge.to);
  }
  return std::max(out, in);
}

bool Crosses(const NodeEdges::Edge& edge, std::span<const int32_t> order, const Uplinks& part) {
  return Crossing({&edge, 1}, order, part) > 0;
}

}  // namespace orrery
