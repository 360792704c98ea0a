// SPDX-License-Identifier: Apache-2.0
// Cross entropy over a vocabulary that may be sharded, a block per row, and mean squared error. Losses are summed in
// double, rows first, then blocks of rows in order.
#include <algorithm>

#include "runtime/device/cuda/ops.h"

namespace orrery::cuda {
namespace {

using ir::Attr;

constexpr int kThreads = 256, kSlots = kThreads / kWarpSize;
constexpr int64_t kLossBlocks = 256;

// The local columns that are real, [0, count), and the global index of the first.
struct Columns {
  int64_t rows, width, first, count;
  int64_t n() const { return rows * width; }
  __device__ int64_t Target(int64_t label) const {  // -1: another rank has it
    const int64_t local = label - first;
    return label >= 0 && local >= 0 && local < count ? local : -1;
  }
};

template <typename F>
__device__ inline void ForPieces(int64_t h, F f) {
  for (int64_t c = static_cast<int64_t>(threadIdx.x) * kWide; c < h; c += kThreads * kWide)
    f(c, Least(kWide, h - c));
}

__global__ void MaxKernel(Ref x, Ref m, Columns s, bool wide) {
  __shared__ float slots[kSlots];
  const int64_t at = blockIdx.x * s.width;
  float top = -INFINITY;
  ForPieces(s.count, [&](int64_t c, int count) {
    float v[kWide];
    LoadSome(x, at + c, count, wide, v);
    for (int k = 0; k < kWide; ++k) top = k < count ? fmaxf(top, v[k]) : top;
  });
  top = BlockMax(top, slots);
  if (threadIdx.x == 0) Store(m, blockIdx.x, top);
}

__global__ void SumKernel(Ref x, Ref m, const int32_t* labels, Ref s_out, Columns s, int* fault,
                          bool wide) {
  __shared__ float slots[kSlots];
  const int64_t row = blockIdx.x, at = row * s.width;
  const float top = Load(m, row);
  float sum = 0;
  ForPieces(s.count, [&](int64_t c, int count) {
    float v[kWide];
    LoadSome(x, at + c, count, wide, v);
    for (int k = 0; k < kWide; ++k) sum += k < count ? expf(v[k] - top) : 0.0f;
  });
  sum = BlockSum(sum, slots);
  if (threadIdx.x != 0) return;
  if (labels[row] < 0) atomicExch(fault, static_cast<int>(kBadLabel));
  const int64_t target = s.Target(labels[row]);
  Store(s_out, 2 * row, sum);
  Store(s_out, 2 * row + 1, target >= 0 ? Load(x, at + target) - top : 0.0f);
}

struct GradTerms {
  double scale;
  Ref loss_scale;  // absent: 1
};

// dx may be x. Padding columns become 0.
__global__ void GradKernel(Ref x, Ref m, Ref sums, const int32_t* labels, Ref dx, Columns s,
                           GradTerms g, int* fault, bool wide) {
  const int64_t row = blockIdx.x, at = row * s.width;
  const double whole =
      g.scale * (g.loss_scale.absent() ? 1.0 : static_cast<double>(Load(g.loss_scale, 0)));
  const float top = Load(m, row),
              factor = static_cast<float>(whole / static_cast<double>(Load(sums, 2 * row)));
  const int64_t target = s.Target(labels[row]);
  if (threadIdx.x == 0 && labels[row] < 0) atomicExch(fault, static_cast<int>(kBadLabel));
  ForPieces(s.width, [&](int64_t c, int count) {
    float v[kWide];
    LoadSome(x, at + c, count, wide, v);
    for (int k = 0; k < kWide; ++k) {
      v[k] = c + k < s.count ? expf(v[k] - top) * factor : 0.0f;
      if (c + k == target) v[k] -= static_cast<float>(whole);
    }
    StoreSome(dx, at + c, count, wide, v);
  });
}

// Sums of log(sum) - (target - max) over the rows of a block.
__global__ void RowLossKernel(Ref sums, int64_t rows, double* parts) {
  __shared__ double slots[kSlots];
  const int64_t begin = rows * blockIdx.x / gridDim.x, end = rows * (blockIdx.x + 1) / gridDim.x;
  double sum = 0;
  for (int64_t r = begin + threadIdx.x; r < end; r += kThreads)
    sum += log(static_cast<double>(Load(sums, 2 * r))) - static_cast<double>(Load(sums, 2 * r + 1));
  sum = BlockSum(sum, slots);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

__global__ void SquaredErrorKernel(Ref y, Ref target, Ref dy, int64_t n, GradTerms g, double* parts,
                                   bool wide) {
  __shared__ double slots[kSlots];
  const float factor = static_cast<float>(
      2 * g.scale * (g.loss_scale.absent() ? 1.0 : static_cast<double>(Load(g.loss_scale, 0))));
  double sum = 0;
  for (int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kWide; at < n;
       at += static_cast<int64_t>(gridDim.x) * kThreads * kWide) {
    const int count = Least(kWide, n - at);
    float a[kWide], b[kWide];
    LoadSome(y, at, count, wide, a);
    LoadSome(target, at, count, wide, b);
    for (int k = 0; k < kWide; ++k) {
      const float error = a[k] - b[k];
      sum += static_cast<double>(error) * static_cast<double>(error);
      a[k] = factor * error;
    }
    StoreSome(dy, at, count, wide, a);
  }
  sum = BlockSum(sum, slots);
  if (threadIdx.x == 0) parts[blockIdx.x] = sum;
}

// loss = old + scale * sum of parts
__global__ void AddLossKernel(const double* parts, int count, double scale, Ref old, Ref loss) {
  __shared__ double slots[kSlots];
  double sum = 0;
  for (int p = static_cast<int>(threadIdx.x); p < count; p += kThreads) sum += parts[p];
  sum = BlockSum(sum, slots);
  if (threadIdx.x == 0)
    Store(loss, 0, static_cast<float>(static_cast<double>(Load(old, 0)) + scale * sum));
}

Columns LocalColumns(const OpFrame& f) {
  const int64_t vl = f.Size(Attr::kVl), first = f.Coord(Attr::kAxis) * vl;
  return {f.Size(Attr::kRows), vl, first, std::clamp<int64_t>(f.Size(Attr::kV) - first, 0, vl)};
}

// The optional input: a scalar, or the first element of a state.
Ref LossScaleInput(const OpFrame& f, size_t i) {
  return f.Inputs() > i ? f.In(i, f.InSize(i)) : Ref{};
}

}  // namespace

void CrossEntropyMax(OpFrame& f) {
  const Columns s = LocalColumns(f);
  const Ref x = f.In(0, s.n()), m = f.Out(0, s.rows);
  Launch(f.queue, MaxKernel, Blocks(s.rows, 1), kThreads, 0, x, m, s, IsWide({x}, s.width));
}

void CrossEntropySum(OpFrame& f) {
  const Columns s = LocalColumns(f);
  const Ref x = f.In(0, s.n()), m = f.In(1, s.rows), sums = f.Out(0, 2 * s.rows);
  Launch(f.queue, SumKernel, Blocks(s.rows, 1), kThreads, 0, x, m, f.Indices(2, s.rows), sums, s,
         f.queue.fault, IsWide({x}, s.width));
}

void CrossEntropyGrad(OpFrame& f) {
  const Columns s = LocalColumns(f);
  const Ref x = f.In(0, s.n()), m = f.In(1, s.rows), sums = f.In(2, 2 * s.rows), old = f.In(4, 1);
  const Ref dx = f.Out(0, s.n()), loss = f.Out(1, 1);
  const GradTerms terms{f.Get(Attr::kScale), LossScaleInput(f, 5)};
  Launch(f.queue, GradKernel, Blocks(s.rows, 1), kThreads, 0, x, m, sums, f.Indices(3, s.rows), dx,
         s, terms, f.queue.fault, IsWide({x, dx}, s.width));
  const int64_t blocks = std::clamp<int64_t>(s.rows / 64, 1, kLossBlocks);
  double* parts = f.Scratch<double>(blocks);
  Launch(f.queue, RowLossKernel, static_cast<unsigned>(blocks), kThreads, 0, sums, s.rows, parts);
  Launch(f.queue, AddLossKernel, 1u, kThreads, 0, parts, static_cast<int>(blocks), terms.scale, old,
         loss);
}

void MeanSquaredError(OpFrame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const Ref y = f.In(0, n), target = f.In(1, n), old = f.In(2, 1), dy = f.Out(0, n),
            loss = f.Out(1, 1);
  const GradTerms terms{f.Get(Attr::kScale), LossScaleInput(f, 3)};
  const int64_t blocks = std::clamp<int64_t>(Blocks(n, kThreads * kWide), 1, kLossBlocks);
  double* parts = f.Scratch<double>(blocks);
  Launch(f.queue, SquaredErrorKernel, static_cast<unsigned>(blocks), kThreads, 0, y, target, dy, n,
         terms, parts, IsWide({y, target, dy}));
  Launch(f.queue, AddLossKernel, 1u, kThreads, 0, parts, static_cast<int>(blocks), terms.scale, old,
         loss);
}

}  // namespace orrery::cuda
