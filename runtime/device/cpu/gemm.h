// SPDX-License-Identifier: Apache-2.0
// Matrix products on one thread: oneDNN where the build has it, else the plain blocked loop.
#pragma once

#include <string_view>

#include "runtime/device/cpu/frame.h"

namespace orrery::cpu {

// C[m,n] = alpha op(A) op(B) + beta C, row-major, single precision; beta 0 never reads C. Bitwise repeatable. With A as
// stored, a row of C does not depend on the other rows, except that oneDNN 2.6 sums products of fewer than 16 rows in
// another order.
// `frame` lends scratch memory.
void Gemm(Frame& frame, const GemmArgs& g);

// C = op(A) op(B) (+ bias) (+ C) on bf16 A and B with single-precision sums; C is bf16 or f32. Returns false where this
// build or processor has no fast way.
struct Bf16Product {
  bool ta, tb, acc;
  int64_t m, n, k;
  const void *a, *b;
  const float* bias;  // may be null
  void* c;
  bool c_is_bf16;
};
bool Bf16Gemm(const Bf16Product& p);

std::string_view GemmBackend();  // "oneDNN 2.6.3" or "plain"

}  // namespace orrery::cpu
