// SPDX-License-Identifier: Apache-2.0
// Flash attention forward on matrix units: bf16 operands, single precision sums. A block has 64 queries of a head, a warp
// 16 of them; tiles of keys and values are copied while the tiles before are multiplied.
#include "runtime/device/cuda/flash.h"

namespace orrery::cuda {
namespace {

template <int hd>
struct ForwardTiles {
  static constexpr int kKeys = 64, kTile = kKeys * kFlashStride<hd>;
  static constexpr size_t kBytes = sizeof(uint16_t) * 4 * kTile;  // keys and values, twice
};

// Blocks that a multiprocessor has at a time.
template <int hd>
constexpr int kForwardBlocks = hd <= 64 ? 4 : 2;

// The running softmax of a thread's two rows.
struct RowState {
  float top[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
};

__device__ inline float QuadMax(float x) {
  x = fmaxf(x, __shfl_xor_sync(kAllLanes, x, 1));
  return fmaxf(x, __shfl_xor_sync(kAllLanes, x, 2));
}
__device__ inline float QuadSum(float x) {
  x += __shfl_xor_sync(kAllLanes, x, 1);
  return x + __shfl_xor_sync(kAllLanes, x, 2);
}

template <int hd, bool drops>
class ForwardWarp {
 public:
  __device__ ForwardWarp(const AttentionOperands& o, int64_t b, int64_t h, int64_t first)
      : o_(o), b_(b), h_(h), row_(first + LaneIndex() / 4) {
    const uint64_t draws = drops ? HeadDraws(o.draw, o.s, b, h) : 0;
    for (int r = 0; r < 2; ++r)
      draws_[r] = drops ? ir::HashMore(draws, static_cast<uint64_t>(row_ + 8 * r)) : 0;
    LoadQueries();
  }

  // One tile of 64 keys from `first_key` on.
  __device__ void Step(const uint16_t* keys, const uint16_t* values, int64_t first_key) {
    float p[8][4] = {};
    Scores(keys, p);
    Mask(p, first_key);
    Softmax(p);
    if (drops) Drop(p, first_key);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t left[4], right[4];
      PackLeft(left, p[2 * k], p[2 * k + 1]);
#pragma unroll
      for (int n = 0; n < hd / 16; ++n) {
        LoadRight(right, values, kFlashStride<hd>, 16 * k, 16 * n);
        MultiplyPair(out_[2 * n], out_[2 * n + 1], left, right);
      }
    }
  }

  __device__ void Finish() {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float sum = QuadSum(state_.sum[r]);
      const int64_t i = row_ + 8 * r;
      if (i >= o_.s.seq) continue;
      const float inverse = 1.0f / sum;
      const int64_t to = o_.s.ContextAt(b_, h_, i) + 2 * (LaneIndex() % 4);
#pragma unroll
      for (int n = 0; n < hd / 8; ++n)
        StorePair(o_.ctx, to + 8 * n, out_[n][2 * r] * inverse, out_[n][2 * r + 1] * inverse);
      if (LaneIndex() % 4 == 0)
        static_cast<float*>(o_.softmax.data)[o_.s.LseAt(b_, h_, i)] =
            o_.s.scale * state_.top[r] + logf(sum);
    }
  }

 private:
  __device__ void LoadQueries() {
#pragma unroll
    for (int k = 0; k < hd / 16; ++k) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int64_t i = row_ + 8 * (e % 2);
        const int64_t at = o_.s.QueryAt(b_, h_, i) + 16 * k + 8 * (e / 2) + 2 * (LaneIndex() % 4);
        queries_[k][e] = i < o_.s.seq ? *reinterpret_cast<const uint32_t*>(Halves(o_.q) + at) : 0;
      }
    }
  }

  __device__ void Scores(const uint16_t* keys, float (&p)[8][4]) {
#pragma unroll
    for (int k = 0; k < hd / 16; ++k) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        uint32_t right[4];
        LoadRightByRows(right, keys, kFlashStride<hd>, 16 * n, 16 * k);
        MultiplyPair(p[2 * n], p[2 * n + 1], queries_[k], right);
      }
    }
  }

  __device__ int64_t KeyOf(int64_t first_key, int n, int e) const {
    return first_key + 8 * n + 2 * (LaneIndex() % 4) + e % 2;
  }

  __device__ void Mask(float (&p)[8][4], int64_t first_key) {
    if (first_key + 64 <= o_.s.Keys(row_ - LaneIndex() / 4))
      return;  // the first row of the warp sees all
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e)
        if (KeyOf(first_key, n, e) >= o_.s.Keys(row_ + 8 * (e / 2))) p[n][e] = -INFINITY;
  }

  __device__ void Softmax(float (&p)[8][4]) {
    const float slope = o_.s.scale * kLog2E;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float top = state_.top[r];
#pragma unroll
      for (int n = 0; n < 8; ++n) top = fmaxf(top, fmaxf(p[n][2 * r], p[n][2 * r + 1]));
      top = QuadMax(top);
      const float shrink = Exp2((state_.top[r] - top) * slope), offset = top * slope;
      state_.top[r] = top;
      float sum = 0;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
#pragma unroll
        for (int e = 2 * r; e < 2 * r + 2; ++e) {
          p[n][e] = Exp2(p[n][e] * slope - offset);
          sum += p[n][e];
        }
      }
      state_.sum[r] = state_.sum[r] * shrink + sum;
#pragma unroll
      for (int n = 0; n < hd / 8; ++n) {
        out_[n][2 * r] *= shrink;
        out_[n][2 * r + 1] *= shrink;
      }
    }
  }

  __device__ void Drop(float (&p)[8][4], int64_t first_key) {
#pragma unroll
    for (int n = 0; n < 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) p[n][e] *= o_.draw.Factor(draws_[e / 2], KeyOf(first_key, n, e));
  }

  const AttentionOperands& o_;
  const int64_t b_, h_, row_;  // the thread's first row; the other is 8 further
  uint64_t draws_[2];
  uint32_t queries_[hd / 16][4];
  float out_[hd / 8][4] = {};
  RowState state_;
};

template <int hd, bool drops>
__global__ void __launch_bounds__(kFlashThreads, kForwardBlocks<hd>)
    FlashForwardKernel(const __grid_constant__ AttentionOperands o) {
  using Tiles = ForwardTiles<hd>;
  ORRERY_SHARED(uint16_t, shared);
  const Heads& s = o.s;
  const int64_t b = blockIdx.x / s.nh, h = blockIdx.x % s.nh;
  // Late queries see the most keys where attention is causal: they begin.
  const int64_t first = static_cast<int64_t>(gridDim.y - 1 - blockIdx.y) * kFlashRows;
  const int64_t last = first + kFlashRows < s.seq ? first + kFlashRows - 1 : s.seq - 1;
  const int64_t tiles = (s.Keys(last) + Tiles::kKeys - 1) / Tiles::kKeys,
                stride = s.batch * s.kv_width;
  const auto start = [&](int64_t tile) {
    const int64_t key = tile * Tiles::kKeys;
    const uint16_t* from = Halves(o.kv) + s.KeyAt(b, h, key);
    uint16_t* to = shared + (tile % 2) * 2 * Tiles::kTile;
    StartTile<hd, Tiles::kKeys, kFlashThreads>(to, from, stride, s.seq_kv - key);
    StartTile<hd, Tiles::kKeys, kFlashThreads>(to + Tiles::kTile, from + hd, stride,
                                               s.seq_kv - key);
    CommitCopies();
  };
  start(0);
  ForwardWarp<hd, drops> warp(o, b, h, first + 16 * WarpIndex());
  for (int64_t t = 0; t < tiles; ++t) {
    StartNextAndAwait(t, tiles, start);
    const uint16_t* keys = shared + (t % 2) * 2 * Tiles::kTile;
    warp.Step(keys, keys + Tiles::kTile, t * Tiles::kKeys);
    __syncthreads();
  }
  warp.Finish();
}

template <int hd>
void Forward(OpFrame& f, const AttentionOperands& o) {
  const dim3 grid(static_cast<unsigned>(o.s.batch * o.s.nh), Blocks(o.s.seq, kFlashRows));
  const auto kernel = o.s.drops ? FlashForwardKernel<hd, true> : FlashForwardKernel<hd, false>;
  Launch(f.queue, kernel, grid, kFlashThreads, ForwardTiles<hd>::kBytes, o);
}

bool IsHalf(Ref x) {
  return x.absent() || (x.type == Type::kBf16 && reinterpret_cast<uintptr_t>(x.data) % 16 == 0);
}

}  // namespace

bool CanFlash(const AttentionOperands& o) {
  if (!o.s.flash || !o.bias.absent() || (o.s.hd != 64 && o.s.hd != 128)) return false;
  if (o.softmax.type != Type::kF32 || o.s.window > 0 || o.s.cap > 0 || o.s.alibi > 0) return false;
  return IsHalf(o.q) && IsHalf(o.kv) && IsHalf(o.ctx) && IsHalf(o.dctx) && IsHalf(o.dq) &&
         IsHalf(o.dkv);
}

void FlashForward(OpFrame& f, const AttentionOperands& o) {
  if (o.s.hd == 64) return Forward<64>(f, o);
  Forward<128>(f, o);
}

}  // namespace orrery::cuda
