// SPDX-License-Identifier: Apache-2.0
// Optimizer updates and sums of squares over flat arrays.
#pragma once

#include "runtime/device/cpu/loops.h"
#include "runtime/device/cpu/loops/loops_math.h"

namespace orrery::cpu {
namespace {

double SumSquaresLoop(const float* x, int64_t n) {
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
  return sum;
}

void SgdLoop(const float* g, const float* old, float* w, float lr, float factor, float decay,
             int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) w[i] = old[i] - lr * (g[i] * factor + decay * old[i]);
}

// Kingma and Ba 2015; decoupled decay: Loshchilov and Hutter 2019.
void AdamLoop(const AdamTerms& terms, const float* g, const float* old, float* w, float* m,
              float* v, int64_t n) {
  const AdamTerms t = terms;
  const float coupled = t.decoupled ? 0.0f : t.decay, direct = t.decoupled ? t.decay : 0.0f;
  const float new1 = static_cast<float>(1.0 - static_cast<double>(t.beta1));
  const float new2 = static_cast<float>(1.0 - static_cast<double>(t.beta2));
  const float inverse1 = 1.0f / t.correction1, inverse2 = 1.0f / t.correction2;
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * t.factor + coupled * old[i];
    const float first = t.beta1 * m[i] + new1 * gradient;
    const float second = t.beta2 * v[i] + new2 * gradient * gradient;
    m[i] = first;
    v[i] = second;
    const float u = first * inverse1 / (__builtin_sqrtf(second * inverse2) + t.eps);
    w[i] = old[i] - t.lr * (u + direct * old[i]);
  }
}

// You et al. 2020: u = Adam direction + decay w.
void LambLoop(const AdamTerms& terms, const float* g, const float* w, float* m, float* v, float* u,
              int64_t n) {
  const AdamTerms t = terms;
  const float new1 = static_cast<float>(1.0 - static_cast<double>(t.beta1));
  const float new2 = static_cast<float>(1.0 - static_cast<double>(t.beta2));
  const float inverse1 = 1.0f / t.correction1, inverse2 = 1.0f / t.correction2;
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) {
    const float gradient = g[i] * t.factor;
    const float first = t.beta1 * m[i] + new1 * gradient;
    const float second = t.beta2 * v[i] + new2 * gradient * gradient;
    m[i] = first;
    v[i] = second;
    u[i] = first * inverse1 / (__builtin_sqrtf(second * inverse2) + t.eps) + t.decay * w[i];
  }
}

}  // namespace
}  // namespace orrery::cpu
