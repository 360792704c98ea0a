// SPDX-License-Identifier: Apache-2.0
// Reference layer norm and RMS norm with their input and weight gradients.
#include <cmath>

#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;

double Epsilon(const KernelArgs& a) { return a.Get(Attr::kEps); }

}  // namespace

void LayerNorm(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH);
  const double *x = a.In(0, rows * h), *gamma = a.In(1, h), *beta = a.In(2, h);
  double *y = a.Out(0, rows * h), *stats = a.Out(1, 2 * rows);
  for (int64_t r = 0; r < rows; ++r) {
    double mean = 0, variance = 0;
    for (int64_t c = 0; c < h; ++c) mean += x[r * h + c] / static_cast<double>(h);
    for (int64_t c = 0; c < h; ++c)
      variance += (x[r * h + c] - mean) * (x[r * h + c] - mean) / static_cast<double>(h);
    const double rstd = 1 / std::sqrt(variance + Epsilon(a));
    for (int64_t c = 0; c < h; ++c)
      y[r * h + c] = (x[r * h + c] - mean) * rstd * gamma[c] + beta[c];
    stats[2 * r] = mean;
    stats[2 * r + 1] = rstd;
  }
}

void LayerNormBackward(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH);
  const double *dy = a.In(0, rows * h), *x = a.In(1, rows * h), *stats = a.In(2, 2 * rows),
               *gamma = a.In(3, h);
  const double* residual = a.Flag(Attr::kAdd) ? a.In(4, rows * h) : nullptr;
  double* dx = a.Out(0, rows * h);
  for (int64_t r = 0; r < rows; ++r) {
    const double mean = stats[2 * r], rstd = stats[2 * r + 1];
    double mean_g = 0, mean_gx = 0;  // of dy gamma, and of dy gamma times the normalised x
    for (int64_t c = 0; c < h; ++c) {
      const double g = dy[r * h + c] * gamma[c];
      mean_g += g / static_cast<double>(h);
      mean_gx += g * (x[r * h + c] - mean) * rstd / static_cast<double>(h);
    }
    for (int64_t c = 0; c < h; ++c) {
      const int64_t i = r * h + c;
      const double normalised = (x[i] - mean) * rstd;
      const double grad = rstd * (dy[i] * gamma[c] - mean_g - normalised * mean_gx);
      dx[i] = grad + (residual != nullptr ? residual[i] : 0.0);
    }
  }
}

void LayerNormWeightGrad(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH);
  a.In(0, h);
  a.In(1, h);
  const double *dy = a.In(2, rows * h), *x = a.In(3, rows * h), *stats = a.In(4, 2 * rows);
  double *dgamma = a.Out(0, h), *dbeta = a.Out(1, h);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < h; ++c) {
      dgamma[c] += dy[r * h + c] * (x[r * h + c] - stats[2 * r]) * stats[2 * r + 1];
      dbeta[c] += dy[r * h + c];
    }
  }
}

void RmsNorm(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH);
  const double *x = a.In(0, rows * h), *gamma = a.In(1, h);
  double *y = a.Out(0, rows * h), *stats = a.Out(1, rows);
  for (int64_t r = 0; r < rows; ++r) {
    double mean_square = 0;
    for (int64_t c = 0; c < h; ++c)
      mean_square += x[r * h + c] * x[r * h + c] / static_cast<double>(h);
    const double rstd = 1 / std::sqrt(mean_square + Epsilon(a));
    for (int64_t c = 0; c < h; ++c) y[r * h + c] = x[r * h + c] * rstd * gamma[c];
    stats[r] = rstd;
  }
}

void RmsNormBackward(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH);
  const double *dy = a.In(0, rows * h), *x = a.In(1, rows * h), *stats = a.In(2, rows),
               *gamma = a.In(3, h);
  const double* residual = a.Flag(Attr::kAdd) ? a.In(4, rows * h) : nullptr;
  double* dx = a.Out(0, rows * h);
  for (int64_t r = 0; r < rows; ++r) {
    double mean_gx = 0;
    for (int64_t c = 0; c < h; ++c)
      mean_gx += dy[r * h + c] * gamma[c] * x[r * h + c] * stats[r] / static_cast<double>(h);
    for (int64_t c = 0; c < h; ++c) {
      const int64_t i = r * h + c;
      const double grad = stats[r] * (dy[i] * gamma[c] - x[i] * stats[r] * mean_gx);
      dx[i] = grad + (residual != nullptr ? residual[i] : 0.0);
    }
  }
}

void RmsNormWeightGrad(const KernelArgs& a) {
  const int64_t rows = a.Int(Attr::kRows), h = a.Int(Attr::kH);
  a.In(0, h);
  const double *dy = a.In(1, rows * h), *x = a.In(2, rows * h), *stats = a.In(3, rows);
  double* dgamma = a.Out(0, h);
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < h; ++c) dgamma[c] += dy[r * h + c] * x[r * h + c] * stats[r];
}

namespace {

// Queries and keys of one row of qkv as one stretch each, in the order of the heads, and the norms over them.
struct QkShape {
  int64_t rows, nh, kv, hd;
  bool whole;
  int64_t heads() const { return nh + kv; }
  int64_t width() const { return (nh + 2 * kv) * hd; }
  int64_t norms() const { return whole ? 2 : heads(); }
  int64_t gains() const { return (whole ? heads() : 2) * hd; }
  // Head h (queries first) in a row of qkv.
  int64_t At(int64_t h) const {
    const int64_t per_group = nh / kv;
    const int64_t group = h < nh ? h / per_group : h - nh,
                  inside = h < nh ? h % per_group : per_group;
    return (group * (per_group + 2) + inside) * hd;
  }
  // Norm n: its first element and its width in the stretch, its first gain.
  int64_t First(int64_t n) const { return whole ? (n == 0 ? 0 : nh * hd) : n * hd; }
  int64_t Width(int64_t n) const { return whole ? (n == 0 ? nh : kv) * hd : hd; }
  int64_t Gain(int64_t n) const { return whole ? First(n) : n < nh ? 0 : hd; }
};

QkShape QkShapeOf(const KernelArgs& a) {
  const QkShape s{a.Int(Attr::kRows), a.Int(Attr::kNh), a.Int(Attr::kKv), a.Int(Attr::kHd),
                  a.Flag(Attr::kWhole)};
  if (s.kv < 1 || s.nh % s.kv != 0) throw PlanFault("qk_norm: heads do not divide");
  return s;
}

// Element `i` of the stretch of a row, in qkv.
double& Element(double* row, const QkShape& s, int64_t i) { return row[s.At(i / s.hd) + i % s.hd]; }
double Element(const double* row, const QkShape& s, int64_t i) {
  return row[s.At(i / s.hd) + i % s.hd];
}

}  // namespace

void QkNorm(const KernelArgs& a) {
  const QkShape s = QkShapeOf(a);
  const double *x = a.In(0, s.rows * s.width()), *gamma = a.In(1, s.gains());
  double *y = a.Out(0, s.rows * s.width()), *raw = a.Out(1, s.rows * s.heads() * s.hd),
         *stats = a.Out(2, s.rows * s.norms());
  if (x != y) throw PlanFault("qk_norm works in place");
  for (int64_t r = 0; r < s.rows; ++r) {
    double *row = y + r * s.width(), *kept = raw + r * s.heads() * s.hd;
    for (int64_t i = 0; i < s.heads() * s.hd; ++i) kept[i] = Element(row, s, i);
    for (int64_t n = 0; n < s.norms(); ++n) {
      double mean_square = 0;
      for (int64_t c = 0; c < s.Width(n); ++c)
        mean_square += kept[s.First(n) + c] * kept[s.First(n) + c] / double(s.Width(n));
      const double rstd = stats[r * s.norms() + n] = 1 / std::sqrt(mean_square + Epsilon(a));
      for (int64_t c = 0; c < s.Width(n); ++c)
        Element(row, s, s.First(n) + c) = kept[s.First(n) + c] * rstd * gamma[s.Gain(n) + c];
    }
  }
}

void QkNormBackward(const KernelArgs& a) {
  const QkShape s = QkShapeOf(a);
  const double *dy = a.In(0, s.rows * s.width()), *raw = a.In(1, s.rows * s.heads() * s.hd),
               *stats = a.In(2, s.rows * s.norms()), *gamma = a.In(3, s.gains());
  double* dx = a.Out(0, s.rows * s.width());
  for (int64_t r = 0; r < s.rows; ++r) {
    const double *grad = dy + r * s.width(), *x = raw + r * s.heads() * s.hd;
    double* out = dx + r * s.width();
    for (int64_t i = 0; i < s.width(); ++i) out[i] = grad[i];  // values
    for (int64_t n = 0; n < s.norms(); ++n) {
      const double rstd = stats[r * s.norms() + n];
      double mean = 0;
      for (int64_t c = 0; c < s.Width(n); ++c) {
        const int64_t i = s.First(n) + c;
        mean += Element(grad, s, i) * gamma[s.Gain(n) + c] * x[i] * rstd / double(s.Width(n));
      }
      for (int64_t c = 0; c < s.Width(n); ++c) {
        const int64_t i = s.First(n) + c;
        Element(out, s, i) =
            rstd * (Element(grad, s, i) * gamma[s.Gain(n) + c] - x[i] * rstd * mean);
      }
    }
  }
}

void QkNormWeightGrad(const KernelArgs& a) {
  const QkShape s = QkShapeOf(a);
  const double *dy = a.In(1, s.rows * s.width()), *raw = a.In(2, s.rows * s.heads() * s.hd),
               *stats = a.In(3, s.rows * s.norms());
  double* dgamma = a.Out(0, s.gains());
  if (a.In(0, s.gains()) != dgamma) throw PlanFault("qk_norm_wgrad accumulates in place");
  for (int64_t r = 0; r < s.rows; ++r) {
    for (int64_t n = 0; n < s.norms(); ++n) {
      for (int64_t c = 0; c < s.Width(n); ++c) {
        const int64_t i = s.First(n) + c;
        dgamma[s.Gain(n) + c] += Element(dy + r * s.width(), s, i) * raw[r * s.heads() * s.hd + i] *
                                 stats[r * s.norms() + n];
      }
    }
  }
}

}  // namespace orrery::interpreter
