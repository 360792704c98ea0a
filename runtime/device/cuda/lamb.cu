// SPDX-License-Identifier: Apache-2.0
// LAMB (You et al. 2020): direction u = Adam direction + decay; the ratio of weights' and direction's norms per parameter.
#include <algorithm>

#include "runtime/device/cuda/ops.h"
#include "runtime/device/cuda/squares.h"
#include "runtime/device/cuda/update.h"

namespace orrery::cuda {
namespace {

using ir::Attr;

constexpr int kThreads = 256;

__global__ void DirectionKernel(Ref g, Ref w, Ref m, Ref v, Ref u, Runs runs, Correction correction,
                                AdamTerms t) {
  const int64_t i = runs.begin + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= runs.end[runs.count - 1]) return;
  const Corrected c = Correct(correction);
  if (c.skip) {
    Store(u, i, 0.0f);
    return;
  }
  const float gradient = Load(g, i) * c.factor;
  const float first = t.beta1 * Load(m, i) + t.new1 * gradient;
  const float second = t.beta2 * Load(v, i) + t.new2 * gradient * gradient;
  Store(m, i, first);
  Store(v, i, second);
  Store(u, i, first * t.inverse1 / (sqrtf(second * t.inverse2) + t.eps) + runs.At(i) * Load(w, i));
}

constexpr int kMostPieces = 48;
struct Table {
  int count = 0;
  int64_t begin[kMostPieces], end[kMostPieces], segment[kMostPieces];
};

// A row of blocks per piece.
__global__ void ApplyKernel(Ref u, Weights w, Ref norms, Ref squares, Table table, float lr) {
  const int piece = static_cast<int>(blockIdx.y);
  const int64_t begin = table.begin[piece], end = table.end[piece];
  const double w2 = static_cast<double>(Load(norms, 2 * table.segment[piece]));
  const double u2 = static_cast<double>(Load(norms, 2 * table.segment[piece] + 1));
  const bool skip = !squares.absent() && !IsFinite(Load(squares, 0));
  const float step =
      skip
          ? 0.0f
          : static_cast<float>(-static_cast<double>(lr) * (w2 > 0 && u2 > 0 ? sqrt(w2 / u2) : 1.0));
  for (int64_t i = begin + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < end;
       i += static_cast<int64_t>(gridDim.x) * blockDim.x) {
    const float old = Load(w.old, i), value = skip ? old : old + step * Load(u, i);
    Store(w.update, i, value);
    if (!w.copy.absent()) Store(w.copy, i, value);
  }
}

__global__ void KeepKernel(Weights w, int64_t begin, int64_t end) {
  const int64_t i = begin + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= end) return;
  const float old = Load(w.old, i);
  Store(w.update, i, old);
  if (!w.copy.absent()) Store(w.copy, i, old);
}

std::vector<SquaredPiece> Squared(const std::vector<Piece>& pieces, int64_t split, int64_t which) {
  std::vector<SquaredPiece> squared;
  for (const Piece& p : pieces) {
    squared.push_back({p.begin, std::clamp(split, p.begin, p.end), p.end,
                       2 * static_cast<int64_t>(p.segment) + which});
  }
  return squared;
}

void Keep(OpFrame& f, const Weights& w, int64_t begin, int64_t end) {
  if (begin < end)
    Launch(f.queue, KeepKernel, Blocks(end - begin, kThreads), kThreads, 0, w, begin, end);
}

// Padding between and behind the pieces.
void KeepRest(OpFrame& f, const Weights& w, std::vector<Piece> pieces, int64_t n) {
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  int64_t at = 0;
  for (const Piece& p : pieces) {
    Keep(f, w, at, p.begin);
    at = std::max(at, p.end);
  }
  Keep(f, w, at, n);
}

}  // namespace

void LambDirection(OpFrame& f) {
  const int64_t n = f.Size(Attr::kElements), split = SplitOf(f, n);
  const std::vector<Piece> pieces = PiecesOf(f);
  const Ref g = f.In(0, n), w = f.In(1, n), m = f.InOut(0, 2, n), v = f.InOut(1, 3, n),
            u = f.Out(2, n);
  const Ref norms = f.Out(3, 2 * static_cast<int64_t>(pieces.size()));
  for (const Runs& runs : RunsOf(f, n)) {
    Launch(f.queue, DirectionKernel, Blocks(runs.end[runs.count - 1] - runs.begin, kThreads),
           kThreads, 0, g, w, m, v, u, runs, CorrectionOf(f, 4), AdamTermsOf(f));
  }
  const double weight = f.Get(Attr::kWt), behind = f.Get(Attr::kWrep);
  SumSquares(f, w, Squared(pieces, split, 0), weight, behind, {}, norms);
  SumSquares(f, u, Squared(pieces, split, 1), weight, behind, {}, norms);
}

void LambApply(OpFrame& f) {
  const int64_t n = f.Size(Attr::kElements);
  const std::vector<Piece> pieces = PiecesOf(f);
  const Ref u = f.In(0, n), norms = f.In(2, 2 * static_cast<int64_t>(pieces.size()));
  const Ref squares = f.Inputs() > 3 ? f.In(3, 1) : Ref{};
  const Weights w = WeightsOf(f, n);
  for (size_t first = 0; first < pieces.size(); first += kMostPieces) {
    Table table;
    int64_t longest = 1;
    for (size_t p = first; p < std::min(pieces.size(), first + kMostPieces); ++p, ++table.count) {
      table.begin[table.count] = pieces[p].begin;
      table.end[table.count] = pieces[p].end;
      table.segment[table.count] = static_cast<int64_t>(pieces[p].segment);
      longest = std::max(longest, pieces[p].end - pieces[p].begin);
    }
    const auto blocks =
        static_cast<unsigned>(std::clamp<int64_t>(longest / (kThreads * 4), 1, 1024));
    Launch(f.queue, ApplyKernel, dim3(blocks, static_cast<unsigned>(table.count)), kThreads, 0, u,
           w, norms, squares, table, static_cast<float>(f.Get(Attr::kLr)));
  }
  KeepRest(f, w, pieces, n);
}

}  // namespace orrery::cuda
