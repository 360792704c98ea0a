// SPDX-License-Identifier: Apache-2.0
// Counter-based draws: a value depends on what it is for (seed, step, site, sample, place), never on which rank asks or
// in which order. Every executor of plans uses these, so that all of them drop the same elements.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#ifdef __CUDACC__
#define ORRERY_ON_DEVICE __host__ __device__
#else
#define ORRERY_ON_DEVICE
#endif

namespace orrery::ir {

// Finaliser of splitmix64 (Steele, Lea, Flood 2014).
[[gnu::always_inline]] ORRERY_ON_DEVICE inline uint64_t MixBits(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// HashOf({a, b, c}) == HashMore(HashOf({a, b}), c): a common prefix is hashed once.
[[gnu::always_inline]] ORRERY_ON_DEVICE inline uint64_t HashMore(uint64_t hash, uint64_t part) {
  return MixBits(hash ^ part);
}
inline uint64_t HashOf(std::initializer_list<uint64_t> key) {
  uint64_t hash = 0;
  for (const uint64_t part : key) hash = HashMore(hash, part);
  return hash;
}

inline double UniformOf(uint64_t bits) {  // in (0, 1)
  return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
}

// An element is dropped with probability `rate` (0 <= rate < 1): when the upper 53 bits of its hash are below this.
inline uint64_t DropThreshold(double rate) {
  return static_cast<uint64_t>(std::ceil(rate * 0x1p53));
}
[[gnu::always_inline]] ORRERY_ON_DEVICE inline bool IsDropped(uint64_t bits, uint64_t threshold) {
  return (bits >> 11) < threshold;
}

// Hash of the dropout op; the keys of an element follow: (sample of the step, position, column), or for attention
// probabilities (sample of the step, global head, query, key).
inline uint64_t DropoutSite(uint64_t seed, int64_t step, int64_t site) {
  return HashOf({seed, static_cast<uint64_t>(step), static_cast<uint64_t>(site)});
}

}  // namespace orrery::ir
