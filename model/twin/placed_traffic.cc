// SPDX-License-Identifier: Apache-2.0
// Counts the edges of a layout's messages between nodes.
#include "model/twin/placed_traffic.h"

#include <algorithm>
#include <functional>
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
  std::vector<Edges> of_stage(static_cast<std::size_t>(stages_));
  // The places of `size` ranks of a stage that differ in what `at` is given.
  const auto group = [&](int stage, int size, PlacedKind rings, PlacedKind trees, const auto& at) {
    if (size < 2) return;
    std::vector<int> nodes(static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) nodes[static_cast<std::size_t>(i)] = at(i);
    for (Edges* const one : {&edges, &of_stage[static_cast<std::size_t>(stage)]}) {
      (*one)[rings].AddRing(nodes);
      (*one)[trees].AddTrees(nodes);
    }
  };
  std::vector<std::set<Cell>> cells(static_cast<std::size_t>(places_));
  for (int stage = 0; stage < s.pp; ++stage) {
    for (int d = 0; d < replicas_; ++d) {
      for (int c = 0; c < s.cp; ++c) {
        group(stage, s.tp, kTensorMessages, kTensorTrees,
              [&](int t) { return place(d, stage, c, t); });
        for (int t = 0; t < s.tp; ++t) {
          const int here = place(d, stage, c, t);
          cells[static_cast<std::size_t>(here)].insert({d, stage});
          // The way back from the last stage, of chunks, leaves a part no more often than these hops enter it or leave it.
          if (stage + 1 < s.pp) {
            edges[kStageMessages].AddHop(here, place(d, stage + 1, c, t));
            of_stage[static_cast<std::size_t>(stage)][kStageMessages].AddHop(
                here, place(d, stage + 1, c, t));
          }
          if (stage + 1 < s.pp || s.pp < 2) continue;
          edges[kEndMessages].AddHop(here, place(d, 0, c, t));
          edges[kEndMessages].AddHop(place(d, 0, c, t), here);
        }
      }
      for (int t = 0; t < s.tp; ++t)
        group(stage, s.cp, kTensorMessages, kTensorTrees,
              [&](int c) { return place(d, stage, c, t); });
    }
    for (int t = 0; t < s.tp; ++t) {
      for (int o = 0; o < s.dp_outer; ++o) {
        group(stage, s.dp * s.cp, kDataMessages, kDataTrees,
              [&](int i) { return place(o * s.dp + i / s.cp, stage, i % s.cp, t); });
      }
      for (int i = 0; i < s.dp * s.cp; ++i) {
        group(stage, s.dp_outer, kGroupMessages, kGroupTrees,
              [&](int o) { return place(o * s.dp + i / s.cp, stage, i % s.cp, t); });
      }
    }
  }
  for (const std::set<Cell>& of_place : cells)
    cells_.emplace_back(of_place.begin(), of_place.end());
  for (unsigned kind = 0; kind < kPlacedKinds; ++kind) {
    busiest_[kind] = edges[kind].busiest();
    const bool whole = kind < kDataMessages || kind == kEndMessages;  // tables of layers are one
    if (whole) edges_[kind] = edges[kind].edges(s.pp - 1);
    for (int stage = 0; !whole && stage < stages_; ++stage)
      std::ranges::move(of_stage[static_cast<std::size_t>(stage)][kind].edges(stage),
                        std::back_inserter(edges_[kind]));
  }
}

Stretches PlacedTraffic::Stretched(
    const std::array<std::vector<double>, kPlacedKinds>& loads,
    const std::function<bool(PlacedKind, std::size_t, std::size_t)>& leaves) const {
  Stretches stretches;
  for (unsigned kind = 0; kind < kPlacedKinds; ++kind) {
    for (const double load : loads[kind]) stretches[kind] = std::max(stretches[kind], load);
  }
  const auto stages = static_cast<std::size_t>(stages_);
  if (stages < 2) return stretches;
  const auto find = [&](PlacedKind kind, std::span<const double> of, const auto& at) {
    for (std::size_t part = 0; part < of.size(); ++part) {
      for (std::size_t stage = 0; of[part] > 1 && stage < stages; ++stage) {
        double& most = at(stage);
        if (of[part] > most && leaves(kind, stage, part)) most = of[part];
      }
    }
  };
  if (stretches[kStageMessages] > 1) {
    stretches.hops.assign(stages, 1);
    for (const PlacedKind kind : {kStageMessages, kEndMessages})
      find(kind, loads[kStageMessages],
           [&](std::size_t stage) -> double& { return stretches.hops[stage]; });
  }
  for (unsigned kind = kDataMessages; kind < kStageMessages; ++kind) {
    if (stretches[kind] <= 1) continue;
    if (stretches.stages.empty()) stretches.stages.assign(stages, StageStretches::Free());
    find(static_cast<PlacedKind>(kind), loads[kind], [&](std::size_t stage) -> double& {
      return stretches.stages[stage][kind - kDataMessages];
    });
  }
  stretches.Simplify();
  return stretches;
}

Stretches PlacedTraffic::StretchesOf(std::span<const int32_t> order,
                                     const std::vector<Uplinks>& uplinks,
                                     BytesPerSecond node_rate) const {
  std::array<std::vector<double>, kPlacedKinds> loads;
  std::array<std::vector<char>, kPlacedKinds> leaves;  // by stage and part
  for (unsigned kind = 0; kind < kPlacedKinds; ++kind) {
    if (busiest_[kind] <= 0) continue;
    for (const Uplinks& part : uplinks)
      loads[kind].push_back(Crossing(edges_[kind], order, part) / part.rate.value *
                            node_rate.value / busiest_[kind]);
    leaves[kind].resize(static_cast<std::size_t>(stages_) * uplinks.size());
    for (const Edge& edge : edges_[kind]) {
      for (std::size_t part = 0; part < uplinks.size(); ++part) {
        char& leaves_it = leaves[kind][static_cast<std::size_t>(edge.hop) * uplinks.size() + part];
        leaves_it = leaves_it || Crosses(edge, order, uplinks[part]);
      }
    }
  }
  return Stretched(loads, [&](PlacedKind kind, std::size_t stage, std::size_t part) {
    return leaves[kind][stage * uplinks.size() + part] != 0;
  });
}

void Stretches::Simplify() {
  if (std::ranges::all_of(stages, [&](const auto& one) { return one == stages.front(); }))
    stages.clear();
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
