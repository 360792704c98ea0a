// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm, forward and gradient of the input: a warp per row, eight columns per lane at a time. Norms of
// queries and keys: a warp per norm of a row.
#include "runtime/device/cuda/ops.h"
#include "runtime/device/cuda/qk_norm.h"

namespace orrery::cuda {
namespace {

using ir::Attr;

constexpr int kRowsPerBlock = 4, kThreads = kRowsPerBlock * kWarpSize;
constexpr float kEpsilon = 1e-5f;

struct Rows {
  int64_t rows, h;
  int64_t n() const { return rows * h; }
};

__device__ inline int64_t RowOfWarp() {
  return static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + WarpIndex();
}

// Calls f(first column, columns) for the pieces of a row that are this lane's.
template <typename F>
__device__ inline void ForPieces(int64_t h, F f) {
  for (int64_t c = LaneIndex() * kWide; c < h; c += kWarpSize * kWide) f(c, Least(kWide, h - c));
}

__global__ void LayerNormKernel(Ref x, Ref gamma, Ref beta, Ref y, Ref stats, Rows s, bool wide) {
  const int64_t row = RowOfWarp(), at = row * s.h;
  if (row >= s.rows) return;
  float sum = 0;
  ForPieces(s.h, [&](int64_t c, int count) {
    float v[kWide];
    LoadSome(x, at + c, count, wide, v);
    for (int k = 0; k < kWide; ++k) sum += v[k];
  });
  const float mean = WarpSum(sum) / static_cast<float>(s.h);
  float squares = 0;
  ForPieces(s.h, [&](int64_t c, int count) {
    float v[kWide];
    LoadSome(x, at + c, count, wide, v);
    for (int k = 0; k < kWide; ++k) squares += k < count ? (v[k] - mean) * (v[k] - mean) : 0.0f;
  });
  const float rstd = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(s.h) + kEpsilon);
  ForPieces(s.h, [&](int64_t c, int count) {
    float v[kWide], g[kWide], b[kWide];
    LoadSome(x, at + c, count, wide, v);
    LoadSome(gamma, c, count, wide, g);
    LoadSome(beta, c, count, wide, b);
    for (int k = 0; k < kWide; ++k) v[k] = (v[k] - mean) * rstd * g[k] + b[k];
    StoreSome(y, at + c, count, wide, v);
  });
  if (LaneIndex() == 0) {
    Store(stats, 2 * row, mean);
    Store(stats, 2 * row + 1, rstd);
  }
}

__global__ void RmsNormKernel(Ref x, Ref gamma, Ref y, Ref stats, Rows s, bool wide) {
  const int64_t row = RowOfWarp(), at = row * s.h;
  if (row >= s.rows) return;
  float squares = 0;
  ForPieces(s.h, [&](int64_t c, int count) {
    float v[kWide];
    LoadSome(x, at + c, count, wide, v);
    for (int k = 0; k < kWide; ++k) squares += v[k] * v[k];
  });
  const float rstd = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(s.h) + kEpsilon);
  ForPieces(s.h, [&](int64_t c, int count) {
    float v[kWide], g[kWide];
    LoadSome(x, at + c, count, wide, v);
    LoadSome(gamma, c, count, wide, g);
    for (int k = 0; k < kWide; ++k) v[k] *= rstd * g[k];
    StoreSome(y, at + c, count, wide, v);
  });
  if (LaneIndex() == 0) Store(stats, row, rstd);
}

// dx = rstd (dy gamma - mean(dy gamma) - xhat mean(dy gamma xhat)) (+ r); RMS norm has no mean.
template <bool has_mean>
__global__ void NormBackwardKernel(Ref dy, Ref x, Ref stats, Ref gamma, Ref residual, Ref dx,
                                   Rows s, bool wide) {
  const int64_t row = RowOfWarp(), at = row * s.h;
  if (row >= s.rows) return;
  const float mean = has_mean ? Load(stats, 2 * row) : 0.0f,
              rstd = Load(stats, has_mean ? 2 * row + 1 : row);
  float sum_g = 0, sum_gx = 0;
  ForPieces(s.h, [&](int64_t c, int count) {
    float d[kWide], v[kWide], g[kWide];
    LoadSome(dy, at + c, count, wide, d);
    LoadSome(x, at + c, count, wide, v);
    LoadSome(gamma, c, count, wide, g);
    for (int k = 0; k < kWide; ++k) {
      sum_g += d[k] * g[k];
      sum_gx += d[k] * g[k] * ((v[k] - mean) * rstd);
    }
  });
  const float mean_g = has_mean ? WarpSum(sum_g) / static_cast<float>(s.h) : 0.0f;
  const float mean_gx = WarpSum(sum_gx) / static_cast<float>(s.h);
  ForPieces(s.h, [&](int64_t c, int count) {
    float d[kWide], v[kWide], g[kWide];
    LoadSome(dy, at + c, count, wide, d);
    LoadSome(x, at + c, count, wide, v);
    LoadSome(gamma, c, count, wide, g);
    for (int k = 0; k < kWide; ++k)
      d[k] = rstd * (d[k] * g[k] - mean_g - (v[k] - mean) * rstd * mean_gx);
    if (!residual.absent()) {
      LoadSome(residual, at + c, count, wide, v);
      for (int k = 0; k < kWide; ++k) d[k] += v[k];
    }
    StoreSome(dx, at + c, count, wide, d);
  });
}

// Norm n of row r has a warp; behind the norms of a row stands its copy of values, which stay as they are.
struct QkNormOfWarp {
  int64_t row, norm, first, width;
};
__device__ inline QkNormOfWarp NormOfWarp(const QkShape& s) {
  const int64_t row = RowOfWarp() / (s.Norms() + 1), norm = RowOfWarp() % (s.Norms() + 1);
  return {row, norm, s.First(norm), s.NormWidth(norm)};
}

__device__ inline void CopyValues(Ref from, Ref to, int64_t row, const QkShape& s) {
  if (from.data == to.data) return;
  for (int64_t i = LaneIndex(); i < s.kv * s.hd; i += kWarpSize) {
    const int64_t at = row * s.Width() + s.Place(s.nh * s.hd + i) + s.hd;  // behind its key
    Store(to, at, Load(from, at));
  }
}

__global__ void QkNormKernel(Ref x, Ref gamma, Ref y, Ref raw, Ref stats, QkShape s) {
  const QkNormOfWarp w = NormOfWarp(s);
  if (w.row >= s.rows) return;
  if (w.norm == s.Norms()) return CopyValues(x, y, w.row, s);
  const int64_t from = w.row * s.Width(), kept = w.row * s.Stretch();
  float squares = 0;
  for (int64_t i = LaneIndex(); i < w.width; i += kWarpSize) {
    const float v = Load(x, from + s.Place(w.first + i));
    squares += v * v;
  }
  const float rstd = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(w.width) + kEpsilon);
  for (int64_t i = LaneIndex(); i < w.width; i += kWarpSize) {
    const int64_t at = from + s.Place(w.first + i);
    const float v = Load(x, at);
    Store(raw, kept + w.first + i, v);
    Store(y, at, v * rstd * Load(gamma, s.Gain(w.norm) + i));
  }
  if (LaneIndex() == 0) Store(stats, w.row * s.Norms() + w.norm, rstd);
}

// dx = rstd (dy gamma - xhat mean(dy gamma xhat))
__global__ void QkNormBackwardKernel(Ref dy, Ref raw, Ref stats, Ref gamma, Ref dx, QkShape s) {
  const QkNormOfWarp w = NormOfWarp(s);
  if (w.row >= s.rows) return;
  if (w.norm == s.Norms()) return CopyValues(dy, dx, w.row, s);
  const int64_t from = w.row * s.Width(), kept = w.row * s.Stretch() + w.first;
  const float rstd = Load(stats, w.row * s.Norms() + w.norm);
  float sum = 0;
  for (int64_t i = LaneIndex(); i < w.width; i += kWarpSize) {
    sum += Load(dy, from + s.Place(w.first + i)) * Load(gamma, s.Gain(w.norm) + i) *
           (Load(raw, kept + i) * rstd);
  }
  const float mean = WarpSum(sum) / static_cast<float>(w.width);
  for (int64_t i = LaneIndex(); i < w.width; i += kWarpSize) {
    const int64_t at = from + s.Place(w.first + i);
    const float scaled = Load(dy, at) * Load(gamma, s.Gain(w.norm) + i);
    Store(dx, at, rstd * (scaled - Load(raw, kept + i) * rstd * mean));
  }
}

Rows RowsOf(const OpFrame& f) { return {f.Size(Attr::kRows), f.Size(Attr::kH, 1)}; }

template <bool has_mean>
void NormBackward(OpFrame& f) {
  const Rows s = RowsOf(f);
  const Ref dy = f.In(0, s.n()), x = f.In(1, s.n()), stats = f.In(2, (has_mean ? 2 : 1) * s.rows),
            gamma = f.In(3, s.h);
  const Ref residual = f.Flag(Attr::kAdd) ? f.In(4, s.n()) : Ref{}, dx = f.Out(0, s.n());
  Launch(f.queue, NormBackwardKernel<has_mean>, Blocks(s.rows, kRowsPerBlock), kThreads, 0, dy, x,
         stats, gamma, residual, dx, s, IsWide({dy, x, gamma, residual, dx}, s.h));
}

}  // namespace

void LayerNorm(OpFrame& f) {
  const Rows s = RowsOf(f);
  const Ref x = f.In(0, s.n()), gamma = f.In(1, s.h), beta = f.In(2, s.h);
  const Ref y = f.Out(0, s.n()), stats = f.Out(1, 2 * s.rows);
  Launch(f.queue, LayerNormKernel, Blocks(s.rows, kRowsPerBlock), kThreads, 0, x, gamma, beta, y,
         stats, s, IsWide({x, gamma, beta, y}, s.h));
}

void RmsNorm(OpFrame& f) {
  const Rows s = RowsOf(f);
  const Ref x = f.In(0, s.n()), gamma = f.In(1, s.h), y = f.Out(0, s.n()), stats = f.Out(1, s.rows);
  Launch(f.queue, RmsNormKernel, Blocks(s.rows, kRowsPerBlock), kThreads, 0, x, gamma, y, stats, s,
         IsWide({x, gamma, y}, s.h));
}

void LayerNormBackward(OpFrame& f) { NormBackward<true>(f); }
void RmsNormBackward(OpFrame& f) { NormBackward<false>(f); }

void QkNorm(OpFrame& f) {
  const QkShape s = QkShapeOf(f);
  const Ref x = f.In(0, s.rows * s.Width()), gamma = f.In(1, s.Gains());
  const Ref y = f.Out(0, s.rows * s.Width()), raw = f.Out(1, s.rows * s.Stretch()),
            stats = f.Out(2, s.rows * s.Norms());
  Launch(f.queue, QkNormKernel, Blocks(s.rows * (s.Norms() + 1), kRowsPerBlock), kThreads, 0, x,
         gamma, y, raw, stats, s);
}

void QkNormBackward(OpFrame& f) {
  const QkShape s = QkShapeOf(f);
  const Ref dy = f.In(0, s.rows * s.Width()), raw = f.In(1, s.rows * s.Stretch()),
            stats = f.In(2, s.rows * s.Norms()), gamma = f.In(3, s.Gains());
  const Ref dx = f.Out(0, s.rows * s.Width());
  Launch(f.queue, QkNormBackwardKernel, Blocks(s.rows * (s.Norms() + 1), kRowsPerBlock), kThreads,
         0, dy, raw, stats, gamma, dx, s);
}

}  // namespace orrery::cuda
