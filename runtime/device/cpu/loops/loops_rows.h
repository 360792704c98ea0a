// SPDX-License-Identifier: Apache-2.0
// Loops over rows: column sums, norms, softmax, cross entropy. Sums run in a fixed number of lanes, in a fixed order.
#pragma once

#include "runtime/device/cpu/loops/loops_math.h"

namespace orrery::cpu {
namespace {

float SumOf(const float* x, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i];
  return sum;
}

float DotLoop(const float* x, const float* y, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += x[i] * y[i];
  return sum;
}

void ColSumLoop(const float* x, float* sum, int64_t rows, int64_t h) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4) {
    const float *a = x + r * h, *b = a + h, *c = b + h, *d = c + h;
    ORRERY_SIMD for (int64_t i = 0; i < h; ++i) sum[i] += (a[i] + b[i]) + (c[i] + d[i]);
  }
  for (; r < rows; ++r) {
    const float* a = x + r * h;
    ORRERY_SIMD for (int64_t i = 0; i < h; ++i) sum[i] += a[i];
  }
}

void LnRow(const float* x, const float* gamma, const float* beta, float* y, float* stats, int64_t h,
           float epsilon) {
  const float count = static_cast<float>(h), mean = SumOf(x, h) / count;
  float squares = 0;
#pragma omp simd reduction(+ : squares)
  for (int64_t c = 0; c < h; ++c) squares += (x[c] - mean) * (x[c] - mean);
  const float rstd = 1.0f / __builtin_sqrtf(squares / count + epsilon);
  ORRERY_SIMD for (int64_t c = 0; c < h; ++c) y[c] = (x[c] - mean) * rstd * gamma[c] + beta[c];
  stats[0] = mean;
  stats[1] = rstd;
}

void LnBwdRow(const float* dy, const float* x, const float* stats, const float* gamma,
              const float* residual, float* dx, int64_t h) {
  const float mean = stats[0], rstd = stats[1];
  float sum_g = 0, sum_gx = 0;  // of dy gamma, and of dy gamma times the normalised x
#pragma omp simd reduction(+ : sum_g, sum_gx)
  for (int64_t c = 0; c < h; ++c) {
    const float g = dy[c] * gamma[c];
    sum_g += g;
    sum_gx += g * ((x[c] - mean) * rstd);
  }
  const float mean_g = sum_g / static_cast<float>(h), mean_gx = sum_gx / static_cast<float>(h);
  if (residual != nullptr) {
    ORRERY_SIMD for (int64_t c = 0; c < h; ++c) dx[c] =
        rstd * (dy[c] * gamma[c] - mean_g - (x[c] - mean) * rstd * mean_gx) + residual[c];
  } else {
    ORRERY_SIMD for (int64_t c = 0; c < h; ++c) dx[c] =
        rstd * (dy[c] * gamma[c] - mean_g - (x[c] - mean) * rstd * mean_gx);
  }
}

// `count` rows at once: fewer passes over the sums.
template <int count>
void LnWgradRows(const float* dy, const float* x, const float* stats, float* dgamma, float* dbeta,
                 int64_t h) {
  ORRERY_SIMD for (int64_t c = 0; c < h; ++c) {
    float gamma = dgamma[c], beta = dbeta[c];
#pragma GCC unroll 8
    for (int i = 0; i < count; ++i) {
      gamma += dy[i * h + c] * ((x[i * h + c] - stats[2 * i]) * stats[2 * i + 1]);
      beta += dy[i * h + c];
    }
    dgamma[c] = gamma;
    dbeta[c] = beta;
  }
}

void LnWgrad(const float* dy, const float* x, const float* stats, float* dgamma, float* dbeta,
             int64_t rows, int64_t h) {
  int64_t r = 0;
  for (; r + 4 <= rows; r += 4)
    LnWgradRows<4>(dy + r * h, x + r * h, stats + 2 * r, dgamma, dbeta, h);
  for (; r < rows; ++r) LnWgradRows<1>(dy + r * h, x + r * h, stats + 2 * r, dgamma, dbeta, h);
}

void RmsRow(const float* x, const float* gamma, float* y, float* stats, int64_t h, float epsilon) {
  const float rstd = 1.0f / __builtin_sqrtf(DotLoop(x, x, h) / static_cast<float>(h) + epsilon);
  ORRERY_SIMD for (int64_t c = 0; c < h; ++c) y[c] = x[c] * rstd * gamma[c];
  stats[0] = rstd;
}

void RmsBwdRow(const float* dy, const float* x, const float* stats, const float* gamma,
               const float* residual, float* dx, int64_t h) {
  const float rstd = stats[0];
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < h; ++c) sum += dy[c] * gamma[c] * (x[c] * rstd);
  const float mean_gx = sum / static_cast<float>(h);
  if (residual != nullptr) {
    ORRERY_SIMD for (int64_t c = 0; c < h; ++c) dx[c] =
        rstd * (dy[c] * gamma[c] - x[c] * rstd * mean_gx) + residual[c];
  } else {
    ORRERY_SIMD for (int64_t c = 0; c < h; ++c) dx[c] =
        rstd * (dy[c] * gamma[c] - x[c] * rstd * mean_gx);
  }
}

void RmsWgrad(const float* dy, const float* x, const float* stats, float* dgamma, int64_t rows,
              int64_t h) {
  for (int64_t r = 0; r < rows; ++r) {
    const float *dy0 = dy + r * h, *x0 = x + r * h, rstd = stats[r];
    ORRERY_SIMD for (int64_t c = 0; c < h; ++c) dgamma[c] += dy0[c] * (x0[c] * rstd);
  }
}

float MaxRow(const float* x, int64_t n) {
  float top = -__builtin_inff();
#pragma omp simd reduction(max : top)
  for (int64_t i = 0; i < n; ++i) top = Max(x[i], top);
  return top;
}

float SumExpRow(const float* x, float top, int64_t n) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += ExpOfNegative(x[i] - top);
  return sum;
}

void XentGradRow(const float* x, float top, float factor, float* dx, int64_t n) {
  ORRERY_SIMD for (int64_t i = 0; i < n; ++i) dx[i] = ExpOfNegative(x[i] - top) * factor;
}

void ZeroTail(float* p, int64_t from, int64_t to) {
  for (int64_t j = from; j < to; ++j) p[j] = 0.0f;
}

// Whole vectors where the row has room: what lies behind the visible keys is computed and then cleared.
inline int64_t WholeVectors(int64_t n, int64_t width) {
  return (n + 15) / 16 * 16 <= width ? (n + 15) / 16 * 16 : n;
}

struct RowSum {
  float top, sum;
};

RowSum SoftmaxRow(float* p, int64_t n, int64_t width) {
  const int64_t whole = WholeVectors(n, width);
  for (int64_t j = n; j < whole; ++j) p[j] = -__builtin_inff();
  const float top = MaxRow(p, whole);
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < whole; ++j) {
    p[j] = ExpOfNegative(p[j] - top);
    sum += p[j];
  }
  const float inverse = 1.0f / sum;
  ORRERY_SIMD for (int64_t j = 0; j < whole; ++j) p[j] *= inverse;
  ZeroTail(p, n, width);
  return {top, sum};
}

void SoftmaxRows(float* p, int64_t rows, int64_t width, int64_t first_n, bool causal,
                 float* log_sums) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t n = first_n + (causal ? r : 0);
    const RowSum row = SoftmaxRow(p + r * width, n < width ? n : width, width);
    if (log_sums != nullptr) log_sums[r] = row.top + __builtin_logf(row.sum);
  }
}

void ExpRow(float* p, float log_sum, int64_t n, int64_t width) {
  const int64_t whole = WholeVectors(n, width);
  ORRERY_SIMD for (int64_t j = 0; j < whole; ++j) p[j] = Exp(p[j] - log_sum);
  ZeroTail(p, n, width);
}

void ScoreGradRow(const float* p, const float* kept, float mean, float* dp, int64_t n,
                  int64_t width) {
  const int64_t whole = WholeVectors(n, width);
  if (kept != nullptr) {
    ORRERY_SIMD for (int64_t j = 0; j < whole; ++j) dp[j] = p[j] * (kept[j] * dp[j] - mean);
  } else {
    ORRERY_SIMD for (int64_t j = 0; j < whole; ++j) dp[j] = p[j] * (dp[j] - mean);
  }
  ZeroTail(dp, n, width);
}

}  // namespace
}  // namespace orrery::cpu
