// SPDX-License-Identifier: Apache-2.0
// Finds where the ranks of a layout are best: order of axes, order of nodes, and layers by the speed of stages.
//
// The objective is the closed form with the placement's stretched messages and slow replicas (PlacedTraffic). Nodes that are
// below the same uplinks and equally fast are interchangeable, and so are parts of the network that hold alike nodes: each
// order that differs otherwise is looked at, unless what is fixed of it already takes no less than the best one
// (branch and bound; messages only grow with each node that is placed). Under each of them every split of the layers is
// (split_search.h). First orders and layers change in turn, from several starts, until neither gets better. Exact while the orders
// looked at are at most `most` and the steps priced at most `most_splits`; beyond, the best of those and of exchanging pairs,
// with a lower bound of all others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "model/twin/predict.h"

namespace orrery {

struct PlacementOptions {
  int64_t most = 20000;         // partial orders
  int64_t most_splits = 60000;  // steps priced
  bool order = true;            // other orders of axes and nodes; false: the default alone
  bool layers =
      true;  // other splits of the layers, where the framework has them; false: the layout's own
  std::shared_ptr<const Placement> given;  // this order alone
  Engine engine = Engine::kAuto;           // of ChoosePlacement()
  // Splits to begin with besides the layout's own, the framework's and balanced ones.
  std::vector<std::shared_ptr<const std::vector<int>>> starts;
};

struct PlacementFound {
  Strategy strategy;   // `placement` is null where no other one is better
  double seconds = 0;  // by the objective
  double plain = 0;    // of the layout as it was, without a placement
  // No placement takes less; cut short, at least the step with the slowest node alone, well placed.
  double bound = 0;
  bool exact = false;          // nor less than `seconds`
  bool splits = false;         // other splits of the layers were looked at
  bool exceeded = false;       // by the layout as it was the memory, where other splits fit
  int64_t looked_at = 0;       // partial orders
  int64_t priced = 0;          // steps
  std::vector<Strategy> near;  // others that take at most 5 % longer, best first: some of them
};

// The layout's own placement is left aside. Throws InputError: a layout that the job cannot be priced with.
PlacementFound FindPlacement(const Job& job, const Strategy& layout,
                             const PlacementOptions& options = {});

// A placement, and what the layout's own order of ranks takes: both by one engine, that of the options.
// The closed form does not see single links, so that the first few of those it likes are simulated and the fastest is taken.
struct PlacementChoice {
  PlacementFound found;
  Strategy strategy;         // of `placed`
  Prediction plain, placed;  // without interval; the same where no placement is better
  bool refuted = false;      // the simulation found no gain in what the closed form likes
  int simulated = 0;         // placements
  // Where order and layers both differ from the layout's own, by the same engine: what the best order takes with the layers as
  // they were, and the best layers in the default order, each from a search of its own.
  std::optional<Seconds> order_alone, layers_alone;

  double gain() const { return 1 - placed.time.total / plain.time.total; }
};
// With an order that is given, that of all splits of the layers, whether it is faster than the default or not. Throws
// InputError: as FindPlacement(), and as Predict() with the event engine.
PlacementChoice ChoosePlacement(const Job& job, const Strategy& layout,
                                const PlacementOptions& options = {});

// The same of a request's job: a search of these axes alone gives the layers to begin with, whatever those of the layout. What
// `plan predict` finds for a layout is so no slower than what `plan` does.
struct SearchRequest;
PlacementChoice ChoosePlacement(const SearchRequest& request, const Profiles& profiles,
                                int64_t nodes, int64_t global_batch, const Strategy& layout,
                                PlacementOptions options);

// The objective: seconds of a layout with its placement, nodes named or not.
double PlacedSeconds(const Job& job, const Strategy& strategy);

}  // namespace orrery
