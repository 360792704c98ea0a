// SPDX-License-Identifier: Apache-2.0
// What an op sends on its line; partners must agree on it.
#pragma once

#include <compare>
#include <cstdint>

#include "model/price/message_prices.h"

namespace orrery::sim {

// Of a message in two parts (split.h).
enum class Part : uint8_t {
  kWhole,
  kBeside,   // costs the compute beside it nothing
  kAwaited,  // compute stands still
};

struct Message {
  Collective collective = Collective::kAllReduce;
  double bytes = 0;  // S of collectives/algorithm.h
  MessageRole role = MessageRole::kLayer;
  bool backward = false;  // inside a backward pass
  double share = 1;       // of its bytes and latency that this exchange moves
  Part part = Part::kWhole;
  double element = 0;  // bytes of a gradient or weight in it
  auto operator<=>(const Message&) const = default;
};

}  // namespace orrery::sim
