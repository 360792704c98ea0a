// SPDX-License-Identifier: Apache-2.0
// What the placement of ranks changes: which messages leave the leaves of a network, and which stages wait for slow nodes.
//
// Each kind of message is a set of edges between the places of nodes in the order of ranks: rings of the data and tensor
// groups, hops between stages. A part of the network (Uplinks) passes on the edges that leave it. Seconds that it takes,
// over those of the NICs of the busiest node:
//   stretch = max over parts (edges out of it / rate out of it) / max over nodes (edges / rate of its NICs), at least 1
// Collectives count as rings in the order of ranks, whatever algorithm they take, and all links out of a part as one: trees, and
// what single links lose to collisions, are left to the simulation.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "model/hardware/node_order.h"
#include "model/plan/lower/strategy.h"

namespace orrery {

enum PlacedKind : unsigned char { kTensorMessages, kDataMessages, kStageMessages, kPlacedKinds };
using Stretches = std::array<double, kPlacedKinds>;

class PlacedTraffic {
 public:
  struct Edge {
    int from = 0, to = 0;  // places of nodes
    double count = 0;      // of ranks that send
  };
  struct Cell {
    int replica = 0, stage = 0;
    auto operator<=>(const Cell&) const = default;
  };
  // Degrees and order of axes are those of `layout`.
  PlacedTraffic(const Strategy& layout, int gpus_per_node);

  int places() const { return places_; }
  const std::vector<Edge>& edges(PlacedKind kind) const { return edges_[kind]; }
  const std::vector<Cell>& cells(int place) const {
    return cells_[static_cast<std::size_t>(place)];
  }
  double busiest(PlacedKind kind) const { return busiest_[kind]; }  // edges of one node
  bool spans(PlacedKind kind) const { return !edges_[kind].empty(); }

  // `order`: nodes by place.
  Stretches StretchesOf(std::span<const int32_t> order, const std::vector<Uplinks>& uplinks,
                        BytesPerSecond node_rate) const;
  // Of kernels, by stage: each replica that no other is slower than in all stages; `together`: of all of them at once.
  // `slowdown` by place. Empty: nothing is slow.
  std::vector<std::vector<double>> SlowReplicas(std::span<const double> slowdown,
                                                bool together) const;

 private:
  int places_ = 1, replicas_ = 1, stages_ = 1;
  std::array<std::vector<Edge>, kPlacedKinds> edges_;
  std::array<double, kPlacedKinds> busiest_{};
  std::vector<std::vector<Cell>> cells_;
};

}  // namespace orrery
