// SPDX-License-Identifier: Apache-2.0
// What the flash attention kernels share (Dao et al. 2022; Dao 2023): places of tiles, masks, dropout.
#pragma once

#include "runtime/device/cuda/attention.h"
#include "runtime/device/cuda/tile.h"

namespace orrery::cuda {

constexpr int kFlashWarps = 4, kFlashThreads = kFlashWarps * kWarpSize;
constexpr int kFlashRows = 16 * kFlashWarps;  // queries, or keys, that a block has: 16 per warp
constexpr float kLog2E = 1.4426950408889634f;

__device__ inline const uint16_t* Halves(Ref x) { return static_cast<const uint16_t*>(x.data); }
__device__ inline uint16_t* HalvesOut(Ref x) { return static_cast<uint16_t*>(x.data); }

__device__ inline void StorePair(Ref to, int64_t at, float low, float high) {
  *reinterpret_cast<uint32_t*>(HalvesOut(to) + at) = PackBf16(low, high);
}

__device__ inline uint64_t HeadDraws(const Draw& draw, const Heads& s, int64_t b, int64_t h) {
  return ir::HashMore(draw.Sample(b), static_cast<uint64_t>(s.first_head + h));
}

template <int hd>
constexpr int kFlashStride = hd + kRowPad;

}  // namespace orrery::cuda
