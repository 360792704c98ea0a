// SPDX-License-Identifier: Apache-2.0
// The inner loops of the CPU kernels on plain float arrays, compiled once per instruction set and chosen at start.
//
// Arrays never overlap partly; an output may be one of the inputs where a loop says "in place". A row's result does not
// depend on the other rows nor on the address. Loops without a note work element by element.
#pragma once

#include <cstdint>
#include <string_view>

namespace orrery::cpu {

enum class Isa : uint8_t { kBase, kAvx2, kAvx512 };  // x86-64, x86-64-v3, x86-64-v4

struct AdamTerms {
  float beta1, beta2, eps, lr, factor, decay;  // gradient *= factor first
  float correction1, correction2;              // 1 - beta^step
  bool decoupled;
};

struct GemmArgs {  // C[m,n] = alpha op(A) op(B) + beta C, row-major
  bool ta, tb;
  int64_t m, n, k;
  float alpha;
  const float* a;
  int64_t lda;
  const float* b;
  int64_t ldb;
  float beta;
  float* c;
  int64_t ldc;
};

struct Loops {
  Isa isa;
  std::string_view name;

  // Storage. bf16 and f16 round to nearest even; NaN stays NaN.
  void (*from_bf16)(const uint16_t* x, float* y, int64_t n);
  void (*to_bf16)(const float* x, uint16_t* y, int64_t n);
  void (*from_f16)(const uint16_t* x, float* y, int64_t n);
  void (*to_f16)(const float* x, uint16_t* y, int64_t n);
  void (*from_u8)(const uint8_t* x, float* y, int64_t n);
  void (*to_u8)(const float* x, uint8_t* y, int64_t n);  // 1 where not zero

  // Element-wise, all in place where wanted.
  void (*add)(const float* x, const float* y, float* z, int64_t n);
  void (*scale)(float factor, const float* x, float* y, int64_t n);
  void (*nonzero)(const float* x, float* y, int64_t n);  // 1 where not zero, else 0
  void (*gelu)(const float* x, float* y, int64_t n);
  void (*gelu_bwd)(const float* dy, const float* x, float* dx, int64_t n);
  void (*relu)(const float* x, float* y, int64_t n);
  void (*relu_bwd)(const float* dy, const float* x, float* dx, int64_t n);
  void (*swiglu)(const float* x, float* y, int64_t n);
  void (*swiglu_bwd)(const float* dy, const float* x, float* dx, int64_t n);
  void (*tanh)(const float* x, float* y, int64_t n);
  void (*tanh_bwd)(const float* dy, const float* y, float* dx, int64_t n);
  void (*multiply)(const float* x, const float* y, float factor, float* z,
                   int64_t n);  // z = x y factor
  // z = x + f (y + bias); bias and f (factors of dropout) may be null.
  void (*bias_residual)(const float* x, const float* y, const float* bias, const float* f, float* z,
                        int64_t n);
  // factor[i] = keep, or 0 where the element with key `first + i` behind the hash `prefix` is dropped.
  void (*drop_factors)(uint64_t prefix, uint64_t first, uint64_t threshold, float keep,
                       float* factor, int64_t n);
  void (*rope)(const float* cosine, const float* sine, float* low, float* high, int64_t half);
  void (*mse)(const float* y, const float* t, float factor, float* dy, int64_t n,
              double* sum_of_squares);

  // Sums over rows: sum[c] += x[r, c].
  void (*col_sum)(const float* x, float* sum, int64_t rows, int64_t h);

  // Norms, one row at a time; stats = (mean, rstd) or rstd. residual may be null.
  void (*ln_row)(const float* x, const float* gamma, const float* beta, float* y, float* stats,
                 int64_t h, float epsilon);
  void (*ln_bwd_row)(const float* dy, const float* x, const float* stats, const float* gamma,
                     const float* residual, float* dx, int64_t h);
  void (*ln_wgrad)(const float* dy, const float* x, const float* stats, float* dgamma, float* dbeta,
                   int64_t rows, int64_t h);
  void (*rms_row)(const float* x, const float* gamma, float* y, float* stats, int64_t h,
                  float epsilon);
  void (*rms_bwd_row)(const float* dy, const float* x, const float* stats, const float* gamma,
                      const float* residual, float* dx, int64_t h);
  void (*rms_wgrad)(const float* dy, const float* x, const float* stats, float* dgamma,
                    int64_t rows, int64_t h);

  // Softmax of each row's first n = first_n + causal * row (at most `width`) values in place, the rest becomes 0.
  // log_sums: [rows], the log of each row's sum of exponentials; may be null.
  void (*softmax_rows)(float* p, int64_t rows, int64_t width, int64_t first_n, bool causal,
                       float* log_sums);
  void (*exp_row)(float* p, float log_sum, int64_t n,
                  int64_t width);  // p = exp(p - log_sum), the rest 0
  // dp = p (kept dp - mean) for the first n, the rest 0; kept may be null (1).
  void (*score_grad_row)(const float* p, const float* kept, float mean, float* dp, int64_t n,
                         int64_t width);
  float (*dot)(const float* x, const float* y, int64_t n);

  // Cross entropy.
  float (*max_row)(const float* x, int64_t n);
  float (*sum_exp_row)(const float* x, float top, int64_t n);
  void (*xent_grad_row)(const float* x, float top, float factor, float* dx,
                        int64_t n);  // factor exp(x - top), in place

  // Optimizers. old and w may be one array.
  double (*sum_squares)(const float* x, int64_t n);
  void (*sgd)(const float* g, const float* old, float* w, float lr, float factor, float decay,
              int64_t n);
  void (*adam)(const AdamTerms& t, const float* g, const float* old, float* w, float* m, float* v,
               int64_t n);
  // u = Adam direction + decay w; m and v in place.
  void (*lamb)(const AdamTerms& t, const float* g, const float* w, float* m, float* v, float* u,
               int64_t n);
  void (*axpy)(float factor, const float* x, const float* y, float* z,
               int64_t n);  // z = y + factor x

  // Blocked product for builds without oneDNN; `pack` holds GemmPackFloats() floats.
  void (*gemm)(const GemmArgs& g, float* pack);
};

constexpr int64_t kGemmDepth = 256, kGemmRows = 96,
                  kGemmColumns = 512;  // blocks of the plain product
constexpr int64_t GemmPackFloats() { return kGemmDepth * (kGemmRows + kGemmColumns); }

// The best set that this machine and this build have; SelectIsa chooses another one for the whole process (tests,
// measurements) and returns false where it is not available.
const Loops& ActiveLoops();
bool SelectIsa(Isa isa);

}  // namespace orrery::cpu
