// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm with their input and weight gradients.
#include <algorithm>
#include <optional>

#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {
namespace {

using ir::Attr;

constexpr int64_t kRowGroup = 16;  // a multiple of the rows that the weight gradients take at once

struct Rows {
  int64_t rows, h;
  int64_t n() const { return rows * h; }
};

float EpsilonOf(const Frame& f) { return static_cast<float>(f.Get(Attr::kEps)); }

Rows RowsOf(const Frame& f) { return {f.Size(Attr::kRows), f.Size(Attr::kH, 1)}; }

using BackwardRow = void (*)(const float* dy, const float* x, const float* stats,
                             const float* gamma, const float* residual, float* dx, int64_t h);

void NormBackward(Frame& f, BackwardRow row, int64_t stats_per_row) {
  const Rows s = RowsOf(f);
  const Reader dy = f.InPieces(0, s.n(), s.h), x = f.InPieces(1, s.n(), s.h);
  const float *stats = f.In(2, stats_per_row * s.rows), *gamma = f.In(3, s.h);
  std::optional<Reader> residual;
  if (f.Flag(Attr::kAdd)) residual.emplace(f.InPieces(4, s.n(), s.h));
  const Writer dx = f.OutPieces(0, s.n(), s.h);
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t at = r * s.h;
    row(dy.At(at, s.h), x.At(at, s.h), stats + stats_per_row * r, gamma,
        residual ? residual->At(at, s.h) : nullptr, dx.At(at), s.h);
    dx.Done(at, s.h);
  }
}

// Calls f(first element, rows) for groups of rows that fit the nearest cache together.
template <typename F>
void ForEachRowGroup(const Rows& s, F f) {
  for (int64_t r = 0; r < s.rows; r += kRowGroup) f(r, std::min(kRowGroup, s.rows - r));
}

}  // namespace

void LayerNorm(Frame& f) {
  const Rows s = RowsOf(f);
  const Reader x = f.InPieces(0, s.n(), s.h);
  const float *gamma = f.In(1, s.h), *beta = f.In(2, s.h);
  const Writer y = f.OutPieces(0, s.n(), s.h);
  float* stats = f.Out(1, 2 * s.rows);
  const float epsilon = EpsilonOf(f);
  for (int64_t r = 0; r < s.rows; ++r) {
    f.loops.ln_row(x.At(r * s.h, s.h), gamma, beta, y.At(r * s.h), stats + 2 * r, s.h, epsilon);
    y.Done(r * s.h, s.h);
  }
}

void LayerNormBackward(Frame& f) { NormBackward(f, f.loops.ln_bwd_row, 2); }

void LayerNormWeightGrad(Frame& f) {
  const Rows s = RowsOf(f);
  float *dgamma = f.InOut(0, 0, s.h), *dbeta = f.InOut(1, 1, s.h);
  const Reader dy = f.InPieces(2, s.n(), kRowGroup * s.h),
               x = f.InPieces(3, s.n(), kRowGroup * s.h);
  const float* stats = f.In(4, 2 * s.rows);
  ForEachRowGroup(s, [&](int64_t r, int64_t rows) {
    f.loops.ln_wgrad(dy.At(r * s.h, rows * s.h), x.At(r * s.h, rows * s.h), stats + 2 * r, dgamma,
                     dbeta, rows, s.h);
  });
}

void RmsNorm(Frame& f) {
  const Rows s = RowsOf(f);
  const Reader x = f.InPieces(0, s.n(), s.h);
  const float* gamma = f.In(1, s.h);
  const Writer y = f.OutPieces(0, s.n(), s.h);
  float* stats = f.Out(1, s.rows);
  const float epsilon = EpsilonOf(f);
  for (int64_t r = 0; r < s.rows; ++r) {
    f.loops.rms_row(x.At(r * s.h, s.h), gamma, y.At(r * s.h), stats + r, s.h, epsilon);
    y.Done(r * s.h, s.h);
  }
}

void RmsNormBackward(Frame& f) { NormBackward(f, f.loops.rms_bwd_row, 1); }

void RmsNormWeightGrad(Frame& f) {
  const Rows s = RowsOf(f);
  float* dgamma = f.InOut(0, 0, s.h);
  const Reader dy = f.InPieces(1, s.n(), kRowGroup * s.h),
               x = f.InPieces(2, s.n(), kRowGroup * s.h);
  const float* stats = f.In(3, s.rows);
  ForEachRowGroup(s, [&](int64_t r, int64_t rows) {
    f.loops.rms_wgrad(dy.At(r * s.h, rows * s.h), x.At(r * s.h, rows * s.h), stats + r, dgamma,
                      rows, s.h);
  });
}

}  // namespace orrery::cpu
