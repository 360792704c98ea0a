// SPDX-License-Identifier: Apache-2.0
// Packs buffers with known lifetimes into the smallest block of memory found (dynamic storage
// allocation).
#pragma once

#include <cstdint>
#include <vector>

namespace orrery::ir {

struct Lifetime {
  int64_t bytes;        // already rounded up to the alignment
  int32_t first, last;  // ops, inclusive
  bool operator==(const Lifetime&) const = default;
};
struct Packing {
  std::vector<int64_t> offset;
  int64_t bytes = 0;
};

// No packing can be smaller than the largest sum of buffers alive at one op.
int64_t PackingBound(const std::vector<Lifetime>& items);

// Tries several orders and placements, then repairs the worst; stops at the first that needs at
// most `good_enough` bytes. Deterministic. Results are remembered per thread, so that equal blocks
// cost a comparison.
Packing Pack(const std::vector<Lifetime>& items, int64_t good_enough);

}  // namespace orrery::ir
