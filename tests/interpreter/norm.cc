// SPDX-License-Identifier: Apache-2.0
// Reference layer norm and RMS norm with their input and weight gradients.
#include <cmath>

#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {
namespace {

using ir::Attr;
constexpr double kEpsilon = 1e-5;

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
    const double rstd = 1 / std::sqrt(variance + kEpsilon);
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
    const double rstd = 1 / std::sqrt(mean_square + kEpsilon);
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

}  // namespace orrery::interpreter
