// SPDX-License-Identifier: Apache-2.0
// Sums over rows, column by column: bias gradients and the norms' weight gradients. Blocks sum parts of the rows into
// scratch memory; a second kernel adds the parts in order, so that results repeat bit by bit.
#include <algorithm>

#include "runtime/device/cuda/ops.h"
#include "runtime/device/cuda/qk_norm.h"

namespace orrery::cuda {
namespace {

using ir::Attr;

constexpr int kWarps = 8, kThreads = kWarps * kWarpSize;
constexpr int kColumns = kWarpSize * kWide;                // of a block
constexpr int kRowsAtOnce = 4;                             // of a warp
constexpr int64_t kBlocksWanted = 512, kRowsPerPart = 32;  // least rows that are worth a part

struct Sums {
  Ref dy, x, stats;  // x absent: plain column sums
  int64_t rows, h;
  bool has_mean;  // stats: (mean, rstd) per row, else rstd
};

// parts[part][which][h]: which 0: sum of dy xhat (or of dy where there is no x), 1: sum of dy (layer norm).
__global__ void PartialSumsKernel(Sums s, float* parts, int which_count, bool wide) {
  ORRERY_SHARED(float, shared);  // [kWarps][2][kColumns]
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumns + LaneIndex() * kWide;
  const int count = column < s.h ? Least(kWide, s.h - column) : 0;
  const int64_t begin = s.rows * blockIdx.y / gridDim.y,
                end = s.rows * (blockIdx.y + 1) / gridDim.y;
  float scaled[kWide] = {}, plain[kWide] = {};
  // Rows in groups: their loads are under way together, or a warp would wait for memory at each row.
  for (int64_t r = begin + WarpIndex(); count > 0 && r < end; r += kWarps * kRowsAtOnce) {
    float d[kRowsAtOnce][kWide], v[kRowsAtOnce][kWide], mean[kRowsAtOnce], rstd[kRowsAtOnce];
#pragma unroll
    for (int g = 0; g < kRowsAtOnce; ++g) {
      const int64_t row = r + g * kWarps;
      const int here = row < end ? count : 0;
      LoadSome(s.dy, row * s.h + column, here, wide, d[g]);
      mean[g] = 0, rstd[g] = 1;
      if (s.x.absent() || here == 0) continue;
      LoadSome(s.x, row * s.h + column, here, wide, v[g]);
      mean[g] = s.has_mean ? Load(s.stats, 2 * row) : 0.0f;
      rstd[g] = Load(s.stats, s.has_mean ? 2 * row + 1 : row);
    }
#pragma unroll
    for (int g = 0; g < kRowsAtOnce; ++g) {
      if (r + g * kWarps >= end) break;
      for (int k = 0; k < kWide; ++k) {
        scaled[k] += s.x.absent() ? d[g][k] : d[g][k] * ((v[g][k] - mean[g]) * rstd[g]);
        plain[k] += d[g][k];
      }
    }
  }
  float* mine = shared + (WarpIndex() * 2) * kColumns + LaneIndex() * kWide;
  for (int k = 0; k < kWide; ++k) {
    mine[k] = scaled[k];
    mine[kColumns + k] = plain[k];
  }
  __syncthreads();
  for (int c = static_cast<int>(threadIdx.x); c < which_count * kColumns; c += kThreads) {
    const int which = c / kColumns;
    const int64_t to = static_cast<int64_t>(blockIdx.x) * kColumns + c % kColumns;
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += shared[(w * 2 + which) * kColumns + c % kColumns];
    if (to < s.h) parts[(static_cast<int64_t>(blockIdx.y) * which_count + which) * s.h + to] = sum;
  }
}

// A lane has a gain; a norm of each head adds to it, or one norm of all heads.
__global__ void QkPartialSumsKernel(Ref dy, Ref raw, Ref stats, QkShape s, float* parts) {
  __shared__ float shared[kWarps][kWarpSize];
  const int64_t gain = static_cast<int64_t>(blockIdx.x) * kWarpSize + LaneIndex();
  const bool is_query = gain < (s.whole ? s.nh * s.hd : s.hd);
  const int64_t heads = s.whole ? 1 : is_query ? s.nh : s.kv;
  const int64_t first = s.whole ? (is_query ? 0 : 1) : is_query ? 0 : s.nh;  // norm of a row
  const int64_t begin = s.rows * blockIdx.y / gridDim.y,
                end = s.rows * (blockIdx.y + 1) / gridDim.y;
  float sum = 0;
  for (int64_t r = begin + WarpIndex(); gain < s.Gains() && r < end; r += kWarps) {
    for (int64_t n = first; n < first + heads; ++n) {
      const int64_t element = s.First(n) + gain - s.Gain(n);
      sum += Load(dy, r * s.Width() + s.Place(element)) *
             (Load(raw, r * s.Stretch() + element) * Load(stats, r * s.Norms() + n));
    }
  }
  shared[WarpIndex()][LaneIndex()] = sum;
  __syncthreads();
  if (WarpIndex() > 0 || gain >= s.Gains()) return;
  for (int w = 1; w < kWarps; ++w) sum += shared[w][LaneIndex()];
  parts[static_cast<int64_t>(blockIdx.y) * s.Gains() + gain] = sum;
}

// A lane has a column; warps have every kWarps-th part, so that the parts of a column are under way together.
__global__ void AddPartsKernel(const float* parts, int count, int which_count, Ref first,
                               Ref second, int64_t h) {
  __shared__ float shared[kWarps][kWarpSize];
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kWarpSize + LaneIndex();
  for (int which = 0; which < which_count; ++which) {
    float sum = 0;
#pragma unroll 4
    for (int p = WarpIndex(); c < h && p < count; p += kWarps)
      sum += parts[(static_cast<int64_t>(p) * which_count + which) * h + c];
    __syncthreads();
    shared[WarpIndex()][LaneIndex()] = sum;
    __syncthreads();
    if (WarpIndex() > 0 || c >= h) continue;
    for (int w = 1; w < kWarps; ++w) sum += shared[w][LaneIndex()];
    const Ref to = which == 0 ? first : second;
    Store(to, c, Load(to, c) + sum);
  }
}

// Into how many parts rows are cut where `across` blocks stand side by side and a part leaves `sums` numbers.
int64_t PartsOf(const OpFrame& f, int64_t rows, int64_t across, int64_t sums) {
  const int64_t room =
      f.ScratchLeft() / (static_cast<int64_t>(sizeof(float)) * std::max<int64_t>(sums, 1)) - 1;
  const int64_t wanted =
      std::min((rows + kRowsPerPart - 1) / kRowsPerPart,
               std::max<int64_t>(kBlocksWanted / std::max<int64_t>(across, 1), 1));
  return std::max<int64_t>(std::min(wanted, room), 1);
}

void AddSums(OpFrame& f, const Sums& s, Ref first, Ref second) {
  const int which = second.absent() ? 1 : 2;
  const int64_t across = Blocks(s.h, kColumns), parts = PartsOf(f, s.rows, across, which * s.h);
  float* scratch = f.Scratch<float>(parts * which * s.h);
  Launch(f.queue, PartialSumsKernel,
         dim3(static_cast<unsigned>(across), static_cast<unsigned>(parts)), kThreads,
         sizeof(float) * kWarps * 2 * kColumns, s, scratch, which, IsWide({s.dy, s.x}, s.h));
  Launch(f.queue, AddPartsKernel, Blocks(s.h, kWarpSize), kThreads, 0, scratch,
         static_cast<int>(parts), which, first, second, s.h);
}

}  // namespace

void ColumnSum(OpFrame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH);
  AddSums(f, {f.In(1, rows * h), {}, {}, rows, h, false}, f.InOut(0, 0, h), {});
}

void LayerNormWeightGrad(OpFrame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH, 1);
  AddSums(f, {f.In(2, rows * h), f.In(3, rows * h), f.In(4, 2 * rows), rows, h, true},
          f.InOut(0, 0, h), f.InOut(1, 1, h));
}

void RmsNormWeightGrad(OpFrame& f) {
  const int64_t rows = f.Size(Attr::kRows), h = f.Size(Attr::kH, 1);
  AddSums(f, {f.In(1, rows * h), f.In(2, rows * h), f.In(3, rows), rows, h, false},
          f.InOut(0, 0, h), {});
}

void QkNormWeightGrad(OpFrame& f) {
  const QkShape s = QkShapeOf(f);
  const Ref dgamma = f.InOut(0, 0, s.Gains()), dy = f.In(1, s.rows * s.Width()),
            raw = f.In(2, s.rows * s.Stretch()), stats = f.In(3, s.rows * s.Norms());
  const int64_t across = Blocks(s.Gains(), kWarpSize),
                parts = PartsOf(f, s.rows, across, s.Gains());
  float* scratch = f.Scratch<float>(parts * s.Gains());
  Launch(f.queue, QkPartialSumsKernel,
         dim3(static_cast<unsigned>(across), static_cast<unsigned>(parts)), kThreads, 0, dy, raw,
         stats, s, scratch);
  Launch(f.queue, AddPartsKernel, Blocks(s.Gains(), kWarpSize), kThreads, 0, scratch,
         static_cast<int>(parts), 1, dgamma, Ref{}, s.Gains());
}

}  // namespace orrery::cuda
