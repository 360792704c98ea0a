// SPDX-License-Identifier: Apache-2.0
// Ranks of a ring with hops of two kinds: some of its messages leave a node, the others do not.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "model/price/op_shape.h"

namespace orrery {

// A kernel of a pass with the messages that it waits for otherwise, or a hop; in the order of issue.
struct RingOp {
  double seconds = 0;
  int list = 0;     // whose hops it counts: a pass and what it runs again count apart
  int awaited = 0;  // it starts when so many of them have arrived
  const HopShape* hop = nullptr;
};

// How far the rank that sends to another node is ahead of the one that it sends to, where a pass begins, and how long ago
// that one has last read what the first hop replaces.
struct RingLead {
  double seconds = 0, slot_free = 0;
};

struct RingWaits {
  std::vector<std::vector<double>> waits;  // by list, of its ops in order
  RingLead lead;
};

// Layers one behind the other, as each rank of a node goes through them: the hop to `ranks` - 1 of them stays inside, the
// first one's comes from another node, where ranks are at the same places at the same time. A message starts when its
// sender has what it sends and has sent the one before, and its receiver has read and sent on what it replaces. So ranks
// are apart by what hops differ, as far as the slots of the ring let them; all wait for the same time in the long run,
// and these are the waits of the first one.
RingWaits WaitsOfRing(std::span<const RingOp> ops, int lists, int ranks,
                      const std::function<double(double bytes, bool leaves)>& hop_seconds);

}  // namespace orrery
