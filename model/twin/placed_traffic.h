// SPDX-License-Identifier: Apache-2.0
// What the placement of ranks changes: which messages leave the leaves of a network, and which stages wait for slow nodes.
//
// Each kind of message is a set of edges between the places of nodes in the order of ranks (NodeEdges): rings and trees of the
// data and tensor groups, hops between stages. A message is stretched by the parts of the network that it leaves, as all messages
// of its kind at once load them: hop by hop, and for the groups of the data axes stage by stage. The stretch of a kind is that of
// the part that takes longest.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "model/collectives/node_edges.h"
#include "model/plan/lower/strategy.h"

namespace orrery {

enum PlacedKind : unsigned char {
  kTensorMessages,
  kTensorTrees,
  kDataMessages,  // of ranks that share weights or hold the same
  kDataTrees,
  kGroupMessages,  // between sharding groups
  kGroupTrees,
  kStageMessages,
  kEndMessages,  // between the first and the last stage
  kPlacedKinds
};
// From kDataMessages on.
struct StageStretches : std::array<double, kStageMessages - kDataMessages> {
  static StageStretches Free() {
    StageStretches all;
    all.fill(1);
    return all;
  }
};
struct Stretches {
  std::array<double, kPlacedKinds> of;
  // By stage: of the hop to the next one, of the last stage to the first; empty: 1.
  std::vector<double> hops;
  std::vector<StageStretches> stages;  // of the data axes, by stage; empty: as `of`

  Stretches() { of.fill(1); }
  void Simplify();  // no stages where all are alike
  double& operator[](unsigned kind) { return of[kind]; }
  double operator[](unsigned kind) const { return of[kind]; }
  auto operator<=>(const Stretches&) const = default;
};

class PlacedTraffic {
 public:
  using Edge = NodeEdges::Edge;
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
  int stages() const { return stages_; }
  bool spans(PlacedKind kind) const { return !edges_[kind].empty(); }

  // At least 1. `order`: nodes by place.
  Stretches StretchesOf(std::span<const int32_t> order, const std::vector<Uplinks>& uplinks,
                        BytesPerSecond node_rate) const;
  // The same from what is known of all messages: seconds of each part's uplinks over those of the NICs, by kind; which of them the
  // messages of a stage leave. Less of both never stretches more.
  Stretches Stretched(
      const std::array<std::vector<double>, kPlacedKinds>& loads,
      const std::function<bool(PlacedKind, std::size_t stage, std::size_t part)>& leaves) const;
  // Of kernels, by stage: each replica that no other is slower than in all stages; `together`: of all of them at once.
  // `slowdown` by place. Empty: nothing is slow.
  std::vector<std::vector<double>> SlowReplicas(std::span<const double> slowdown,
                                                bool together) const;

 private:
  int places_ = 1, replicas_ = 1, stages_ = 1;
  std::array<std::vector<Edge>, kPlacedKinds> edges_;  // with the stage that sends
  std::array<double, kPlacedKinds> busiest_{};
  std::vector<std::vector<Cell>> cells_;
};

}  // namespace orrery
