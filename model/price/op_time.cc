// SPDX-License-Identifier: Apache-2.0
// Reads an op's shape off the plan and asks OpCost.
#include "model/price/op_time.h"

#include "model/price/layer_table.h"
#include "model/price/op_shape.h"

namespace orrery::sim {

using ir::Attr;
using ir::OpKind;

OpTime::OpTime(const GpuProfile& gpu, const StackProfile& stack, Precision precision, int64_t nodes,
               double layer_factor)
    : cost_(gpu, stack, precision),
      stack_(&stack),
      host_factor_(nodes > 1 ? 1.0 + stack.host_multi_node : 1.0),
      pace_(StragglerFactor(stack, nodes)),
      layer_factor_(layer_factor) {}

double OpTime::Device(const ir::Program& program, const ir::Op& op, bool accumulates) const {
  if (ir::Info(op.kind).op_class == ir::OpClass::kOptimizer) return Optimizer(program, op);
  return pace_ * OfLayers(program, op, accumulates);
}

double OpTime::OfLayers(const ir::Program& program, const ir::Op& op, bool accumulates) const {
  switch (ir::Info(op.kind).op_class) {
    case ir::OpClass::kMatmul:
      return Matmul(program, op, accumulates);
    case ir::OpClass::kAttention:
      return Scale(op) * cost_.Attention(AttentionShapeOf(program, op));
    case ir::OpClass::kMemory:
      return Scale(op) * Memory(program, op);
    case ir::OpClass::kOptimizer:
    case ir::OpClass::kCollective:
    case ir::OpClass::kPointToPoint:
    case ir::OpClass::kInput:
      return 0;
  }
  return 0;
}

double OpTime::Matmul(const ir::Program& program, const ir::Op& op, bool accumulates) const {
  const GemmShape shape = MatmulShape(program, op);
  const double time = Scale(op) * cost_.Gemm(shape);
  const bool adds = accumulates && op.attrs.Get(Attr::kAcc) != 0;
  return adds ? time + cost_.Stream(shape.m * shape.n * stack_->accumulation_traffic) : time;
}

double OpTime::Memory(const ir::Program& program, const ir::Op& op) const {
  const MemoryShape shape = MemoryShapeOf(program, op);
  const double time = std::holds_alternative<LossShape>(shape)
                          ? cost_.Loss(std::get<LossShape>(shape))
                          : cost_.Traffic(std::get<TrafficShape>(shape));
  return time + Around(op);
}

// What software adds once per micro-batch around the loss and the embedding.
double OpTime::Around(const ir::Op& op) const {
  switch (op.kind) {
    case OpKind::kXentGrad:
    case OpKind::kMse:
      return stack_->head_fixed.value;
    case OpKind::kEmbed:
      return op.attrs.Get(Attr::kAcc) == 0 ? stack_->embedding_fixed.value : 0.0;
    default:
      return 0;
  }
}

double OpTime::Optimizer(const ir::Program& program, const ir::Op& op) const {
  if (const auto measured = cost_.Measured(ir::Info(op.kind).name, OperandBytes(program, op)))
    return *measured;
  const double elements = op.attrs.Get(Attr::kElements);
  switch (op.kind) {
    case OpKind::kSgd:
      return cost_.Stream(elements * stack_->sgd_traffic);
    case OpKind::kAdam:
      return cost_.Stream(elements * stack_->adam_traffic);
    case OpKind::kLambDir:
      return cost_.Stream(elements * stack_->lamb_traffic);
    case OpKind::kLambApply:
    case OpKind::kLossScale:
      return 0;
    default:
      return cost_.Traffic({OperandBytes(program, op)});
  }
}

double OpTime::Host(const ir::Program& program, const ir::Op& op) const {
  const ir::OpClass op_class = ir::Info(op.kind).op_class;
  if (op_class == ir::OpClass::kInput) return 0;
  const bool whole = op.kind == OpKind::kAllReduce;
  if (op_class == ir::OpClass::kCollective)
    return (whole ? 1.0 : 0.5) * stack_->host_collective.value * host_factor_ * Scale(op);
  const double unfused = op_class == ir::OpClass::kAttention
                             ? cost_.UnfusedSoftmaxHost(AttentionShapeOf(program, op))
                             : 0.0;
  switch (op.phase) {
    case ir::Phase::kForward:
    case ir::Phase::kRecompute:
      return (stack_->host_forward_op.value + unfused) * host_factor_ * Scale(op);
    case ir::Phase::kBackward:
    case ir::Phase::kWeightGrad:
      return (stack_->host_backward_op.value + unfused) * host_factor_ * Scale(op);
    case ir::Phase::kInput:
    case ir::Phase::kParamGather:
    case ir::Phase::kGradReduce:
    case ir::Phase::kGradNorm:
    case ir::Phase::kOptimizer:
    case ir::Phase::kPipeline:
    case ir::Phase::kSetup:
      return 0;
  }
  return 0;
}

}  // namespace orrery::sim
