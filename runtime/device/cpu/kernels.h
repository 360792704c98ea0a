// SPDX-License-Identifier: Apache-2.0
// CPU kernels: one per op kind, single precision inside, on operands stored as f32, bf16 or f16.
//
// Operands arrive in the order that model/plan/ir/op.h documents, contiguous, inside the arena; a view named in `in` and in
// `out` is the same memory. i32 operands are tokens and positions. Sums over rows and columns are accumulated in an
// order that does not depend on the rank. Every kernel checks operand sizes and types and throws KernelError when an op
// contradicts itself. One thread per rank; kernels keep no state but scratch memory of the calling thread.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>

#include "model/plan/ir/op.h"
#include "model/plan/ir/plan.h"

namespace orrery::cpu {

struct KernelError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Operand {
  void* data = nullptr;
  int64_t n = 0;  // elements
  ir::Dtype dtype = ir::Dtype::kF32;
};

struct KernelArgs {
  const ir::Op& op;
  std::span<const Operand> out, in;
  std::span<const int> coords;     // of the executing rank, by mesh axis
  int64_t step = 1;                // 1-based, for bias corrections and dropout
  const ir::Unit* unit = nullptr;  // of the first output that belongs to one (optimizer ops)
  std::span<const ir::Param> params = {};  // of the plan
  uint64_t seed = 1;                       // of the job, for dropout
  int64_t first_sample = 0;  // of this micro-batch on this rank, within the step (dropout)
};

using Kernel = void (*)(const KernelArgs&);
// nullptr for collectives, point-to-point and load: those belong to the executor.
Kernel KernelFor(ir::OpKind kind);

}  // namespace orrery::cpu
