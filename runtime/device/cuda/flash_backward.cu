// SPDX-License-Identifier: Apache-2.0
// Flash attention backward on matrix units (Dao et al. 2022, appendix B), without atomics: one kernel has a tile of keys
// per block and walks through the queries, the other has a tile of queries and walks through the keys. With
// D = dctx . ctx per row: dS = P (kept dP - D), dQ = scale dS K, dK = scale dS^T Q, dV = dropped P^T dctx.
#include "runtime/device/cuda/flash.h"

namespace orrery::cuda {
namespace {

// Tiles of the other side, walked through, and blocks that a multiprocessor has at a time: wide heads take so many
// registers for sums that fewer fit. Chosen by measurement on an H100 (README.md).
template <int hd>
constexpr int kBackwardStep = hd <= 64 ? 64 : 32;
template <int hd>
constexpr int kBlocksPerProcessor = hd <= 64 ? 3 : 2;
template <int hd>
constexpr int kTileHalves = kBackwardStep<hd>* kFlashStride<hd>;

// sums[n] += left (16 x 16 k, a tile in shared memory from `row`) right^T
template <int hd, int columns>
__device__ inline void MultiplyByRows(float (&sums)[columns / 8][4], const uint16_t* left, int row,
                                      const uint16_t* right) {
#pragma unroll
  for (int k = 0; k < hd / 16; ++k) {
    uint32_t a[4], b[4];
    LoadLeft(a, left, kFlashStride<hd>, row, 16 * k);
#pragma unroll
    for (int n = 0; n < columns / 16; ++n) {
      LoadRightByRows(b, right, kFlashStride<hd>, 16 * n, 16 * k);
      MultiplyPair(sums[2 * n], sums[2 * n + 1], a, b);
    }
  }
}

// sums[n] += left (16 x inner, in registers) right (inner x hd)
template <int hd, int inner>
__device__ inline void MultiplyPacked(float (&sums)[hd / 8][4], const float (&left)[inner / 8][4],
                                      const uint16_t* right) {
#pragma unroll
  for (int k = 0; k < inner / 16; ++k) {
    uint32_t a[4], b[4];
    PackLeft(a, left[2 * k], left[2 * k + 1]);
#pragma unroll
    for (int n = 0; n < hd / 16; ++n) {
      LoadRight(b, right, kFlashStride<hd>, 16 * k, 16 * n);
      MultiplyPair(sums[2 * n], sums[2 * n + 1], a, b);
    }
  }
}

template <int hd>
__device__ inline void StoreSums(Ref to, int64_t at, const float (&sums)[hd / 8][4], int half,
                                 float scale) {
#pragma unroll
  for (int n = 0; n < hd / 8; ++n)
    StorePair(to, at + 8 * n + 2 * (LaneIndex() % 4), scale * sums[n][2 * half],
              scale * sums[n][2 * half + 1]);
}

// Where a thread's elements of a tile of sums stand: columns Column(n) and the next in rows 8 * half apart.
__device__ inline int Column(int n) { return 8 * n + 2 * (LaneIndex() % 4); }

// Shared: own tile of keys and values [64], two stages of queries and dctx [step], two of log sums and deltas.
// Queries behind the last are zeros with a log sum and a delta of zero: they add nothing. Keys behind the last make
// rows of sums that are not stored. So masks are for causal attention only.
template <int hd, bool drops>
__global__ void __launch_bounds__(kFlashThreads, kBlocksPerProcessor<hd>)
    KeyValueKernel(const __grid_constant__ AttentionOperands o, const float* delta) {
  constexpr int step = kBackwardStep<hd>, own = kFlashRows * kFlashStride<hd>,
                tile = kTileHalves<hd>;
  ORRERY_SHARED(uint16_t, keys);
  uint16_t *values = keys + own, *walked = values + own;
  float* rows = reinterpret_cast<float*>(walked + 4 * tile);  // [2][2][step]
  const Heads& s = o.s;
  const int64_t groups = s.nh / s.queries_per_kv, b = blockIdx.x / groups,
                group = blockIdx.x % groups;
  const int64_t first = static_cast<int64_t>(blockIdx.y) * kFlashRows,
                head0 = group * s.queries_per_kv;
  const int64_t key_at = s.KeyAt(b, head0, first), key_stride = s.batch * s.kv_width;
  StartTile<hd, kFlashRows, kFlashThreads>(keys, Halves(o.kv) + key_at, key_stride,
                                           s.seq_kv - first);
  StartTile<hd, kFlashRows, kFlashThreads>(values, Halves(o.kv) + key_at + hd, key_stride,
                                           s.seq_kv - first);
  const int64_t first_tile = s.causal ? first / step : 0,
                tiles = (s.seq + step - 1) / step - first_tile;
  const int64_t walks = tiles > 0 ? tiles * s.queries_per_kv : 0;
  const auto start = [&](int64_t w) {
    const int64_t h = head0 + w / tiles, i = (first_tile + w % tiles) * step;
    uint16_t* to = walked + (w % 2) * 2 * tile;
    StartTile<hd, step, kFlashThreads>(to, Halves(o.q) + s.QueryAt(b, h, i), s.batch * s.q_width,
                                       s.seq - i);
    StartTile<hd, step, kFlashThreads>(to + tile, Halves(o.dctx) + s.ContextAt(b, h, i),
                                       s.batch * s.nh * s.hd, s.seq - i);
    const int r = static_cast<int>(threadIdx.x) % step;
    const float* from =
        static_cast<int>(threadIdx.x) < step ? static_cast<const float*>(o.softmax.data) : delta;
    if (static_cast<int>(threadIdx.x) < 2 * step) {
      const bool valid = i + r < s.seq;
      CopyAsync(rows + (w % 2) * 2 * step + threadIdx.x, from + (valid ? s.LseAt(b, h, i + r) : 0),
                valid);
    }
    CommitCopies();
  };
  float dk[hd / 8][4] = {}, dv[hd / 8][4] = {};
  const int64_t warp_key = first + 16 * WarpIndex();
  const float slope = s.scale * kLog2E;
  if (walks > 0) start(0);
  for (int64_t w = 0; w < walks; ++w) {
    StartNextAndAwait(w, walks, start);
    const uint16_t *queries = walked + (w % 2) * 2 * tile, *dctx = queries + tile;
    const float *lse = rows + (w % 2) * 2 * step, *deltas = lse + step;
    const int64_t i0 = (first_tile + w % tiles) * step;
    // Column c sees the warp's key k where hidden + k <= c; far below zero: all see all.
    const bool all_seen = !s.causal || warp_key + 15 <= i0,
               none_seen = s.causal && i0 + step <= warp_key;
    if (!none_seen) {
      const int hidden = all_seen ? -4 * step : static_cast<int>(warp_key - i0) + LaneIndex() / 4;
      const uint64_t draws = drops ? HeadDraws(o.draw, s, b, head0 + w / tiles) : 0;
      float p[step / 8][4] = {}, grad[step / 8][4] = {};
      MultiplyByRows<hd, step>(p, keys, 16 * WarpIndex(), queries);
      MultiplyByRows<hd, step>(grad, values, 16 * WarpIndex(), dctx);
#pragma unroll
      for (int n = 0; n < step / 8; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int column = Column(n) + e % 2;
          const float power = Exp2(slope * p[n][e] - kLog2E * lse[column]);
          const float value = hidden + 8 * (e / 2) <= column ? power : 0.0f;
          float factor = 1;
          if (drops)
            factor = o.draw.Factor(ir::HashMore(draws, static_cast<uint64_t>(i0 + column)),
                                   warp_key + LaneIndex() / 4 + 8 * (e / 2));
          p[n][e] = value * factor;
          grad[n][e] = value * (factor * grad[n][e] - deltas[column]);
        }
      }
      MultiplyPacked<hd, step>(dv, p, dctx);
      MultiplyPacked<hd, step>(dk, grad, queries);
    }
    __syncthreads();
  }
  AwaitCopies<0>();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t j = warp_key + LaneIndex() / 4 + 8 * half;
    if (j >= s.seq_kv) continue;
    const int64_t to = s.KeyAt(b, head0, j);
    StoreSums<hd>(o.dkv, to, dk, half, s.scale);
    StoreSums<hd>(o.dkv, to + hd, dv, half, 1.0f);
  }
}

// Shared: own tile of queries and dctx [64], two stages of keys and values [step].
template <int hd, bool drops>
__global__ void __launch_bounds__(kFlashThreads, kBlocksPerProcessor<hd>)
    QueryKernel(const __grid_constant__ AttentionOperands o, const float* delta) {
  constexpr int step = kBackwardStep<hd>, own = kFlashRows * kFlashStride<hd>,
                tile = kTileHalves<hd>;
  ORRERY_SHARED(uint16_t, queries);
  uint16_t *dctx = queries + own, *walked = dctx + own;
  const Heads& s = o.s;
  const int64_t b = blockIdx.x / s.nh, h = blockIdx.x % s.nh;
  const int64_t first = static_cast<int64_t>(gridDim.y - 1 - blockIdx.y) * kFlashRows;
  const int64_t last = first + kFlashRows < s.seq ? first + kFlashRows - 1 : s.seq - 1;
  const int64_t tiles = (s.Keys(last) + step - 1) / step, key_stride = s.batch * s.kv_width;
  StartTile<hd, kFlashRows, kFlashThreads>(queries, Halves(o.q) + s.QueryAt(b, h, first),
                                           s.batch * s.q_width, s.seq - first);
  StartTile<hd, kFlashRows, kFlashThreads>(dctx, Halves(o.dctx) + s.ContextAt(b, h, first),
                                           s.batch * s.nh * s.hd, s.seq - first);
  const auto start = [&](int64_t t) {
    const uint16_t* from = Halves(o.kv) + s.KeyAt(b, h, t * step);
    uint16_t* to = walked + (t % 2) * 2 * tile;
    StartTile<hd, step, kFlashThreads>(to, from, key_stride, s.seq_kv - t * step);
    StartTile<hd, step, kFlashThreads>(to + tile, from + hd, key_stride, s.seq_kv - t * step);
    CommitCopies();
  };
  start(0);
  const float slope = s.scale * kLog2E;
  float lse[2], deltas[2], dq[hd / 8][4] = {};
  uint64_t draws[2] = {};
  const int64_t row = first + 16 * WarpIndex() + LaneIndex() / 4;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int64_t i = row + 8 * r;
    lse[r] =
        i < s.seq ? kLog2E * static_cast<const float*>(o.softmax.data)[s.LseAt(b, h, i)] : INFINITY;
    deltas[r] = i < s.seq ? delta[s.LseAt(b, h, i)] : 0.0f;
    if (drops) draws[r] = ir::HashMore(HeadDraws(o.draw, s, b, h), static_cast<uint64_t>(i));
  }
  for (int64_t t = 0; t < tiles; ++t) {
    StartNextAndAwait(t, tiles, start);
    const uint16_t *keys = walked + (t % 2) * 2 * tile, *values = keys + tile;
    // Columns that the thread's rows see: those below `seen`. Keys behind the last have none.
    int seen[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) seen[r] = Least(step, s.Keys(row + 8 * r) - t * step);
    float p[step / 8][4] = {}, grad[step / 8][4] = {};
    MultiplyByRows<hd, step>(p, queries, 16 * WarpIndex(), keys);
    MultiplyByRows<hd, step>(grad, dctx, 16 * WarpIndex(), values);
#pragma unroll
    for (int n = 0; n < step / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int column = Column(n) + e % 2;
        const float power = Exp2(slope * p[n][e] - lse[e / 2]);
        const float value = column < seen[e / 2] ? power : 0.0f;
        const float factor = drops ? o.draw.Factor(draws[e / 2], t * step + column) : 1.0f;
        grad[n][e] = value * (factor * grad[n][e] - deltas[e / 2]);
      }
    }
    MultiplyPacked<hd, step>(dq, grad, keys);
    __syncthreads();
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t i = row + 8 * half;
    if (i < s.seq) StoreSums<hd>(o.dq, s.QueryAt(b, h, i), dq, half, s.scale);
  }
}

template <int hd>
void Backward(OpFrame& f, const AttentionOperands& o) {
  const Heads& s = o.s;
  float* delta = f.Scratch<float>(s.Rows());
  RowDeltas(f, o, delta);
  const size_t halves = 2 * kFlashRows * kFlashStride<hd> + 4 * kTileHalves<hd>;
  const dim3 keys(static_cast<unsigned>(s.batch * (s.nh / s.queries_per_kv)),
                  Blocks(s.seq_kv, kFlashRows));
  const auto key_kernel = s.drops ? KeyValueKernel<hd, true> : KeyValueKernel<hd, false>;
  Launch(f.queue, key_kernel, keys, kFlashThreads,
         sizeof(uint16_t) * halves + sizeof(float) * 4 * kBackwardStep<hd>, o, delta);
  const dim3 queries(static_cast<unsigned>(s.batch * s.nh), Blocks(s.seq, kFlashRows));
  const auto query_kernel = s.drops ? QueryKernel<hd, true> : QueryKernel<hd, false>;
  Launch(f.queue, query_kernel, queries, kFlashThreads, sizeof(uint16_t) * halves, o, delta);
}

}  // namespace

void FlashBackward(OpFrame& f, const AttentionOperands& o) {
  if (o.s.hd == 64) return Backward<64>(f, o);
  Backward<128>(f, o);
}

}  // namespace orrery::cuda
