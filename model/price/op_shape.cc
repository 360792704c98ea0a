// SPDX-License-Identifier: Apache-2.0
// Reads shapes of matrix products, attention and memory-bound ops off a plan.
#include "model/price/op_shape.h"

#include <algorithm>
#include <cmath>

#include "model/plan/ir/usage.h"

namespace orrery {

using ir::Attr;
using ir::OpKind;

double ElementBytes(const ir::Program& program, ir::ViewId view) {
  const auto buffer =
      static_cast<std::size_t>(program.views[static_cast<std::size_t>(view)].buffer);
  return static_cast<double>(ir::DtypeBytes(program.buffers[buffer].dtype));
}

double ViewBytes(const ir::Program& program, ir::ViewId view) {
  return static_cast<double>(program.views[static_cast<std::size_t>(view)].elements) *
         ElementBytes(program, view);
}

double OperandBytes(const ir::Program& program, const ir::Op& op) {
  double bytes = 0;
  for (const ir::ViewId view : op.in) bytes += ViewBytes(program, view);
  for (const ir::ViewId view : op.out) bytes += ViewBytes(program, view);
  return bytes;
}

double RowBytes(std::initializer_list<double> elements, double element_bytes) {
  double bytes = 16;
  for (const double row : elements) {
    while (std::fmod(row * element_bytes, bytes) != 0 && bytes > 1) bytes /= 2;
  }
  return bytes;
}

GemmShape MatmulShape(const ir::Program& program, const ir::Op& op) {
  GemmShape shape{op.attrs.Get(Attr::kM), op.attrs.Get(Attr::kN), op.attrs.Get(Attr::kK), 1.0,
                  ElementBytes(program, op.in.front())};
  shape.product = static_cast<ProductType>(op.attrs.Int(Attr::kProduct));
  const bool ta = op.attrs.Get(Attr::kTransA) != 0, tb = op.attrs.Get(Attr::kTransB) != 0;
  shape.row_bytes =
      RowBytes({ta ? shape.m : shape.k, tb ? shape.k : shape.n, shape.n}, shape.element_bytes);
  if (shape.product == ProductType::kPlain) return shape;
  if (shape.product == ProductType::kNvfp4) shape.element_bytes /= 2;  // two numbers per element
  shape.result_bytes = ElementBytes(program, op.out.front());
  return shape;
}

namespace {

// Keys that the busiest rank's queries see, as the length of a sequence with or without a causal mask. Zigzag: a step sees
// half of the keys, or half of the queries see all; all parts at once: as many pairs as the mean of the ranks.
void SetPartKeys(const ir::Attrs& a, AttentionShape* shape) {
  const double keys = a.Get(Attr::kSeqKv), step = a.Get(Attr::kStep);
  const bool zigzag = a.Get(Attr::kZigzag) != 0;
  shape->seq_kv = keys;
  if (!shape->causal || step == 0) return;
  if (step < 0) {
    if (!zigzag) shape->seq_kv = 2 * keys - shape->seq_q;
    return;
  }
  shape->causal = false;
  if (zigzag) shape->seq_kv = keys / 2;
}

}  // namespace

AttentionShape AttentionShapeOf(const ir::Program& program, const ir::Op& op) {
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
  const bool part = op.kind == OpKind::kPartAttn || op.kind == OpKind::kPartAttnBwd;
  if (part) SetPartKeys(op.attrs, &shape);
  // Fused kernels skip tiles outside of a window: a causal sequence of so many keys has as many pairs.
  const double window = op.attrs.Get(Attr::kWindow), keys = shape.seq_kv;
  if (shape.flash && window > 0 && window < keys) shape.seq_kv = window * (2 - window / keys);
  shape.backward = op.kind == OpKind::kAttnBwd || op.kind == OpKind::kCrossAttnBwd ||
                   op.kind == OpKind::kPartAttnBwd;
  return shape;
}

namespace {

// Bytes per element of a chain over those of its operands read and written once, in 16 bits: calib/DERIVATIONS.md, section
// 2.6. `plain`: everything in 16 bits; `autocast`: norms and residuals in fp32, products in 16 bits.
TrafficShape Chained(const ir::Op& op, TrafficShape shape) {
  // The gradient of a norm may add that of the residual.
  const double sum = op.attrs.Get(Attr::kAdd) != 0 ? 1 : 0;
  const double norm = 4, norm_bwd = 6 + 2 * sum, norm_wgrad = 4, residual = 6;
  switch (op.kind) {
    case OpKind::kRmsNorm:
      shape.plain.eager_norm = 40 / norm;
      shape.autocast = {2 / norm, 14 / norm, 34 / norm};
      break;
    case OpKind::kLayerNorm:
      shape.autocast = {2 / norm, 14 / norm, 14 / norm};
      break;
    case OpKind::kQkNorm:
      shape.plain.eager_norm = shape.autocast.eager_norm = 40 / norm;
      break;
    case OpKind::kRmsNormBwd:
      shape.plain.eager_norm = 68.0 / 6;
      shape.autocast = {(12 + 4 * sum) / norm_bwd, (24 + 12 * sum) / norm_bwd,
                        (68 + 12 * sum) / norm_bwd};
      break;
    case OpKind::kLayerNormBwd:
      shape.autocast = {(12 + 4 * sum) / norm_bwd, (24 + 12 * sum) / norm_bwd,
                        (24 + 12 * sum) / norm_bwd};
      break;
    case OpKind::kQkNormBwd:
      shape.plain.eager_norm = shape.autocast.eager_norm = 68.0 / 6;
      break;
    case OpKind::kRmsNormWgrad:
      shape.plain.eager_norm = 16 / norm_wgrad;
      shape.autocast = {6 / norm_wgrad, 8 / norm_wgrad, 16 / norm_wgrad};
      break;
    case OpKind::kLayerNormWgrad:
      shape.autocast = {6 / norm_wgrad, 8 / norm_wgrad, 8 / norm_wgrad};
      break;
    case OpKind::kQkNormWgrad:
      shape.plain.eager_norm = shape.autocast.eager_norm = 16 / norm_wgrad;
      break;
    case OpKind::kBiasResidual:
      shape.autocast = {10 / residual, 10 / residual, 10 / residual};
      break;
    case OpKind::kRope:
      shape.plain = {1, 20.0 / 4, 20.0 / 4};
      shape.autocast = {1, 48.0 / 4, 48.0 / 4};
      break;
    case OpKind::kSwiglu:
      shape.plain = shape.autocast = {1, 10.0 / 6, 10.0 / 6};
      shape.gate = true;
      break;
    case OpKind::kSwigluBwd:
      shape.plain = {1, 18.0 / 10, 18.0 / 10};
      shape.autocast = {1, 26.0 / 10, 26.0 / 10};
      shape.gate = true;
      break;
    default:
      break;
  }
  return shape;
}

}  // namespace

MemoryShape MemoryShapeOf(const ir::Program& program, const ir::Op& op) {
  const char* kernel = ir::Info(op.kind).name;
  const double logits = op.attrs.Get(Attr::kRows) * op.attrs.Get(Attr::kVl);
  switch (op.kind) {
    case OpKind::kXentMax:
    case OpKind::kXentSum:
      return LossShape{logits, 1.0, kernel};
    case OpKind::kXentGrad:
      return LossShape{logits, 2.0, kernel};
    case OpKind::kEmbed:
    case OpKind::kAddPos:
    case OpKind::kSlice:
      return TrafficShape{2.0 * ViewBytes(program, op.out.front()), kernel};
    // Columns of a wider tensor alone: read, and written back.
    case OpKind::kAdd:
      if (op.attrs.Get(Attr::kColumns) < 0) return Chained(op, {OperandBytes(program, op), kernel});
      return TrafficShape{3.0 * ViewBytes(program, op.in[1]), kernel};
    // Queries and keys alone: read and written; backward reads both and writes one.
    case OpKind::kQkNorm:
      return Chained(op, {2.0 * ViewBytes(program, op.out[1]), kernel});
    case OpKind::kQkNormBwd:
      return Chained(op, {3.0 * ViewBytes(program, op.in[1]), kernel});
    case OpKind::kQkNormWgrad:
      return Chained(op, {2.0 * ViewBytes(program, op.in[2]), kernel});
    // Keys and values alone: read and written.
    case OpKind::kKeyValues:
      return TrafficShape{
          2.0 * ViewBytes(program, op.attrs.Get(Attr::kInverse) != 0 ? op.in[1] : op.out.front()),
          kernel};
    case OpKind::kQuantize: {
      TrafficShape cast{OperandBytes(program, op), kernel};
      cast.cast = true;
      const bool both = op.attrs.Get(Attr::kAlong) != 0 && op.attrs.Get(Attr::kAcross) != 0;
      const double read = ViewBytes(program, op.in.front());
      cast.transposes = op.in.size() == 1 && op.attrs.Int(Attr::kBlock) == 0 &&
                        op.attrs.Int(Attr::kFrom) == static_cast<int>(ir::CastFrom::kWeight);
      cast.one_way = both ? read + (cast.bytes - read) / 2 : cast.bytes;
      if (op.attrs.Int(Attr::kFrom) != static_cast<int>(ir::CastFrom::kNorm)) return cast;
      // The norm writes the casts instead of its output in 16 bits.
      cast.fused_with_norm = static_cast<ProductType>(op.attrs.Int(Attr::kProduct));
      cast.fused_bytes = std::max(0.0, cast.bytes - 2 * ViewBytes(program, op.in.front()));
      return cast;
    }
    case OpKind::kUnitAmax:
    case OpKind::kUnitCast:
    case OpKind::kAmax: {
      TrafficShape scan{OperandBytes(program, op), kernel};
      scan.cast = true;
      return scan;
    }
    case OpKind::kEmbedBwd:
    case OpKind::kPosBwd:
      return TrafficShape{3.0 * ViewBytes(program, op.in.back()), kernel};
    default:
      return Chained(op, {OperandBytes(program, op), kernel});
  }
}

namespace {

Pass PassOf(ir::Phase phase) {
  switch (phase) {
    case ir::Phase::kForward:
    case ir::Phase::kRecompute:
      return Pass::kForward;
    case ir::Phase::kBackward:
    case ir::Phase::kWeightGrad:
      return Pass::kBackward;
    case ir::Phase::kInput:
    case ir::Phase::kParamGather:
    case ir::Phase::kGradReduce:
    case ir::Phase::kGradNorm:
    case ir::Phase::kOptimizer:
    case ir::Phase::kPipeline:
    case ir::Phase::kSetup:
      return Pass::kNone;
  }
  return Pass::kNone;
}

Surcharge SurchargeOf(const ir::Op& op) {
  switch (op.kind) {
    case OpKind::kXentGrad:
      return Surcharge::kLoss;
    case OpKind::kEmbed:
      return op.attrs.Get(Attr::kAcc) == 0 ? Surcharge::kEmbedding : Surcharge::kNothing;
    default:
      return Surcharge::kNothing;
  }
}

const ir::Buffer& BufferOf(const ir::Program& program, ir::ViewId view) {
  const auto buffer =
      static_cast<std::size_t>(program.views[static_cast<std::size_t>(view)].buffer);
  return program.buffers[buffer];
}

bool IsOf(const ir::Program& program, ir::ViewId view, ir::BufferClass cls) {
  return BufferOf(program, view).cls == cls;
}

// Hooks run around modules: what reads weights, but for a bias that is added apart from its product.
void MarkModule(const ir::Program& program, const ir::Op& op, ShapedOp* shaped) {
  if (op.kind == OpKind::kBiasResidual || op.kind == OpKind::kUnpack) return;
  shaped->gathered = op.attrs.Get(Attr::kHooked) != 0;
  const bool plain = op.kind == OpKind::kMatmul && op.attrs.Get(Attr::kProduct) == 0;
  for (const ir::ViewId view : op.in) {
    const bool gathered = IsOf(program, view, ir::BufferClass::kGathered);
    // A plain product of what no gather has written reads an unpacked copy.
    const bool own = plain && BufferOf(program, view).unit < 0;
    shaped->gathered = shaped->gathered || (gathered && !own);
    shaped->module = shaped->module || gathered || IsOf(program, view, ir::BufferClass::kParam);
  }
}

CollectiveShape CollectiveOf(const ir::Program& program, const ir::Op& op) {
  switch (op.kind) {
    case OpKind::kAllGather:
      return {Collective::kAllGather, ViewBytes(program, op.out.front())};
    case OpKind::kAllToAll:
      return {Collective::kAllToAll, ViewBytes(program, op.out.front())};
    case OpKind::kReduceScatter:
      return {Collective::kReduceScatter, ViewBytes(program, op.in.front())};
    default:
      return {Collective::kAllReduce, ViewBytes(program, op.out.front())};
  }
}

UpdateShape UpdateOf(const ir::Plan& plan, const ir::Program& program, const ir::Op& op) {
  UpdateShape update{op.kind,
                     op.attrs.Get(Attr::kElements),
                     OperandBytes(program, op),
                     op.kind == OpKind::kAdam ? ElementBytes(program, op.in[2]) : 4,
                     ElementBytes(program, op.in[1]),
                     ir::OnHost(program, op)};
  if (op.kind != OpKind::kMuon) return update;
  const int32_t unit = BufferOf(program, op.in[1]).unit;
  if (unit < 0) return update;
  update.matrices = ir::MatricesOf(program.units[static_cast<std::size_t>(unit)], plan.params);
  const double work = ir::NewtonSchulzWork(update.matrices);
  if (work > 0) update.share = op.attrs.Get(Attr::kWork) / work;
  return update;
}

}  // namespace

std::optional<ShapedOp> ShapeOf(const ir::Plan& plan, const ir::Program& program,
                                const ir::Op& op) {
  ShapedOp shaped;
  shaped.pass = PassOf(op.phase);
  shaped.surcharge = SurchargeOf(op);
  if (shaped.pass != Pass::kNone) MarkModule(program, op, &shaped);
  shaped.weight_gradient = op.phase == ir::Phase::kWeightGrad;
  switch (ir::Info(op.kind).op_class) {
    case ir::OpClass::kMatmul:
      shaped.shape = MatmulShape(program, op);
      if (op.attrs.Get(Attr::kAcc) != 0 && op.phase == ir::Phase::kWeightGrad) {
        shaped.weight_gradient = true;
        shaped.accumulated = op.attrs.Get(Attr::kM) * op.attrs.Get(Attr::kN);
      }
      return shaped;
    case ir::OpClass::kAttention:
      shaped.shape = AttentionShapeOf(program, op);
      return shaped;
    case ir::OpClass::kMemory:
      // The cast behind it finds the magnitude on the way (TransformerEngine's cast kernels).
      if (op.kind == OpKind::kAmax && op.attrs.Get(Attr::kAcc) != 0) return std::nullopt;
      if (op.kind == OpKind::kUnitAmax && op.attrs.Get(Attr::kLength) > 0) return std::nullopt;
      std::visit([&](const auto& shape) { shaped.shape = shape; }, MemoryShapeOf(program, op));
      return shaped;
    case ir::OpClass::kCollective:
      shaped.shape = CollectiveOf(program, op);
      return shaped;
    case ir::OpClass::kOptimizer:
      shaped.shape = UpdateOf(plan, program, op);
      return shaped;
    case ir::OpClass::kHostLink:
      shaped.shape = HostCopyShape{ViewBytes(program, op.out.front())};
      return shaped;
    case ir::OpClass::kPointToPoint:
      if (shaped.pass == Pass::kNone || op.kind != OpKind::kSend) return std::nullopt;
      shaped.shape = HopShape{ViewBytes(program, op.in.front())};
      return shaped;
    case ir::OpClass::kInput:
      return std::nullopt;
  }
  return std::nullopt;
}

std::optional<MeasuredShape> MeasuredShapeOf(const ir::Program& program, const ir::Op& op) {
  switch (ir::Info(op.kind).op_class) {
    case ir::OpClass::kMatmul: {
      const GemmShape s = MatmulShape(program, op);
      return MeasuredShape{"mm", {s.m, s.n, s.k, 1}};
    }
    case ir::OpClass::kAttention: {
      const AttentionShape s = AttentionShapeOf(program, op);
      return MeasuredShape{s.kernel(), {s.batch * s.heads, s.seq_q, s.seq_kv, s.head_dim}};
    }
    case ir::OpClass::kMemory: {
      const MemoryShape shape = MemoryShapeOf(program, op);
      if (const auto* loss = std::get_if<LossShape>(&shape))
        return MeasuredShape{loss->kernel, {loss->logits, 1, 1, 1}};
      return MeasuredShape{ir::Info(op.kind).name, {std::get<TrafficShape>(shape).bytes, 1, 1, 1}};
    }
    case ir::OpClass::kOptimizer:
      return MeasuredShape{ir::Info(op.kind).name, {OperandBytes(program, op), 1, 1, 1}};
    case ir::OpClass::kCollective:
    case ir::OpClass::kPointToPoint:
    case ir::OpClass::kInput:
    case ir::OpClass::kHostLink:
      return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace orrery
