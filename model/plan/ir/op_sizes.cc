// SPDX-License-Identifier: Apache-2.0
// Sizes of operands, op by op.
#include "model/plan/ir/op_sizes.h"

#include <algorithm>

#include "model/plan/ir/packed.h"
#include "model/plan/ir/unit_codes.h"

namespace orrery::ir {
namespace {

struct AttrReader {
  const Attrs& attrs;
  int64_t operator()(Attr key) const { return attrs.Int(key); }
};

// Optimizer ops: out W (, master copy) followed by `state` tensors of n elements; inputs g, W,
// state, then scalars.
Sizes OptimizerSizes(const Op& op, int64_t n, size_t tensors_in) {
  Sizes sizes;
  sizes.out.assign(op.out.size(), n);
  sizes.in.assign(op.in.size(), 1);
  std::fill_n(sizes.in.begin(), std::min(tensors_in, sizes.in.size()), n);
  return sizes;
}

bool Drops(const Op& op) { return op.attrs.Get(Attr::kRate) > 0; }

// Mask and dropped probabilities stand behind the materialised probabilities, in forward's outputs
// and backward's inputs.
void AddDropped(const Op& op, bool forward, int64_t saved, Sizes& sizes) {
  if (!Drops(op) || op.attrs.Get(Attr::kFlash) != 0) return;
  auto& list = forward ? sizes.out : sizes.in;
  list.insert(list.end(), {saved, saved});
}

Sizes SelfAttentionSizes(const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t rows = a(Attr::kBatch) * a(Attr::kSeq);
  const int64_t ctx = rows * a(Attr::kNh) * a(Attr::kHd);
  const int64_t qkv = rows * (a(Attr::kNh) + 2 * a(Attr::kKv)) * a(Attr::kHd);
  const int64_t saved = rows * a(Attr::kNh) * (a(Attr::kFlash) ? 1 : a(Attr::kSeq));
  const int64_t bias = a(Attr::kBuckets) * a(Attr::kNh);
  Sizes sizes;
  if (op.kind == OpKind::kAttn) {
    sizes = {{ctx, saved}, {qkv}};
    AddDropped(op, true, saved, sizes);
    if (bias > 0) sizes.in.push_back(bias);
  } else {
    sizes = {{qkv}, {ctx, qkv, ctx, saved}};
    AddDropped(op, false, saved, sizes);
    if (bias > 0) sizes.out.push_back(bias), sizes.in.insert(sizes.in.end(), {bias, bias});
  }
  return sizes;
}

Sizes CrossAttentionSizes(const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t rows = a(Attr::kBatch) * a(Attr::kSeq);
  const int64_t q = rows * a(Attr::kNh) * a(Attr::kHd);
  const int64_t kv = a(Attr::kBatch) * a(Attr::kSeqKv) * 2 * a(Attr::kNh) * a(Attr::kHd);
  const int64_t saved = rows * a(Attr::kNh) * (a(Attr::kFlash) ? 1 : a(Attr::kSeqKv));
  const bool forward = op.kind == OpKind::kCrossAttn;
  Sizes sizes = forward ? Sizes{{q, saved}, {q, kv}} : Sizes{{q, kv}, {q, q, kv, q, saved}};
  AddDropped(op, forward, saved, sizes);
  return sizes;
}

Sizes PartAttentionSizes(const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t rows = a(Attr::kBatch) * a(Attr::kSeq), keys = a(Attr::kBatch) * a(Attr::kSeqKv);
  const int64_t ctx = rows * a(Attr::kNh) * a(Attr::kHd), lse = rows * a(Attr::kNh);
  const int64_t qkv = rows * (a(Attr::kNh) + 2 * a(Attr::kKv)) * a(Attr::kHd);
  const int64_t kv = keys * 2 * a(Attr::kKv) * a(Attr::kHd);
  Sizes sizes = op.kind == OpKind::kPartAttn ? Sizes{{ctx, lse}, {qkv, kv}}
                                             : Sizes{{kv, qkv}, {ctx, qkv, kv, ctx, lse}};
  if (a(Attr::kAcc) == 0) return sizes;
  if (op.kind == OpKind::kPartAttn) {
    sizes.in.insert(sizes.in.end(), {ctx, lse});
  } else {
    sizes.in.push_back(qkv);
  }
  return sizes;
}

Sizes KeyValueSizes(const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t head = a(Attr::kRows) * a(Attr::kHd), kv = head * 2 * a(Attr::kKv);
  const int64_t qkv = head * a(Attr::kNh) + kv;
  return a(Attr::kInverse) ? Sizes{{qkv}, {qkv, kv}} : Sizes{{kv}, {qkv}};
}

Sizes NormSizes(const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t x = a(Attr::kRows) * a(Attr::kH), h = a(Attr::kH), rows = a(Attr::kRows);
  Sizes sizes;
  switch (op.kind) {
    case OpKind::kLayerNorm:
      return {{x, 2 * rows}, {x, h, h}};
    case OpKind::kRmsNorm:
      return {{x, rows}, {x, h}};
    case OpKind::kLayerNormBwd:
      sizes = {{x}, {x, x, 2 * rows, h}};
      break;
    case OpKind::kRmsNormBwd:
      sizes = {{x}, {x, x, rows, h}};
      break;
    case OpKind::kLayerNormWgrad:
      return {{h, h}, {h, h, x, x, 2 * rows}};
    default:
      return {{h}, {h, x, x, rows}};  // kRmsNormWgrad
  }
  if (a(Attr::kAdd)) sizes.in.push_back(x);
  return sizes;
}

Sizes QkNormSizes(const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t rows = a(Attr::kRows), heads = a(Attr::kNh) + a(Attr::kKv), hd = a(Attr::kHd);
  const int64_t qkv = rows * (heads + a(Attr::kKv)) * hd, raw = rows * heads * hd;
  const int64_t stats = rows * (a(Attr::kWhole) ? 2 : heads);
  const int64_t gains = (a(Attr::kWhole) ? heads : 2) * hd;
  switch (op.kind) {
    case OpKind::kQkNorm:
      return {{qkv, raw, stats}, {qkv, gains}};
    case OpKind::kQkNormBwd:
      return {{qkv}, {qkv, raw, stats, gains}};
    default:
      return {{gains}, {gains, qkv, raw, stats}};  // kQkNormWgrad
  }
}

Sizes EmbeddingSizes(const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t rows = a(Attr::kRows), x = rows * a(Attr::kH), table = a(Attr::kVl) * a(Attr::kH);
  switch (op.kind) {
    case OpKind::kGatherRows:
      return {{x}, {kAny, rows}};
    case OpKind::kScatterRows:
      return {{a(Attr::kElements) * a(Attr::kH)}, {x, rows}};
    case OpKind::kEmbed:
      return a(Attr::kAcc) ? Sizes{{x}, {rows, table, x}} : Sizes{{x}, {rows, table}};
    case OpKind::kEmbedBwd:
      return {{table}, {table, rows, x}};
    case OpKind::kAddPos:
      return {{x}, {x, kAny}};
    default:
      return {{kAny}, {kAny, x}};  // kPosBwd
  }
}

Sizes LossSizes(const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t rows = a(Attr::kRows), logits = rows * a(Attr::kVl), n = a(Attr::kElements);
  Sizes sizes;
  switch (op.kind) {
    case OpKind::kXentMax:
      return {{rows}, {logits}};
    case OpKind::kXentSum:
      return {{2 * rows}, {logits, rows, rows}};
    case OpKind::kXentGrad:
      sizes = {{logits, 1}, {logits, rows, 2 * rows, rows, 1}};
      break;
    default:
      sizes = {{n, 1}, {n, n, 1}};  // kMse
  }
  if (op.in.size() > sizes.in.size()) sizes.in.push_back(1);  // loss scale
  return sizes;
}

// Elements of a view that hold n numbers: half as many where each holds two.
int64_t Stored(const Program& program, ViewId view, int64_t n) {
  return program.buffers[program.views[view].buffer].dtype == Dtype::kE2m1x2 ? n / 2 : n;
}

// Scales of rows x width numbers in blocks of `down` rows and `along` columns.
int64_t Blocks(int64_t rows, int64_t width, int64_t down, int64_t along) {
  if (down <= 0 || along <= 0 || rows % down != 0 || width % along != 0) return 0;
  return rows / down * (width / along);
}

Sizes MatmulSizes(const Program& program, const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t m = a(Attr::kM), n = a(Attr::kN), k = a(Attr::kK);
  Sizes sizes{{m * n}, {Stored(program, op.in[0], m * k), Stored(program, op.in[1], n * k)}};
  if (a(Attr::kBias)) sizes.in.push_back(n);
  if (a(Attr::kAcc)) sizes.in.push_back(m * n);
  if (a(Attr::kProduct) == 0) return sizes;
  const int64_t block = a(Attr::kBlock);
  sizes.in.push_back(block > 0 ? Blocks(m, k, 1, block) : 1);
  sizes.in.push_back(block > 0 ? Blocks(n, k, a(Attr::kBlock2), block) : 1);
  if (op.in.size() > sizes.in.size()) sizes.in.insert(sizes.in.end(), {1, 1});  // At, Bt
  return sizes;
}

Sizes QuantizeSizes(const Program& program, const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t rows = a(Attr::kRows), h = a(Attr::kH), n = rows * h;
  const int64_t block = a(Attr::kBlock), share = a(Attr::kBlock2);
  Sizes sizes{{}, {n}};
  const auto cast = [&](int64_t scales) {
    const std::size_t at = std::min(sizes.out.size(), op.out.size() - 1);
    sizes.out.push_back(Stored(program, op.out[at], n));
    if (block > 0) sizes.out.push_back(scales);
  };
  if (a(Attr::kAlong)) cast(Blocks(rows, h, share, block));
  if (a(Attr::kAcross)) cast(Blocks(rows, h, block, share));
  if (op.in.size() > 1) sizes.in.push_back(a(Attr::kHadamard) ? 2 : 1);
  return sizes;
}

Sizes AmaxSizes(const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t n = a(Attr::kElements), history = n * a(Attr::kLength);
  switch (op.kind) {
    case OpKind::kAmax:
      if (a(Attr::kHadamard)) return {{2}, {n}};
      return a(Attr::kAcc) ? Sizes{{1}, {n, 1}} : Sizes{{1}, {n}};
    case OpKind::kAmaxRoll:
      return {{history}, {history, n}};
    default:
      return {{n}, {history > 0 ? history : n}};  // kScaleUpdate
  }
}

Sizes UnpackSizes(const Plan& plan, const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t rows = a(Attr::kRows), width = a(Attr::kH), axis = a(Attr::kAxis);
  const auto packing = static_cast<Packed>(a(Attr::kFmt));
  const bool cut = axis >= 0 && axis < static_cast<int64_t>(plan.mesh.axes.size());
  const int64_t parts = cut ? plan.mesh.axes[static_cast<size_t>(axis)].size : 1;
  const bool across = a(Attr::kAcross) != 0;
  const auto elements = [&](Init part, const std::vector<int64_t>& of) {
    int64_t n = 1;
    const std::vector<int64_t> shape = PackedShape(packing, part, of);
    for (const int64_t extent : shape) n *= extent;
    return shape.empty() ? 0 : n;
  };
  const std::vector<int64_t> piece{rows, width},
      whole{across ? rows : rows * parts, across ? width * parts : width};
  Sizes sizes{{rows * width}, {elements(Init::kCodes, piece), elements(Init::kScales, piece)}};
  if (packing == Packed::kNf4) sizes.in.push_back(elements(Init::kGroups, whole));
  return sizes;
}

// Scales of the unit that the operand belongs to.
Sizes UnitCodeSizes(const Plan& plan, const Program& program, const Op& op) {
  const AttrReader a{op.attrs};
  const int32_t unit = program.buffers[program.views[op.in.front()].buffer].unit;
  const int64_t n = a(Attr::kElements);
  const int64_t scales =
      unit < 0 ? 0 : ScalesOf(CodedSegments(program.units[unit], plan.params, a(Attr::kBlock)));
  return op.kind == OpKind::kUnitAmax ? Sizes{{scales}, {n}} : Sizes{{n}, {n, scales}};
}

Sizes CollectiveSizes(const Plan& plan, const Program& program, const Op& op) {
  const int64_t x = program.views[op.in[0]].elements;
  const int64_t members = GroupSize(plan.mesh, plan.groups[op.group]);
  switch (op.kind) {
    case OpKind::kAllGather:
      return {{x * members}, {x}};
    case OpKind::kReduceScatter:
      return {{x % members == 0 ? x / members : 0}, {x}};
    case OpKind::kAllToAll:
      return {{x % members == 0 ? x : 0}, {x}};
    default:
      return {{x}, {x}};  // kAllReduce
  }
}

// An axis that the mesh lacks has no parts.
Sizes SliceSizes(const Plan& plan, const Op& op) {
  const int64_t n = op.attrs.Int(Attr::kElements), axis = op.attrs.Int(Attr::kAxis);
  if (op.attrs.Int(Attr::kColumns) >= 0)
    return {{n}, {op.attrs.Int(Attr::kRows) * op.attrs.Int(Attr::kH)}};
  const bool known = axis >= 0 && axis < static_cast<int64_t>(plan.mesh.axes.size());
  return {{n}, {known ? n * plan.mesh.axes[static_cast<size_t>(axis)].size : 0}};
}

}  // namespace

Sizes ExpectedSizes(const Plan& plan, const Program& program, const Op& op) {
  const AttrReader a{op.attrs};
  const int64_t x = a(Attr::kRows) * a(Attr::kH), n = a(Attr::kElements);
  switch (op.kind) {
    case OpKind::kLoad:
      return {{a(Attr::kSeq) * a(Attr::kBatch) * std::max<int64_t>(1, a(Attr::kH))}, {}};
    case OpKind::kZero:
      return {{kAny}, {}};
    case OpKind::kAdd: {
      if (a(Attr::kColumns) >= 0) return {{x}, {x, n}};
      const int64_t sum = n > 0 ? n : program.views[op.out[0]].elements;
      return {{sum}, {sum, sum}};
    }
    case OpKind::kSlice:
      return SliceSizes(plan, op);
    case OpKind::kCopy: {
      const int64_t copied = program.views[op.in[0]].elements;
      return {{copied}, {copied}};
    }
    case OpKind::kGatherRows:
    case OpKind::kScatterRows:
    case OpKind::kEmbed:
    case OpKind::kEmbedBwd:
    case OpKind::kAddPos:
    case OpKind::kPosBwd:
      return EmbeddingSizes(op);
    case OpKind::kRope: {
      const int64_t head = a(Attr::kRows) * a(Attr::kHd), queries = head * a(Attr::kNh),
                    keys = head * a(Attr::kKv);
      const std::vector<int64_t> joined{queries + 2 * keys}, apart{queries, keys, keys};
      const bool inverse = a(Attr::kInverse) != 0;
      return {!inverse || op.out.size() == 1 ? joined : apart,
              inverse || op.in.size() == 1 ? joined : apart};
    }
    case OpKind::kMatmul:
      return MatmulSizes(program, op);
    case OpKind::kQuantize:
      return QuantizeSizes(program, op);
    case OpKind::kUnpack:
      return UnpackSizes(plan, op);
    case OpKind::kUnitAmax:
    case OpKind::kUnitCast:
      return UnitCodeSizes(plan, program, op);
    case OpKind::kAmax:
    case OpKind::kAmaxRoll:
    case OpKind::kScaleUpdate:
      return AmaxSizes(op);
    case OpKind::kAttn:
    case OpKind::kAttnBwd:
      return SelfAttentionSizes(op);
    case OpKind::kCrossAttn:
    case OpKind::kCrossAttnBwd:
      return CrossAttentionSizes(op);
    case OpKind::kKeyValues:
      return KeyValueSizes(op);
    case OpKind::kPartAttn:
    case OpKind::kPartAttnBwd:
      return PartAttentionSizes(op);
    case OpKind::kRegroup:
      return {{x * a(Attr::kParts)}, {x * a(Attr::kParts)}};
    case OpKind::kLayerNorm:
    case OpKind::kLayerNormBwd:
    case OpKind::kLayerNormWgrad:
    case OpKind::kRmsNorm:
    case OpKind::kRmsNormBwd:
    case OpKind::kRmsNormWgrad:
      return NormSizes(op);
    case OpKind::kQkNorm:
    case OpKind::kQkNormBwd:
    case OpKind::kQkNormWgrad:
      return QkNormSizes(op);
    case OpKind::kBiasResidual: {
      Sizes sizes{{x}, {x, x}};
      for (int64_t i = std::min<int64_t>(a(Attr::kBias), 2); i > 0; --i)
        sizes.in.push_back(a(Attr::kH));
      if (Drops(op)) sizes.out.push_back(x);
      return sizes;
    }
    case OpKind::kDropout:
      return {{x, x}, {x}};
    case OpKind::kDropoutBwd:
      return {{n}, {n, n}};
    case OpKind::kColSum:
      return {{a(Attr::kH)}, {a(Attr::kH), x}};
    case OpKind::kGelu:
    case OpKind::kRelu:
    case OpKind::kTanh:
      return {{n}, {n}};
    case OpKind::kGeluBwd:
    case OpKind::kReluBwd:
    case OpKind::kTanhBwd:
      return {{n}, {n, n}};
    case OpKind::kSwiglu:
      if (op.in.size() > 1) return {{n}, {n, n}};
      return {{n}, {2 * n}};
    case OpKind::kSwigluBwd:
      if (op.in.size() > 2) return {{n, n}, {n, n, n}};
      return {{2 * n}, {n, 2 * n}};
    case OpKind::kXentMax:
    case OpKind::kXentSum:
    case OpKind::kXentGrad:
    case OpKind::kMse:
      return LossSizes(op);
    case OpKind::kSumSq:
      return {{1}, {1, n}};
    case OpKind::kSgd:
      return OptimizerSizes(op, n, 2);
    case OpKind::kMuon:
      return OptimizerSizes(op, n, 3);
    case OpKind::kAdam:
      return OptimizerSizes(op, n, 4);
    case OpKind::kLambDir: {
      Sizes sizes = OptimizerSizes(op, n, 4);
      sizes.out[3] = kAny;
      return sizes;
    }
    case OpKind::kLambApply: {
      Sizes sizes = OptimizerSizes(op, n, 2);
      sizes.in[2] = kAny;
      return sizes;
    }
    case OpKind::kLossScale:
      return {{1}, {1, 1}};
    case OpKind::kAllReduce:
    case OpKind::kAllGather:
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
      return CollectiveSizes(plan, program, op);
    case OpKind::kSend:
      return {{}, {kAny}};
    case OpKind::kRecv:
      return {{kAny}, {}};
  }
  return {};
}

}  // namespace orrery::ir
