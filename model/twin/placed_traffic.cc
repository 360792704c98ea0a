// SPDX-License-Identifier: Apache-2.0
// Counts the edges of a layout's messages between nodes.
#include "model/twin/placed_traffic.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace orrery {
namespace {

using Counts = std::map<std::pair<int, int>, double>;

void AddHop(int from, int to, Counts* counts) {
  if (from != to) (*counts)[{from, to}] += 1;
}

void AddRing(const std::vector<int>& nodes, Counts* counts) {
  for (std::size_t i = 0; i < nodes.size(); ++i)
    AddHop(nodes[i], nodes[(i + 1) % nodes.size()], counts);
}

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
  // The places of `size` ranks that differ in what `at` is given.
  const auto ring = [](int size, Counts* counts, const auto& at) {
    if (size < 2) return;
    std::vector<int> nodes(static_cast<std::size_t>(size));
    for (int i = 0; i < size; ++i) nodes[static_cast<std::size_t>(i)] = at(i);
    AddRing(nodes, counts);
  };
  std::array<Counts, kPlacedKinds> counts;
  std::vector<std::set<Cell>> cells(static_cast<std::size_t>(places_));
  for (int stage = 0; stage < s.pp; ++stage) {
    for (int d = 0; d < replicas_; ++d) {
      for (int c = 0; c < s.cp; ++c) {
        ring(s.tp, &counts[kTensorMessages], [&](int t) { return place(d, stage, c, t); });
        for (int t = 0; t < s.tp; ++t) {
          const int here = place(d, stage, c, t);
          cells[static_cast<std::size_t>(here)].insert({d, stage});
          if (stage + 1 < s.pp) AddHop(here, place(d, stage + 1, c, t), &counts[kStageMessages]);
          if (stage + 1 == s.pp && s.vpp > 1)
            AddHop(here, place(d, 0, c, t), &counts[kStageMessages]);
        }
      }
      for (int t = 0; t < s.tp; ++t)
        ring(s.cp, &counts[kTensorMessages], [&](int c) { return place(d, stage, c, t); });
    }
    for (int t = 0; t < s.tp; ++t) {
      for (int o = 0; o < s.dp_outer; ++o) {
        ring(s.dp * s.cp, &counts[kDataMessages],
             [&](int i) { return place(o * s.dp + i / s.cp, stage, i % s.cp, t); });
      }
      for (int i = 0; i < s.dp * s.cp; ++i) {
        ring(s.dp_outer, &counts[kDataMessages],
             [&](int o) { return place(o * s.dp + i / s.cp, stage, i % s.cp, t); });
      }
    }
  }
  for (const std::set<Cell>& of_place : cells)
    cells_.emplace_back(of_place.begin(), of_place.end());
  for (unsigned kind = 0; kind < kPlacedKinds; ++kind) {
    std::vector<double> out(static_cast<std::size_t>(places_)), in(out);
    for (const auto& [ends, count] : counts[kind]) {
      edges_[kind].push_back({ends.first, ends.second, count});
      out[static_cast<std::size_t>(ends.first)] += count;
      in[static_cast<std::size_t>(ends.second)] += count;
    }
    busiest_[kind] = std::max(*std::ranges::max_element(out), *std::ranges::max_element(in));
  }
}

Stretches PlacedTraffic::StretchesOf(std::span<const int32_t> order,
                                     const std::vector<Uplinks>& uplinks,
                                     BytesPerSecond node_rate) const {
  Stretches stretches;
  stretches.fill(1);
  for (unsigned kind = 0; kind < kPlacedKinds; ++kind) {
    for (const Uplinks& part : uplinks) {
      const auto share = [&](int place) {
        return part.share[static_cast<std::size_t>(order[static_cast<std::size_t>(place)])];
      };
      double out = 0, in = 0;
      for (const Edge& edge : edges_[kind]) {
        if (share(edge.to) == 0) out += edge.count * share(edge.from);
        if (share(edge.from) == 0) in += edge.count * share(edge.to);
      }
      if (busiest_[kind] <= 0) continue;
      stretches[kind] = std::max(
          stretches[kind], std::max(out, in) / part.rate.value * node_rate.value / busiest_[kind]);
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
