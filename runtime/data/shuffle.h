// SPDX-License-Identifier: Apache-2.0
// A permutation that needs no memory: any position of any epoch's order at once.
#pragma once

#include <bit>
#include <cstdint>

#include "model/plan/ir/draws.h"

namespace orrery::train {

// Where sample `index` of 0 .. count - 1 is found in the order that `key` stands for; a bijection.
// A balanced Feistel network (Luby and Rackoff 1988) of six rounds over the next power of four;
// values beyond `count` are sent through again (Black and Rogaway 2002), fewer than four times on
// average.
inline int64_t Shuffled(uint64_t key, int64_t index, int64_t count) {
  const int bits = (std::bit_width(static_cast<uint64_t>(count - 1)) + 1) / 2;
  const uint64_t mask = (uint64_t{1} << bits) - 1;
  auto value = static_cast<uint64_t>(index);
  do {
    for (uint64_t round = 0; round < 6; ++round) {
      const uint64_t left = value >> bits, right = value & mask;
      value = (right << bits) | (left ^ (ir::HashOf({key, round, right}) & mask));
    }
  } while (value >= static_cast<uint64_t>(count));
  return static_cast<int64_t>(value);
}

}  // namespace orrery::train
