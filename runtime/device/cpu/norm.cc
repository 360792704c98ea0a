// SPDX-License-Identifier: Apache-2.0
// Layer norm and RMS norm with their input and weight gradients.
#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {
namespace {

using ir::Attr;

struct Rows {
  int64_t rows, h;
  int64_t n() const { return rows * h; }
};

Rows RowsOf(const Frame& f) { return {f.Size(Attr::kRows), f.Size(Attr::kH, 1)}; }

using BackwardRow = void (*)(const float* dy, const float* x, const float* stats, const float* gamma,
                             const float* residual, float* dx, int64_t h);

void NormBackward(Frame& f, BackwardRow row, int64_t stats_per_row) {
  const Rows s = RowsOf(f);
  const float *dy = f.In(0, s.n()), *x = f.In(1, s.n()), *stats = f.In(2, stats_per_row * s.rows), *gamma = f.In(3, s.h);
  const float* residual = f.Flag(Attr::kAdd) ? f.In(4, s.n()) : nullptr;
  float* dx = f.Out(0, s.n());
  for (int64_t r = 0; r < s.rows; ++r) {
    const int64_t at = r * s.h;
    row(dy + at, x + at, stats + stats_per_row * r, gamma, residual != nullptr ? residual + at : nullptr, dx + at, s.h);
  }
}

}  // namespace

void LayerNorm(Frame& f) {
  const Rows s = RowsOf(f);
  const float *x = f.In(0, s.n()), *gamma = f.In(1, s.h), *beta = f.In(2, s.h);
  float *y = f.Out(0, s.n()), *stats = f.Out(1, 2 * s.rows);
  for (int64_t r = 0; r < s.rows; ++r) f.loops.ln_row(x + r * s.h, gamma, beta, y + r * s.h, stats + 2 * r, s.h);
}

void LayerNormBackward(Frame& f) { NormBackward(f, f.loops.ln_bwd_row, 2); }

void LayerNormWeightGrad(Frame& f) {
  const Rows s = RowsOf(f);
  float *dgamma = f.InOut(0, 0, s.h), *dbeta = f.InOut(1, 1, s.h);
  f.loops.ln_wgrad(f.In(2, s.n()), f.In(3, s.n()), f.In(4, 2 * s.rows), dgamma, dbeta, s.rows, s.h);
}

void RmsNorm(Frame& f) {
  const Rows s = RowsOf(f);
  const float *x = f.In(0, s.n()), *gamma = f.In(1, s.h);
  float *y = f.Out(0, s.n()), *stats = f.Out(1, s.rows);
  for (int64_t r = 0; r < s.rows; ++r) f.loops.rms_row(x + r * s.h, gamma, y + r * s.h, stats + r, s.h);
}

void RmsNormBackward(Frame& f) { NormBackward(f, f.loops.rms_bwd_row, 1); }

void RmsNormWeightGrad(Frame& f) {
  const Rows s = RowsOf(f);
  float* dgamma = f.InOut(0, 0, s.h);
  f.loops.rms_wgrad(f.In(1, s.n()), f.In(2, s.n()), f.In(3, s.rows), dgamma, s.rows, s.h);
}

}  // namespace orrery::cpu
