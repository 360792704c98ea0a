// SPDX-License-Identifier: Apache-2.0
// RMS norms of queries and keys inside qkv rows (Henry et al. 2020), of each head or of all heads as one: where they lie.
//
// The heads of a row make one stretch, queries first; a norm is then a row of it (runtime/device/cpu/qk_norm.cc).
#pragma once

#include "runtime/device/cuda/frame.h"

namespace orrery::cuda {

struct QkShape {
  int64_t rows, nh, kv, hd;
  bool whole;

  __host__ __device__ int64_t Width() const { return (nh + 2 * kv) * hd; }  // of a row of qkv
  __host__ __device__ int64_t Stretch() const { return (nh + kv) * hd; }
  __host__ __device__ int64_t Norms() const { return whole ? 2 : nh + kv; }
  __host__ __device__ int64_t Gains() const { return whole ? Stretch() : 2 * hd; }
  // Norm n of a row: first element and width in the stretch, first gain.
  __host__ __device__ int64_t First(int64_t n) const { return whole ? n * nh * hd : n * hd; }
  __host__ __device__ int64_t NormWidth(int64_t n) const {
    return !whole ? hd : (n == 0 ? nh : kv) * hd;
  }
  __host__ __device__ int64_t Gain(int64_t n) const { return whole ? First(n) : n < nh ? 0 : hd; }
  // Place in a row of qkv of an element of the stretch. A group: queries, their key, its value.
  __host__ __device__ int64_t Place(int64_t element) const {
    const int64_t queries = nh / kv, head = element / hd, key = head - nh;
    const int64_t at =
        key < 0 ? head / queries * (queries + 2) + head % queries : key * (queries + 2) + queries;
    return at * hd + element % hd;
  }
};

inline QkShape QkShapeOf(const OpFrame& f) {
  const QkShape s{f.Size(ir::Attr::kRows), f.Size(ir::Attr::kNh, 1), f.Size(ir::Attr::kKv, 1),
                  f.Size(ir::Attr::kHd, 1), f.Flag(ir::Attr::kWhole)};
  if (s.nh % s.kv != 0) f.Fail("query heads are no multiple of the key heads");
  return s;
}

}  // namespace orrery::cuda
