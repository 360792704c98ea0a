// SPDX-License-Identifier: Apache-2.0
// Token and position embeddings and the row gather of masked language models. A block has a row.
//
// What is added to one row of a table by several tokens is added in the order of the tokens, by the block of the first
// of them: results repeat bit by bit, and a row stored in 16 bits is rounded once.
#include <limits>

#include "model/plan/ir/positions.h"
#include "runtime/device/cuda/ops.h"

namespace orrery::cuda {
namespace {

using ir::Attr;

constexpr int kThreads = 128, kWarps = kThreads / kWarpSize;

struct Table {  // the local rows [first, first + rows) of an embedding
  int64_t first, rows, h;
  float scale;                                     // what multiplies them
  __device__ int64_t RowOf(int64_t token) const {  // -1: another rank has it
    const int64_t local = token - first;
    return token >= 0 && local >= 0 && local < rows ? local : -1;
  }
};

// Calls f(column, count) for this thread's pieces of a row of h columns.
template <typename F>
__device__ inline void ForPieces(int64_t h, F f) {
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * kWide; c < h; c += kThreads * kWide)
    f(c, Least(kWide, h - c));
}

__global__ void EmbedKernel(const int32_t* tokens, Ref table, Ref old, Ref x, Table t, int* fault,
                            bool wide) {
  const int64_t row = blockIdx.x, token = tokens[row], local = t.RowOf(token);
  if (token < 0 && threadIdx.x == 0) atomicExch(fault, static_cast<int>(kBadToken));
  ForPieces(t.h, [&](int64_t c, int count) {
    float v[kWide] = {}, w[kWide];
    if (!old.absent()) LoadSome(old, row * t.h + c, count, wide, v);
    if (local >= 0) {
      LoadSome(table, local * t.h + c, count, wide, w);
      for (int k = 0; k < kWide; ++k) v[k] += t.scale * w[k];
    }
    StoreSome(x, row * t.h + c, count, wide, v);
  });
}

// Whether some index before `row` names the same target; all threads of the block must call it.
template <typename TargetOf>
__device__ inline bool NamedBefore(int64_t row, int64_t target, TargetOf target_of) {
  for (int64_t begin = 0; begin < row; begin += 4 * kThreads) {
    bool found = false;
    for (int k = 0; k < 4; ++k) {
      const int64_t other = begin + k * kThreads + threadIdx.x;
      found = found || (other < row && target_of(other) == target);
    }
    if (__syncthreads_or(found)) return true;
  }
  return false;
}

// Calls f(other) for all rows from `row` on with the same target, in order, on all threads of the block alike.
template <typename TargetOf, typename F>
__device__ inline void ForSame(int64_t row, int64_t rows, int64_t target, unsigned* bits,
                               TargetOf target_of, F f) {
  for (int64_t begin = row; begin < rows; begin += kThreads) {
    const int64_t other = begin + threadIdx.x;
    const bool same = other < rows && target_of(other) == target;
    if (!__syncthreads_or(same)) continue;
    const unsigned ballot = __ballot_sync(kAllLanes, same);
    if (LaneIndex() == 0) bits[WarpIndex()] = ballot;
    __syncthreads();
    for (int w = 0; w < kWarps; ++w)
      for (int lane = 0; lane < kWarpSize; ++lane)
        if (bits[w] >> lane & 1u) f(begin + w * kWarpSize + lane);
    __syncthreads();
  }
}

// to[target] (+)= scale times the sum of from[row] over the rows with that target.
template <typename TargetOf>
__device__ inline void AddRows(Ref to, Ref from, float scale, int64_t rows, int64_t h, bool wide,
                               TargetOf target_of) {
  ORRERY_SHARED(unsigned, bits);
  const int64_t row = blockIdx.x, target = target_of(row);
  if (target < 0 || NamedBefore(row, target, target_of)) return;
  for (int64_t block = 0; block < h; block += kThreads * kWide) {
    const int64_t c = block + static_cast<int64_t>(threadIdx.x) * kWide;
    const int count = c < h ? Least(kWide, h - c) : 0;
    float sum[kWide], v[kWide];
    if (count > 0) LoadSome(to, target * h + c, count, wide, sum);
    ForSame(row, rows, target, bits, target_of, [&](int64_t other) {
      if (count == 0) return;
      LoadSome(from, other * h + c, count, wide, v);
      for (int k = 0; k < kWide; ++k) sum[k] += scale * v[k];
    });
    if (count > 0) StoreSome(to, target * h + c, count, wide, sum);
  }
}

__global__ void EmbedBackwardKernel(Ref dtable, const int32_t* tokens, Ref dx, Table t,
                                    int64_t rows, int* fault, bool wide) {
  if (tokens[blockIdx.x] < 0 && threadIdx.x == 0) atomicExch(fault, static_cast<int>(kBadToken));
  AddRows(dtable, dx, t.scale, rows, t.h, wide, [&](int64_t row) { return t.RowOf(tokens[row]); });
}

struct Positions {
  int64_t first, rows, batch, h;  // row r stands at (first + r) / batch of what the rank holds
  ir::Positions held;
};

__global__ void AddPositionsKernel(Ref x, Ref table, Ref y, Positions s, bool wide) {
  const int64_t row = blockIdx.x, position = s.held.At((s.first + row) / s.batch);
  ForPieces(s.h, [&](int64_t c, int count) {
    float v[kWide], w[kWide];
    LoadSome(x, row * s.h + c, count, wide, v);
    LoadSome(table, position * s.h + c, count, wide, w);
    for (int k = 0; k < kWide; ++k) v[k] += w[k];
    StoreSome(y, row * s.h + c, count, wide, v);
  });
}

// A block has a position: the rows of its samples.
__global__ void PositionsBackwardKernel(Ref dtable, Ref dx, Positions s, bool wide) {
  const int64_t local = s.first / s.batch + blockIdx.x, position = s.held.At(local);
  const int64_t low = local * s.batch - s.first, high = low + s.batch;
  const int64_t begin = low > 0 ? low : 0, end = high < s.rows ? high : s.rows;
  ForPieces(s.h, [&](int64_t c, int count) {
    float sum[kWide], v[kWide];
    LoadSome(dtable, position * s.h + c, count, wide, sum);
    for (int64_t r = begin; r < end; ++r) {
      LoadSome(dx, r * s.h + c, count, wide, v);
      for (int k = 0; k < kWide; ++k) sum[k] += v[k];
    }
    StoreSome(dtable, position * s.h + c, count, wide, sum);
  });
}

__global__ void GatherRowsKernel(Ref x, const int32_t* pos, Ref y, int64_t batch, int64_t h,
                                 int64_t limit, int* fault, bool wide) {
  const int64_t row = blockIdx.x, source = pos[row] * batch + row % batch;
  const bool good = pos[row] >= 0 && source < limit;
  if (!good && threadIdx.x == 0) atomicExch(fault, static_cast<int>(kBadRow));
  ForPieces(h, [&](int64_t c, int count) {
    float v[kWide] = {};
    if (good) LoadSome(x, source * h + c, count, wide, v);
    StoreSome(y, row * h + c, count, wide, v);
  });
}

// Rows [first, first + kept) of the full sequence.
__global__ void ScatterRowsKernel(Ref dy, const int32_t* pos, Ref dx, int64_t rows, int64_t batch,
                                  int64_t h, int64_t first, int64_t kept, int* fault, bool wide) {
  if (pos[blockIdx.x] < 0 && threadIdx.x == 0) atomicExch(fault, static_cast<int>(kBadRow));
  AddRows(dx, dy, 1.0f, rows, h, wide, [&](int64_t row) {
    const int64_t local = pos[row] * batch + row % batch - first;
    return pos[row] >= 0 && local >= 0 && local < kept ? local : -1;
  });
}

Table TableOf(const OpFrame& f) {
  const int64_t vl = f.Size(Attr::kVl);
  const auto scale = static_cast<float>(f.Get(Attr::kScale));
  return {f.Coord(Attr::kAxis) * vl, vl, f.Size(Attr::kH, 1), scale != 0 ? scale : 1.0f};
}

// Positions must lie in a table of `n` elements.
Positions PositionsOf(const OpFrame& f, int64_t n) {
  const int64_t rows = f.Size(Attr::kRows), batch = f.Size(Attr::kBatch, 1),
                h = f.Size(Attr::kH, 1);
  const Positions s{f.Coord(Attr::kAxis) * rows, rows, batch, h,
                    ir::PositionsOf(f.args.op.attrs, f.args.coords)};
  const int64_t last = (s.first + rows - 1) / batch, whole = s.held.part * s.held.parts;
  if (rows > 0 && (s.held.part > 0 ? whole - 1 : last) >= n / h)
    f.Fail("position beyond the table");
  return s;
}

constexpr size_t kBitBytes = sizeof(unsigned) * kWarps;

}  // namespace

void Embed(OpFrame& f) {
  const Table t = TableOf(f);
  const int64_t rows = f.Size(Attr::kRows), n = rows * t.h;
  const int32_t* tokens = f.Indices(0, rows);
  const Ref table = f.In(1, t.rows * t.h), old = f.Flag(Attr::kAcc) ? f.In(2, n) : Ref{},
            x = f.Out(0, n);
  Launch(f.queue, EmbedKernel, Blocks(rows, 1), kThreads, 0, tokens, table, old, x, t,
         f.queue.fault, IsWide({table, old, x}, t.h));
}

void EmbedBackward(OpFrame& f) {
  const Table t = TableOf(f);
  const int64_t rows = f.Size(Attr::kRows);
  const int32_t* tokens = f.Indices(1, rows);
  const Ref dx = f.In(2, rows * t.h), dtable = f.InOut(0, 0, t.rows * t.h);
  Launch(f.queue, EmbedBackwardKernel, Blocks(rows, 1), kThreads, kBitBytes, dtable, tokens, dx, t,
         rows, f.queue.fault, IsWide({dtable, dx}, t.h));
}

void AddPositions(OpFrame& f) {
  const int64_t n = f.InSize(1);
  const Positions s = PositionsOf(f, n);
  const Ref x = f.In(0, s.rows * s.h), table = f.In(1, n), y = f.Out(0, s.rows * s.h);
  Launch(f.queue, AddPositionsKernel, Blocks(s.rows, 1), kThreads, 0, x, table, y, s,
         IsWide({x, table, y}, s.h));
}

void PositionsBackward(OpFrame& f) {
  const int64_t n = f.InSize(0);
  const Positions s = PositionsOf(f, n);
  const Ref dx = f.In(1, s.rows * s.h), dtable = f.InOut(0, 0, n);
  if (s.rows == 0) return;
  const int64_t positions = (s.first + s.rows - 1) / s.batch - s.first / s.batch + 1;
  Launch(f.queue, PositionsBackwardKernel, Blocks(positions, 1), kThreads, 0, dtable, dx, s,
         IsWide({dtable, dx}, s.h));
}

void GatherRows(OpFrame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH, 1), n = f.InSize(0);
  const Ref x = f.In(0, n), y = f.Out(0, rows * h);
  Launch(f.queue, GatherRowsKernel, Blocks(rows, 1), kThreads, 0, x, f.Indices(1, rows), y,
         f.Size(Attr::kBatch, 1), h, n / h, f.queue.fault, IsWide({x, y}, h));
}

void ScatterRows(OpFrame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH, 1), kept = f.Size(Attr::kElements);
  const Ref dy = f.In(0, rows * h), dx = f.Out(0, kept * h);
  const int32_t* pos = f.Indices(1, rows);
  Zero(f);
  Launch(f.queue, ScatterRowsKernel, Blocks(rows, 1), kThreads, kBitBytes, dy, pos, dx, rows,
         f.Size(Attr::kBatch, 1), h, f.Coord(Attr::kAxis) * kept, kept, f.queue.fault,
         IsWide({dy, dx}, h));
}

}  // namespace orrery::cuda
