// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm, forward and gradient of the input: a warp per row, eight columns per lane at a time. Norms of
// queries and keys: a warp per norm of a row.
#include <type_traits>

#include "runtime/device/cuda/ops.h"
#include "runtime/device/cuda/qk_norm.h"

namespace orrery::cuda {
namespace {

using ir::Attr;

constexpr int kRowsPerBlock = 4, kThreads = kRowsPerBlock * kWarpSize;

struct Rows {
  int64_t rows, h;
  float epsilon;
  int64_t n() const { return rows * h; }
};

__device__ inline int64_t RowOfWarp() {
  return static_cast<int64_t>(blockIdx.x) * kRowsPerBlock + WarpIndex();
}

// The lane's pieces of a row of some operands. With `held` pieces or fewer they are in registers: all loads are under
// way together, and memory is read once. With 0 they are read again at each walk.
template <int held, int operands>
class RowPieces {
 public:
  __device__ RowPieces(const Ref (&from)[operands], int64_t at, int64_t h, bool wide)
      : at_(at), h_(h), wide_(wide) {
    for (int o = 0; o < operands; ++o) from_[o] = from[o];
#pragma unroll
    for (int p = 0; p < held; ++p)
      if (Column(p) < h_) LoadPiece(Column(p), Least(kWide, h_ - Column(p)), v_[p]);
  }

  // Calls f(first column, columns, values of each operand).
  template <typename F>
  __device__ void ForEach(F f) {
    if constexpr (held > 0) {
#pragma unroll
      for (int p = 0; p < held; ++p)
        if (Column(p) < h_) f(Column(p), Least(kWide, h_ - Column(p)), v_[p]);
    } else {
      for (int64_t c = LaneIndex() * kWide; c < h_; c += kWarpSize * kWide) {
        const int count = Least(kWide, h_ - c);
        LoadPiece(c, count, v_[0]);
        f(c, count, v_[0]);
      }
    }
  }

 private:
  __device__ static int64_t Column(int p) { return (p * kWarpSize + LaneIndex()) * kWide; }
  __device__ void LoadPiece(int64_t c, int count, float (&v)[operands][kWide]) {
#pragma unroll
    for (int o = 0; o < operands; ++o) LoadSome(from_[o], at_ + c, count, wide_, v[o]);
  }

  Ref from_[operands];
  const int64_t at_, h_;
  const bool wide_;
  float v_[held > 0 ? held : 1][operands][kWide];
};

template <int held>
__global__ void LayerNormKernel(Ref x, Ref gamma, Ref beta, Ref y, Ref stats, Rows s, bool wide) {
  const int64_t row = RowOfWarp(), at = row * s.h;
  if (row >= s.rows) return;
  RowPieces<held, 1> pieces({x}, at, s.h, wide);
  float sum = 0;
  pieces.ForEach([&](int64_t, int, const float(&v)[1][kWide]) {
    for (int k = 0; k < kWide; ++k) sum += v[0][k];
  });
  const float mean = WarpSum(sum) / static_cast<float>(s.h);
  float squares = 0;
  pieces.ForEach([&](int64_t, int count, const float(&v)[1][kWide]) {
    for (int k = 0; k < kWide; ++k)
      squares += k < count ? (v[0][k] - mean) * (v[0][k] - mean) : 0.0f;
  });
  const float rstd = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(s.h) + s.epsilon);
  pieces.ForEach([&](int64_t c, int count, const float(&v)[1][kWide]) {
    float g[kWide], b[kWide], to[kWide];
    LoadSome(gamma, c, count, wide, g);
    LoadSome(beta, c, count, wide, b);
    for (int k = 0; k < kWide; ++k) to[k] = (v[0][k] - mean) * rstd * g[k] + b[k];
    StoreSome(y, at + c, count, wide, to);
  });
  if (LaneIndex() == 0) {
    Store(stats, 2 * row, mean);
    Store(stats, 2 * row + 1, rstd);
  }
}

template <int held>
__global__ void RmsNormKernel(Ref x, Ref gamma, Ref y, Ref stats, Rows s, bool wide) {
  const int64_t row = RowOfWarp(), at = row * s.h;
  if (row >= s.rows) return;
  RowPieces<held, 1> pieces({x}, at, s.h, wide);
  float squares = 0;
  pieces.ForEach([&](int64_t, int, const float(&v)[1][kWide]) {
    for (int k = 0; k < kWide; ++k) squares += v[0][k] * v[0][k];
  });
  const float rstd = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(s.h) + s.epsilon);
  pieces.ForEach([&](int64_t c, int count, const float(&v)[1][kWide]) {
    float g[kWide], to[kWide];
    LoadSome(gamma, c, count, wide, g);
    for (int k = 0; k < kWide; ++k) to[k] = v[0][k] * (rstd * g[k]);
    StoreSome(y, at + c, count, wide, to);
  });
  if (LaneIndex() == 0) Store(stats, row, rstd);
}

// dx = rstd (dy gamma - mean(dy gamma) - xhat mean(dy gamma xhat)) (+ r); RMS norm has no mean.
// Its rows are read again: held in registers, they take so many that an H100 was 15 % slower.
template <bool has_mean>
__global__ void NormBackwardKernel(Ref dy, Ref x, Ref stats, Ref gamma, Ref residual, Ref dx,
                                   Rows s, bool wide) {
  const int64_t row = RowOfWarp(), at = row * s.h;
  if (row >= s.rows) return;
  RowPieces<0, 2> pieces({dy, x}, at, s.h, wide);
  const float mean = has_mean ? Load(stats, 2 * row) : 0.0f,
              rstd = Load(stats, has_mean ? 2 * row + 1 : row);
  float sum_g = 0, sum_gx = 0;
  pieces.ForEach([&](int64_t c, int count, const float(&v)[2][kWide]) {
    float g[kWide];
    LoadSome(gamma, c, count, wide, g);
    for (int k = 0; k < kWide; ++k) {
      sum_g += v[0][k] * g[k];
      sum_gx += v[0][k] * g[k] * ((v[1][k] - mean) * rstd);
    }
  });
  const float mean_g = has_mean ? WarpSum(sum_g) / static_cast<float>(s.h) : 0.0f;
  const float mean_gx = WarpSum(sum_gx) / static_cast<float>(s.h);
  pieces.ForEach([&](int64_t c, int count, const float(&v)[2][kWide]) {
    float g[kWide], r[kWide] = {}, to[kWide];
    LoadSome(gamma, c, count, wide, g);
    if (!residual.absent()) LoadSome(residual, at + c, count, wide, r);
    for (int k = 0; k < kWide; ++k)
      to[k] = rstd * (v[0][k] * g[k] - mean_g - (v[1][k] - mean) * rstd * mean_gx) + r[k];
    StoreSome(dx, at + c, count, wide, to);
  });
}

// Calls f with how many pieces a lane holds of rows of `h` columns, 0: rows are too long for that.
template <typename F>
void WithHeld(int64_t h, F f) {
  const unsigned pieces = Blocks(h, kWarpSize * kWide);
  if (pieces <= 1) return f(std::integral_constant<int, 1>());
  if (pieces <= 3) return f(std::integral_constant<int, 3>());
  if (pieces <= 4) return f(std::integral_constant<int, 4>());
  if (pieces <= 8) return f(std::integral_constant<int, 8>());
  f(std::integral_constant<int, 0>());
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

__global__ void QkNormKernel(Ref x, Ref gamma, Ref y, Ref raw, Ref stats, QkShape s,
                             float epsilon) {
  const QkNormOfWarp w = NormOfWarp(s);
  if (w.row >= s.rows) return;
  if (w.norm == s.Norms()) return CopyValues(x, y, w.row, s);
  const int64_t from = w.row * s.Width(), kept = w.row * s.Stretch();
  float squares = 0;
  for (int64_t i = LaneIndex(); i < w.width; i += kWarpSize) {
    const float v = Load(x, from + s.Place(w.first + i));
    squares += v * v;
  }
  const float rstd = 1.0f / sqrtf(WarpSum(squares) / static_cast<float>(w.width) + epsilon);
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

float Epsilon(const OpFrame& f) { return static_cast<float>(f.Get(Attr::kEps)); }

Rows RowsOf(const OpFrame& f) { return {f.Size(Attr::kRows), f.Size(Attr::kH, 1), Epsilon(f)}; }

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
  WithHeld(s.h, [&](auto held) {
    Launch(f.queue, LayerNormKernel<held()>, Blocks(s.rows, kRowsPerBlock), kThreads, 0, x, gamma,
           beta, y, stats, s, IsWide({x, gamma, beta, y}, s.h));
  });
}

void RmsNorm(OpFrame& f) {
  const Rows s = RowsOf(f);
  const Ref x = f.In(0, s.n()), gamma = f.In(1, s.h), y = f.Out(0, s.n()), stats = f.Out(1, s.rows);
  WithHeld(s.h, [&](auto held) {
    Launch(f.queue, RmsNormKernel<held()>, Blocks(s.rows, kRowsPerBlock), kThreads, 0, x, gamma, y,
           stats, s, IsWide({x, gamma, y}, s.h));
  });
}

void LayerNormBackward(OpFrame& f) { NormBackward<true>(f); }
void RmsNormBackward(OpFrame& f) { NormBackward<false>(f); }

void QkNorm(OpFrame& f) {
  const QkShape s = QkShapeOf(f);
  const Ref x = f.In(0, s.rows * s.Width()), gamma = f.In(1, s.Gains());
  const Ref y = f.Out(0, s.rows * s.Width()), raw = f.Out(1, s.rows * s.Stretch()),
            stats = f.Out(2, s.rows * s.Norms());
  Launch(f.queue, QkNormKernel, Blocks(s.rows * (s.Norms() + 1), kRowsPerBlock), kThreads, 0, x,
         gamma, y, raw, stats, s, Epsilon(f));
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
