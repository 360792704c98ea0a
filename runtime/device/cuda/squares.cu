// SPDX-License-Identifier: Apache-2.0
// Sums of squares: blocks sum parts of a piece, then a block per piece adds them.
#include "runtime/device/cuda/squares.h"

#include <algorithm>

namespace orrery::cuda {
namespace {

constexpr int kThreads = 256, kSlots = kThreads / kWarpSize;
constexpr int kMostPieces = 48;
constexpr int64_t kMostBlocks = 256;

struct Table {
  int count = 0;
  SquaredPiece piece[kMostPieces];
};

__device__ inline double SquaresOf(Ref x, int64_t begin, int64_t end, bool wide) {
  double sum = 0;
  const int64_t groups = (end + kWide - 1) / kWide;
  for (int64_t g = begin / kWide + static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       begin < end && g < groups; g += static_cast<int64_t>(gridDim.x) * kThreads) {
    const int64_t low = g * kWide > begin ? g * kWide : begin,
                  high = g * kWide + kWide < end ? g * kWide + kWide : end;
    float v[kWide];
    LoadSome(x, low, static_cast<int>(high - low), wide, v);
    for (int k = 0; k < kWide; ++k) sum += static_cast<double>(v[k]) * static_cast<double>(v[k]);
  }
  return sum;
}

__global__ void PartsKernel(Ref x, Table table, double weight, double weight_behind, double* parts,
                            bool wide) {
  __shared__ double slots[kSlots];
  const SquaredPiece p = table.piece[blockIdx.y];
  const double sum = weight * SquaresOf(x, p.begin, p.middle, wide) +
                     weight_behind * SquaresOf(x, p.middle, p.end, wide);
  const double all = BlockSum(sum, slots);
  if (threadIdx.x == 0) parts[static_cast<int64_t>(blockIdx.y) * gridDim.x + blockIdx.x] = all;
}

__global__ void FinishKernel(const double* parts, int count, Table table, Ref old, Ref to) {
  __shared__ double slots[kSlots];
  double sum = 0;
  for (int p = static_cast<int>(threadIdx.x); p < count; p += kThreads)
    sum += parts[static_cast<int64_t>(blockIdx.x) * count + p];
  sum = BlockSum(sum, slots);
  if (threadIdx.x != 0) return;
  const int64_t target = table.piece[blockIdx.x].target;
  const double before = old.absent() ? 0.0 : static_cast<double>(Load(old, target));
  Store(to, target, static_cast<float>(before + sum));
}

}  // namespace

void SumSquares(OpFrame& f, Ref x, const std::vector<SquaredPiece>& pieces, double weight,
                double weight_behind, Ref old, Ref to) {
  int64_t longest = 1;
  for (const SquaredPiece& p : pieces) longest = std::max(longest, p.end - p.begin);
  const int64_t blocks = std::clamp<int64_t>(longest / (kThreads * kWide * 4), 1, kMostBlocks);
  double* parts = f.Scratch<double>(blocks * kMostPieces);
  for (size_t first = 0; first < pieces.size(); first += kMostPieces) {
    Table table;
    table.count = static_cast<int>(std::min<size_t>(kMostPieces, pieces.size() - first));
    std::copy_n(pieces.begin() + static_cast<int64_t>(first), table.count, table.piece);
    const auto count = static_cast<unsigned>(table.count);
    Launch(f.queue, PartsKernel, dim3(static_cast<unsigned>(blocks), count), kThreads, 0, x, table,
           weight, weight_behind, parts, IsWide({x}));
    Launch(f.queue, FinishKernel, count, kThreads, 0, parts, static_cast<int>(blocks), table, old,
           to);
  }
}

}  // namespace orrery::cuda
