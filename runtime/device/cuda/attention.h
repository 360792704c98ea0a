// SPDX-License-Identifier: Apache-2.0
// Operands of attention ops on the device, and the two ways to compute them: own flash kernels on matrix units where
// types and sizes allow, else plain kernels that take everything.
#pragma once

#include "runtime/device/cuda/dropout.h"

namespace orrery::cuda {

// Where head h of sample b stands in each operand (runtime/device/cpu/attention.h). Offsets in elements.
struct Heads {
  int64_t batch, seq, seq_kv, nh, hd, buckets;
  int64_t q_width, kv_width, queries_per_kv, first_head;
  bool causal, flash, cross, drops;
  float scale;
  int64_t window;  // keys that a query sees, 0: all
  float cap;       // of the scores, 0: none
  int64_t alibi;   // heads of the model whose scores have linear biases, 0: none

  __host__ __device__ int64_t QueryAt(int64_t b, int64_t h, int64_t i) const {
    const int64_t within =
        cross ? h * hd
              : (h / queries_per_kv) * (queries_per_kv + 2) * hd + (h % queries_per_kv) * hd;
    return (i * batch + b) * q_width + within;
  }
  __host__ __device__ int64_t KeyAt(int64_t b, int64_t h,
                                    int64_t j) const {  // the value: hd elements behind
    const int64_t within =
        cross ? 2 * h * hd : (h / queries_per_kv) * (queries_per_kv + 2) * hd + queries_per_kv * hd;
    return (j * batch + b) * kv_width + within;
  }
  __host__ __device__ int64_t Keys(int64_t i) const {
    return causal && i + 1 < seq_kv ? i + 1 : seq_kv;
  }
  __host__ __device__ int64_t FirstKey(int64_t i) const {
    return window > 0 && i >= window ? i + 1 - window : 0;
  }
  __host__ __device__ bool Sees(int64_t i, int64_t j) const {
    return j >= FirstKey(i) && j < Keys(i);
  }
  __host__ __device__ int64_t ContextAt(int64_t b, int64_t h, int64_t i) const {
    return ((i * batch + b) * nh + h) * hd;
  }
  __host__ __device__ int64_t LseAt(int64_t b, int64_t h, int64_t i) const {
    return (i * batch + b) * nh + h;
  }
  __host__ __device__ int64_t ProbabilityRow(int64_t b, int64_t h, int64_t i) const {
    return ((b * nh + h) * seq + i) * seq_kv;
  }
  int64_t Context() const { return seq * batch * nh * hd; }
  int64_t Rows() const { return seq * batch * nh; }
  int64_t Probabilities() const { return batch * nh * seq * seq_kv; }
};

struct AttentionOperands {
  Heads s;
  Draw draw;
  Ref q, kv, ctx;  // ctx: output forward, input backward
  Ref softmax, mask,
      dropped;               // what is kept for backward; softmax: log of the rows' sums with flash
  Ref bias;                  // relative positions: [buckets, nh], absent: none
  Ref dctx, dq, dkv, dbias;  // backward
};

// attention.cu
void PlainForward(OpFrame& f, const AttentionOperands& o);
void PlainBackward(OpFrame& f, const AttentionOperands& o);

// delta[LseAt] = dctx . ctx
void RowDeltas(OpFrame& f, const AttentionOperands& o, float* delta);

// flash_forward.cu, flash_backward.cu: bf16, heads of 64 or 128, no relative positions, linear biases, windows or caps.
bool CanFlash(const AttentionOperands& o);
void FlashForward(OpFrame& f, const AttentionOperands& o);
void FlashBackward(OpFrame& f, const AttentionOperands& o);

}  // namespace orrery::cuda
