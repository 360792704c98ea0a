// SPDX-License-Identifier: Apache-2.0
// Element-wise loops: activations, residuals, dropout factors, rotations, squared error.
#pragma once

#include "model/plan/ir/draws.h"
#include "runtime/device/cpu/loops/loops_math.h"

namespace orrery::cpu {
namespace {

void AddLoop(const float* x, const float* y, float* z, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) z[i] = x[i] + y[i];
}

void ScaleLoop(float factor, const float* x, float* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) y[i] = factor * x[i];
}

void NonzeroLoop(const float* x, float* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) y[i] = x[i] != 0.0f ? 1.0f : 0.0f;
}

void AxpyLoop(float factor, const float* x, const float* y, float* z, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) z[i] = y[i] + factor * x[i];
}

void MultiplyLoop(const float* x, const float* y, float factor, float* z, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) z[i] = x[i] * y[i] * factor;
}

// Hendrycks and Gimpel 2016, tanh form: x (1 + tanh u) / 2 = x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3).
constexpr float kGeluSlope = 2.0f * 0.797884560802865f, kGeluCubic = 0.044715f;

inline float GeluOne(float x) { return x * Sigmoid(kGeluSlope * x * (1.0f + kGeluCubic * x * x)); }

inline float GeluGradOne(float dy, float x) {
  const float square = x * x;
  const float s = Sigmoid(kGeluSlope * x * (1.0f + kGeluCubic * square));
  const float slope = kGeluSlope * (1.0f + 3.0f * kGeluCubic * square);
  return dy * (s + x * s * (1.0f - s) * slope);
}

void GeluLoop(const float* x, float* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) y[i] = GeluOne(x[i]);
}

void GeluBwdLoop(const float* dy, const float* x, float* dx, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) dx[i] = GeluGradOne(dy[i], x[i]);
}

// Written so that NaN passes through.
void ReluLoop(const float* x, float* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) y[i] = x[i] <= 0.0f ? 0.0f : x[i];
}

void ReluBwdLoop(const float* dy, const float* x, float* dx, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) {
    const float passed = x[i] > 0.0f ? dy[i] : x[i];
    dx[i] = x[i] <= 0.0f ? 0.0f : passed;
  }
}

void SwigluLoop(const float* x, float* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) y[i] = x[2 * i] * Sigmoid(x[2 * i]) * x[2 * i + 1];
}

void SwigluBwdLoop(const float* dy, const float* x, float* dx, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) {
    const float gate = x[2 * i], up = x[2 * i + 1], s = Sigmoid(gate), grad = dy[i];
    dx[2 * i] = grad * up * s * (1.0f + gate * (1.0f - s));
    dx[2 * i + 1] = grad * gate * s;
  }
}

void TanhLoop(const float* x, float* y, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) y[i] = Tanh(x[i]);
}

void TanhBwdLoop(const float* dy, const float* y, float* dx, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * (1.0f - y[i] * y[i]);
}

void BiasResidualLoop(const float* x, const float* y, const float* bias, const float* f, float* z,
                      int64_t n) {
  if (f != nullptr && bias != nullptr) {
    ORRERY_SIMD for (int64_t i = 0; i < n; ++i) z[i] = x[i] + f[i] * (y[i] + bias[i]);
  } else if (f != nullptr) {
    ORRERY_SIMD for (int64_t i = 0; i < n; ++i) z[i] = x[i] + f[i] * y[i];
  } else if (bias != nullptr) {
    ORRERY_SIMD for (int64_t i = 0; i < n; ++i) z[i] = x[i] + (y[i] + bias[i]);
  } else {
    AddLoop(x, y, z, n);
  }
}

void DropFactorsLoop(uint64_t prefix, uint64_t first, uint64_t threshold, float keep, float* factor,
                     int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) {
    const uint64_t bits = ir::HashMore(prefix, first + static_cast<uint64_t>(i));
    factor[i] = ir::IsDropped(bits, threshold) ? 0.0f : keep;
  }
}

void RopeLoop(const float* cosine, const float* sine, float* low, float* high, int64_t half) {
  ORRERY_SIMD for (int64_t i = 0; i < half; ++i) {
    const float a = low[i], b = high[i];
    low[i] = a * cosine[i] - b * sine[i];
    high[i] = b * cosine[i] + a * sine[i];
  }
}

void MseLoop(const float* y, const float* t, float factor, float* dy, int64_t n,
             double* sum_of_squares) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) {
    const float error = y[i] - t[i];
    sum += static_cast<double>(error) * error;
    dy[i] = factor * error;
  }
  *sum_of_squares = sum;
}

}  // namespace
}  // namespace orrery::cpu
