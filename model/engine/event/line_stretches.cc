// SPDX-License-Identifier: Apache-2.0
// Counts the edges of all communicators of a line between nodes.
#include "model/engine/event/line_stretches.h"

#include <algorithm>
#include <numeric>

#include "model/engine/event/index.h"

namespace orrery::sim {

int64_t NeighbourOf(const ir::Mesh& mesh, int64_t rank, int axis, int delta) {
  std::vector<int> coords = mesh.Coords(rank);
  const int size = mesh.axes[At(axis)].size;
  coords[At(axis)] = ((coords[At(axis)] + delta) % size + size) % size;
  return mesh.Rank(coords);
}

LineStretches::LineStretches(const ir::Plan& plan, const PlanTasks& tasks, const Cluster& cluster)
    : plan_(plan), tasks_(tasks), cluster_(cluster), order_(cluster.order) {
  if (cluster.summary.domain_nodes > 1 || cluster.nodes < 2) return;
  uplinks_ = NarrowUplinks(cluster.spec, cluster.summary);
  if (!order_.empty()) return;
  order_.resize(At(cluster.nodes));
  std::iota(order_.begin(), order_.end(), 0);
}

UplinkStretch LineStretches::Of(int32_t line, std::span<const int64_t> members) {
  if (cluster_.summary.domain_nodes > 1) return {};
  UplinkStretch stretch{1, 1};
  if (uplinks_.empty()) return stretch;
  NodeEdges edges;
  edges.AddRing(PlacesOf(members));
  const std::vector<NodeEdges::Edge> all = edges.edges();
  for (std::size_t part = 0; part < uplinks_.size() && !all.empty(); ++part) {
    if (Crossing(all, order_, uplinks_[part]) == 0) continue;
    const ByUplinks& of = OfLine(line);
    stretch.ring = std::max(stretch.ring, of.ring[part]);
    stretch.tree = std::max(stretch.tree, of.tree[part]);
  }
  return stretch;
}

const LineStretches::ByUplinks& LineStretches::OfLine(int32_t line) {
  const auto [known, fresh] = known_.try_emplace(line);
  if (!fresh) return known->second;
  const Line& key = tasks_.lines[At(line)].line;
  NodeEdges rings, trees;
  const std::vector<char> sends = Senders(line);
  std::vector<char> counted(At(plan_.mesh.ranks()), 0);
  for (int64_t rank = 0; rank < plan_.mesh.ranks(); ++rank) {
    if (counted[At(rank)]) continue;
    if (key.axis >= 0) {
      if (!sends[At(plan_.mesh.Coords(rank)[At(plan_.mesh.program_axis)])]) continue;
      const std::vector<int> ends =
          PlacesOf(std::vector<int64_t>{rank, NeighbourOf(plan_.mesh, rank, key.axis, key.delta)});
      rings.AddHop(ends[0], ends[1]);
      continue;
    }
    const auto members = ir::GroupMembers(plan_.mesh, plan_.groups[At(key.group)], rank);
    for (const int64_t member : members) counted[At(member)] = 1;
    const std::vector<int> places = PlacesOf(members);
    rings.AddRing(places);
    trees.AddTrees(places);
  }
  const auto of = [&](const NodeEdges& edges) {
    const std::vector<NodeEdges::Edge> all = edges.edges();
    std::vector<double> stretches;
    for (const Uplinks& part : uplinks_)
      stretches.push_back(all.empty() ? 1.0
                                      : Crossing(all, order_, part) / part.rate.value *
                                            cluster_.summary.node_rate().value / edges.busiest());
    return stretches;
  };
  return known->second = {of(rings), of(trees)};
}

std::vector<int> LineStretches::PlacesOf(std::span<const int64_t> members) const {
  std::vector<int> places;
  for (const int64_t rank : members)
    places.push_back(static_cast<int>(rank / cluster_.gpus_per_node));
  return places;
}

std::vector<char> LineStretches::Senders(int32_t line) const {
  std::vector<char> sends;
  for (const StageTasks& stage : tasks_.stages)
    sends.push_back(std::ranges::any_of(
        stage.tasks, [&](const Task& task) { return task.line == line && !task.receives; }));
  return sends;
}

}  // namespace orrery::sim
