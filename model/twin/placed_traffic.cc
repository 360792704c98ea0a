// SPDX-License-Identifier: Apache-2.0
// Counts the edges of a layout's messages between nodes.
#include "model/twin/placed_traffic.h"

#include <algorithm>
#include <set>

namespace orrery {
namespace {

using Edges = std::array<NodeEdges, kPlacedKinds>;

}  // namespace

PlacedTraffic::PlacedTraffic(const Strategy& s, int gpus_per_node)
    : replicas_(s.dp * s.dp_outer), stages_(s.pp) {
  const int inner = s.tp * s.cp;
  places_ = static_cast<int>((s.ranks() + gpus_per_node - 1) / gpus_per_node);
  const auto place = [&](int replica, int stage, int context, int tensor) {
    const int64_t outer = s.stages_inside() ? int64_t{1} * replica * s.pp + stage
                                            : int64_t{1} * stage * replicas_ + replica;
    return static_cast<int>((outer * inner + context * s.tp + tensor) / gpus_per_node);
  };
  Edges edges;
  std::vector<NodeEdges> hops(static_cast<std::size_t>(stages_));
  // The places of `size` ranks that differ in what `at` is given.
  const auto group = [&edges](int size, PlacedKind rings, PlacedKind trees, const auto& at) {
    if (size < 2) return;
    std::vector<int> nodes(static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) nodes[static_cast<std::size_t>(i)] = at(i);
    edges[rings].AddRing(nodes);
    edges[trees].AddTrees(nodes);
  };
  std::vector<std::set<Cell>> cells(static_cast<std::size_t>(places_));
  for (int stage = 0; stage < s.pp; ++stage) {
    for (int d = 0; d < replicas_; ++d) {
      for (int c = 0; c < s.cp; ++c) {
        group(s.tp, kTensorMessages, kTensorTrees, [&](int t) { return place(d, stage, c, t); });
        for (int t = 0; t < s.tp; ++t) {
          const int here = place(d, stage, c, t);
          cells[static_cast<std::size_t>(here)].insert({d, stage});
          // The way back from the last stage, of chunks, leaves a part no more often than these hops enter it or leave it.
          if (stage + 1 < s.pp) {
            edges[kStageMessages].AddHop(here, place(d, stage + 1, c, t));
            hops[static_cast<std::size_t>(stage)].AddHop(here, place(d, stage + 1, c, t));
          }
          if (stage + 1 < s.pp || s.pp < 2) continue;
          edges[kEndMessages].AddHop(here, place(d, 0, c, t));
          edges[kEndMessages].AddHop(place(d, 0, c, t), here);
        }
      }
      for (int t = 0; t < s.tp; ++t)
        group(s.cp, kTensorMessages, kTensorTrees, [&](int c) { return place(d, stage, c, t); });
    }
    for (int t = 0; t < s.tp; ++t) {
      for (int o = 0; o < s.dp_outer; ++o) {
        group(s.dp * s.cp, kDataMessages, kDataTrees,
              [&](int i) { return place(o * s.dp + i / s.cp, stage, i % s.cp, t); });
      }
      for (int i = 0; i < s.dp * s.cp; ++i) {
        group(s.dp_outer, kGroupMessages, kGroupTrees,
              [&](int o) { return place(o * s.dp + i / s.cp, stage, i % s.cp, t); });
      }
    }
  }
  for (const std::set<Cell>& of_place : cells)
    cells_.emplace_back(of_place.begin(), of_place.end());
  for (unsigned kind = 0; kind < kPlacedKinds; ++kind)
    edges_[kind] = edges[kind].edges(s.pp - 1), busiest_[kind] = edges[kind].busiest();
  edges_[kStageMessages].clear();
  for (int stage = 0; stage + 1 < stages_; ++stage)
    std::ranges::move(hops[static_cast<std::size_t>(stage)].edges(stage),
                      std::back_inserter(edges_[kStageMessages]));
}

Stretches PlacedTraffic::StretchesOf(std::span<const int32_t> order,
                                     const std::vector<Uplinks>& uplinks,
                                     BytesPerSecond node_rate) const {
  Stretches stretches;
  for (unsigned kind = 0; kind < kPlacedKinds; ++kind) {
    if (busiest_[kind] <= 0) continue;
    for (const Uplinks& part : uplinks)
      stretches[kind] =
          std::max(stretches[kind], Crossing(edges_[kind], order, part) / part.rate.value *
                                        node_rate.value / busiest_[kind]);
  }
  for (const PlacedKind kind : {kStageMessages, kEndMessages}) {
    if (stretches[kind] <= 1) continue;
    stretches.through.resize(static_cast<std::size_t>(stages_));
    for (const Edge& edge : edges_[kind]) {
      char& through = stretches.through[static_cast<std::size_t>(edge.hop)];
      through = through || std::ranges::any_of(uplinks, [&](const Uplinks& part) {
                  return Crosses(edge, order, part);
                });
    }
  }
  return stretches;
}

std::vector<std::vector<double>> PlacedTraffic::SlowReplicas(std::span<const double> slowdown,
                                                             bool together) const {
  if (std::ranges::all_of(slowdown, [](double factor) { return factor == 1; })) return {};
  std::vector<std::vector<double>> of(static_cast<std::size_t>(together ? 1 : replicas_),
                                      std::vector<double>(static_cast<std::size_t>(stages_), 0.0));
  for (int place = 0; place < places_; ++place) {
    for (const Cell& cell : cells(place)) {
      double& factor = of[static_cast<std::size_t>(together ? 0 : cell.replica)]
                         [static_cast<std::size_t>(cell.stage)];
      factor = std::max(factor, slowdown[static_cast<std::size_t>(place)]);
    }
  }
  std::ranges::sort(of);
  of.erase(std::unique(of.begin(), of.end()), of.end());
  const auto beaten = [&of](const std::vector<double>& one) {
    return std::ranges::any_of(of, [&](const std::vector<double>& other) {
      return other != one && std::ranges::equal(one, other, std::less_equal<>());
    });
  };
  std::vector<std::vector<double>> worst;
  std::ranges::remove_copy_if(of, std::back_inserter(worst), beaten);
  return worst;
}

}  // namespace orrery
