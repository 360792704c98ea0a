// SPDX-License-Identifier: Apache-2.0
// Finds where the ranks of a layout are best: order of axes, order of nodes, and layers by the speed of stages.
//
// The objective is the closed form with the placement's stretched messages and slow replicas (PlacedTraffic). Nodes that are
// below the same uplinks and equally fast are interchangeable, and so are parts of the network that hold alike nodes: each
// order that differs otherwise is looked at, unless what is fixed of it already takes no less than the best one
// (branch and bound; messages only grow with each node that is placed). Exact while the orders looked at are at most
// `most`; beyond, the best of those and of exchanging pairs, with a lower bound of all others.
// Layers: the layout's own, and those balanced for stages of different speeds.
#pragma once

#include <cstdint>
#include <optional>

#include "model/twin/predict.h"

namespace orrery {

struct PlacementOptions {
  int64_t most = 20000;  // partial orders
  bool axes = true;      // other orders of axes; false: the layout's own
  bool layers =
      true;  // layers by the speed of stages, too, where they fit in memory; false: the layout's own
};

struct PlacementFound {
  Strategy strategy;   // `placement` is null where no other one is better
  double seconds = 0;  // by the objective
  double plain = 0;    // of the layout as it was, without a placement
  // No placement takes less; cut short, at least the step with the slowest node alone, well placed.
  double bound = 0;
  bool exact = false;     // nor less than `seconds`
  int64_t looked_at = 0;  // partial orders
  std::vector<Strategy>
      near;  // others that take at most 5 % longer, best first: of each variant what it came upon
};

// The layout's own placement is left aside. Throws InputError: a layout that the job cannot be priced with.
PlacementFound FindPlacement(const Job& job, const Strategy& layout,
                             const PlacementOptions& options = {});

// A placement, and what the layout's own order of ranks takes: both simulated, or both in closed form (Engine::kAuto).
// The closed form does not see single links, so that the first few of those it likes are simulated and the fastest is taken.
struct PlacementChoice {
  PlacementFound found;
  Strategy strategy;         // of `placed`
  Prediction plain, placed;  // without interval; the same where no placement is better
  bool refuted = false;      // the simulation found no gain in what the closed form likes
  int simulated = 0;         // placements
  // Where both differ from the layout's own, with the other layers in the default order; empty: not both, or not by the
  // same engine.
  std::optional<Seconds> layers_alone;

  double gain() const { return 1 - placed.time.total / plain.time.total; }
};
// Throws InputError: as FindPlacement().
PlacementChoice ChoosePlacement(const Job& job, const Strategy& layout,
                                const PlacementOptions& options = {});

// What FindPlacement() chooses from: orders of axes and layers, each with a placement that names no nodes.
std::vector<Strategy> PlacementVariants(const Job& job, const Strategy& layout,
                                        const PlacementOptions& options);
// The objective: seconds of a layout with its placement, nodes named or not.
double PlacedSeconds(const Job& job, const Strategy& strategy);

}  // namespace orrery
