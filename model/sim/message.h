// SPDX-License-Identifier: Apache-2.0
// What an op sends on its line; partners must agree on it.
#pragma once

#include <compare>

#include "model/collectives/algorithm.h"
#include "model/ir/op.h"

namespace orrery::sim {

struct Message {
  Collective collective = Collective::kAllReduce;
  double bytes = 0;  // S of collectives/algorithm.h
  ir::Phase phase = ir::Phase::kForward;
  bool whole_step = false;    // of a buffer that lives through the step, not for one use of a layer
  bool asynchronous = false;  // on a stream of its own
  auto operator<=>(const Message&) const = default;
};

}  // namespace orrery::sim
