// SPDX-License-Identifier: Apache-2.0
// Reads an op's shape off the plan and asks OpCost.
#include "model/sim/op_time.h"

namespace orrery::sim {
namespace {

using ir::Attr;
using ir::OpKind;

double ElementBytes(const ir::Program& program, ir::ViewId view) {
  const auto buffer =
      static_cast<std::size_t>(program.views[static_cast<std::size_t>(view)].buffer);
  return static_cast<double>(ir::DtypeBytes(program.buffers[buffer].dtype));
}

double OperandBytes(const ir::Program& program, const ir::Op& op) {
  double bytes = 0;
  for (const ir::ViewId view : op.in) bytes += ViewBytes(program, view);
  for (const ir::ViewId view : op.out) bytes += ViewBytes(program, view);
  return bytes;
}

}  // namespace

double ViewBytes(const ir::Program& program, ir::ViewId view) {
  return static_cast<double>(program.views[static_cast<std::size_t>(view)].elements) *
         ElementBytes(program, view);
}

OpTime::OpTime(const GpuProfile& gpu, const StackProfile& stack, Precision precision,
               bool several_nodes)
    : cost_(gpu, stack, precision),
      stack_(&stack),
      host_factor_(several_nodes ? 1.0 + stack.host_multi_node : 1.0) {}

double OpTime::Device(const ir::Program& program, const ir::Op& op, bool accumulates) const {
  switch (ir::Info(op.kind).op_class) {
    case ir::OpClass::kMatmul:
      return Matmul(program, op, accumulates);
    case ir::OpClass::kAttention:
      return Attention(program, op);
    case ir::OpClass::kMemory:
      return Memory(program, op);
    case ir::OpClass::kOptimizer:
      return Optimizer(program, op);
    case ir::OpClass::kCollective:
    case ir::OpClass::kPointToPoint:
    case ir::OpClass::kInput:
      return 0;
  }
  return 0;
}

double OpTime::Matmul(const ir::Program& program, const ir::Op& op, bool accumulates) const {
  const double m = op.attrs.Get(Attr::kM), n = op.attrs.Get(Attr::kN);
  const double time =
      cost_.Gemm({m, n, op.attrs.Get(Attr::kK), 1.0, ElementBytes(program, op.in.front())});
  const bool adds = accumulates && op.attrs.Get(Attr::kAcc) != 0;
  return adds ? time + cost_.Stream(m * n * stack_->accumulation_traffic) : time;
}

double OpTime::Attention(const ir::Program& program, const ir::Op& op) const {
  AttentionShape shape;
  const bool cross = op.kind == OpKind::kCrossAttn || op.kind == OpKind::kCrossAttnBwd;
  shape.batch = op.attrs.Get(Attr::kBatch);
  shape.heads = op.attrs.Get(Attr::kNh);
  shape.seq_q = op.attrs.Get(Attr::kSeq);
  shape.seq_kv = cross ? op.attrs.Get(Attr::kSeqKv) : shape.seq_q;
  shape.head_dim = op.attrs.Get(Attr::kHd);
  shape.element_bytes = ElementBytes(program, op.in.front());
  shape.causal = !cross && op.attrs.Get(Attr::kCausal) != 0;
  shape.flash = op.attrs.Get(Attr::kFlash) != 0;
  shape.backward = op.kind == OpKind::kAttnBwd || op.kind == OpKind::kCrossAttnBwd;
  return cost_.Attention(shape);
}

double OpTime::Memory(const ir::Program& program, const ir::Op& op) const {
  const double logits = op.attrs.Get(Attr::kRows) * op.attrs.Get(Attr::kVl);
  switch (op.kind) {
    case OpKind::kXentMax:
    case OpKind::kXentSum:
      return cost_.Loss({logits, 1.0});
    case OpKind::kXentGrad:
      return cost_.Loss({logits, 2.0});
    // Row look-ups touch rows, not the whole table.
    case OpKind::kEmbed:
    case OpKind::kAddPos:
      return cost_.Traffic({2.0 * ViewBytes(program, op.out.front())});
    case OpKind::kEmbedBwd:
    case OpKind::kPosBwd:
      return cost_.Traffic({3.0 * ViewBytes(program, op.in.back())});
    default:
      return cost_.Traffic({OperandBytes(program, op)});
  }
}

double OpTime::Optimizer(const ir::Program& program, const ir::Op& op) const {
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

double OpTime::Host(const ir::Op& op) const {
  const ir::OpClass op_class = ir::Info(op.kind).op_class;
  if (op_class == ir::OpClass::kInput) return 0;
  const bool whole = op.kind == OpKind::kAllReduce;
  if (op_class == ir::OpClass::kCollective)
    return (whole ? 1.0 : 0.5) * stack_->host_collective.value * host_factor_;
  switch (op.phase) {
    case ir::Phase::kForward:
    case ir::Phase::kRecompute:
      return stack_->host_forward_op.value * host_factor_;
    case ir::Phase::kBackward:
    case ir::Phase::kWeightGrad:
      return stack_->host_backward_op.value * host_factor_;
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
