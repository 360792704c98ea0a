// SPDX-License-Identifier: Apache-2.0
// Reference kernels: one slow, obvious double-precision implementation per op kind.
//
// Operands arrive as contiguous doubles in the order that model/plan/ir/op.h documents; a view named in `in` and in
// `out` is the same memory. Every kernel checks the operand sizes against the op's attributes and throws
// PlanFault when the plan contradicts itself.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "model/plan/ir/op.h"
#include "model/plan/ir/plan.h"

namespace orrery::interpreter {

// The plan under test cannot be executed as it stands.
struct PlanFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Operand {
  double* data = nullptr;
  int64_t n = 0;
};

struct KernelArgs {
  const ir::Op& op;
  std::span<const Operand> out, in;
  std::span<const int> coords;     // of the executing rank, by mesh axis
  int64_t step = 1;                // 1-based, for bias corrections
  const ir::Unit* unit = nullptr;  // of the first output that belongs to one (optimizer ops)
  std::span<const ir::Param> params = {};  // of the plan
  uint64_t seed = 1;                       // of the job, for dropout
  int64_t first_sample = 0;  // of this micro-batch on this rank, within the step (dropout)

  int64_t Int(ir::Attr key) const { return op.attrs.Int(key); }
  double Get(ir::Attr key) const { return op.attrs.Get(key); }
  bool Flag(ir::Attr key) const { return op.attrs.Get(key) != 0; }
  // Coordinate on the mesh axis that attribute `key` names, 0 when it names none.
  int64_t Coord(ir::Attr key) const;
  // In its sequence, of row `row` of this rank.
  int64_t Position(int64_t row) const;
  // First element of `x`, after a check that it holds exactly n elements.
  double* In(size_t i, int64_t n) const { return Checked(in, i, n, "input"); }
  double* Out(size_t i, int64_t n) const { return Checked(out, i, n, "output"); }
  double* Checked(std::span<const Operand> list, size_t i, int64_t n, const char* role) const;
  void ExpectInputs(size_t least) const;
};

using Kernel = void (*)(const KernelArgs&);
// nullptr for collectives, point-to-point and load: those belong to the scheduler.
Kernel KernelFor(ir::OpKind kind);

// Of head `head` of `heads` in attention with linear biases (Press et al. 2022), as transformers builds the list.
double AlibiSlope(int64_t head, int64_t heads);

// matmul.cc
void Matmul(const KernelArgs& a);
// low_precision.cc
void Quantize(const KernelArgs& a);
void Unpack(const KernelArgs& a);
void UnitAmax(const KernelArgs& a);
void UnitCast(const KernelArgs& a);
void LargestMagnitude(const KernelArgs& a);
void RollHistory(const KernelArgs& a);
void UpdateScales(const KernelArgs& a);
// The numbers that operand i of a product stands for: data times the scales of operand `scales` (times the tensor's, when
// `tensor` >= 0) over blocks of down x along elements; down 0: one scale.
std::vector<double> Decoded(const KernelArgs& a, size_t i, size_t scales, int tensor, int64_t rows,
                            int64_t width, int64_t down, int64_t along);
// attention.cc
void Attention(const KernelArgs& a);
void AttentionBackward(const KernelArgs& a);
void CrossAttention(const KernelArgs& a);
void CrossAttentionBackward(const KernelArgs& a);
void Rope(const KernelArgs& a);
// context.cc
void KeysAndValues(const KernelArgs& a);
void PartAttention(const KernelArgs& a);
void PartAttentionBackward(const KernelArgs& a);
void Regroup(const KernelArgs& a);
int64_t RelativeBucket(int64_t query, int64_t key, int64_t buckets, bool bidirectional);
// norm.cc
void LayerNorm(const KernelArgs& a);
void LayerNormBackward(const KernelArgs& a);
void LayerNormWeightGrad(const KernelArgs& a);
void RmsNorm(const KernelArgs& a);
void RmsNormBackward(const KernelArgs& a);
void RmsNormWeightGrad(const KernelArgs& a);
void QkNorm(const KernelArgs& a);
void QkNormBackward(const KernelArgs& a);
void QkNormWeightGrad(const KernelArgs& a);
// elementwise.cc
void Zero(const KernelArgs& a);
void Add(const KernelArgs& a);
void TakePart(const KernelArgs& a);
void Copy(const KernelArgs& a);
void BiasResidual(const KernelArgs& a);
void ColumnSum(const KernelArgs& a);
void Gelu(const KernelArgs& a);
void GeluBackward(const KernelArgs& a);
void Relu(const KernelArgs& a);
void ReluBackward(const KernelArgs& a);
void Swiglu(const KernelArgs& a);
void SwigluBackward(const KernelArgs& a);
void Tanh(const KernelArgs& a);
void TanhBackward(const KernelArgs& a);
// embedding.cc
void Embed(const KernelArgs& a);
void EmbedBackward(const KernelArgs& a);
void AddPositions(const KernelArgs& a);
void PositionsBackward(const KernelArgs& a);
void GatherRows(const KernelArgs& a);
void ScatterRows(const KernelArgs& a);
// dropout.cc
void DropoutForward(const KernelArgs& a);
void DropoutBackward(const KernelArgs& a);
// loss.cc
void CrossEntropyMax(const KernelArgs& a);
void CrossEntropySum(const KernelArgs& a);
void CrossEntropyGrad(const KernelArgs& a);
void MeanSquaredError(const KernelArgs& a);
// optimizer.cc
void SumOfSquares(const KernelArgs& a);
void Sgd(const KernelArgs& a);
void Adam(const KernelArgs& a);
void LambDirection(const KernelArgs& a);
void LambApply(const KernelArgs& a);
void LossScale(const KernelArgs& a);

// comm.cc: collectives over the members' operands, in rank order; each pair (in, out) is one member's.
struct MemberOperands {
  Operand in, out;
};
void AllReduce(std::span<const MemberOperands> members, bool maximum);
void AllGather(std::span<const MemberOperands> members);
void ReduceScatter(std::span<const MemberOperands> members, bool maximum);
void AllToAll(std::span<const MemberOperands> members);

}  // namespace orrery::interpreter
