// SPDX-License-Identifier: Apache-2.0
// Dispatch from op kind to reference kernel, and the operand checks that all kernels share.
#include "tests/interpreter/kernels.h"

#include <fmt/format.h>

#include "model/plan/ir/positions.h"

namespace orrery::interpreter {

int64_t KernelArgs::Coord(ir::Attr key) const {
  const int64_t axis = Int(key);
  if (axis < 0) return 0;
  if (axis >= static_cast<int64_t>(coords.size()))
    throw PlanFault(fmt::format("{}: axis {} is not in the mesh", ir::Info(op.kind).name, axis));
  return coords[axis];
}

int64_t KernelArgs::Position(int64_t row) const {
  const int64_t local =
      (Coord(ir::Attr::kAxis) * Int(ir::Attr::kRows) + row) / Int(ir::Attr::kBatch);
  return ir::PositionsOf(op.attrs, coords).At(local);
}

double* KernelArgs::Checked(std::span<const Operand> list, size_t i, int64_t n,
                            const char* role) const {
  if (i >= list.size())
    throw PlanFault(fmt::format("{}: {} {} is missing", ir::Info(op.kind).name, role, i));
  if (list[i].n != n)
    throw PlanFault(fmt::format("{}: {} {} holds {} elements, attributes say {}",
                                ir::Info(op.kind).name, role, i, list[i].n, n));
  return list[i].data;
}

void KernelArgs::ExpectInputs(size_t least) const {
  if (in.size() < least)
    throw PlanFault(
        fmt::format("{}: {} inputs, at least {} needed", ir::Info(op.kind).name, in.size(), least));
}

Kernel KernelFor(ir::OpKind kind) {
  using enum ir::OpKind;
  switch (kind) {
    case kZero:
      return Zero;
    case kAdd:
      return Add;
    case kSlice:
      return TakePart;
    case kCopy:
      return Copy;
    case kGatherRows:
      return GatherRows;
    case kScatterRows:
      return ScatterRows;
    case kEmbed:
      return Embed;
    case kEmbedBwd:
      return EmbedBackward;
    case kAddPos:
      return AddPositions;
    case kPosBwd:
      return PositionsBackward;
    case kRope:
      return Rope;
    case kMatmul:
      return Matmul;
    case kQuantize:
      return Quantize;
    case kUnpack:
      return Unpack;
    case kUnitAmax:
      return UnitAmax;
    case kUnitCast:
      return UnitCast;
    case kAmax:
      return LargestMagnitude;
    case kAmaxRoll:
      return RollHistory;
    case kScaleUpdate:
      return UpdateScales;
    case kAttn:
      return Attention;
    case kAttnBwd:
      return AttentionBackward;
    case kCrossAttn:
      return CrossAttention;
    case kCrossAttnBwd:
      return CrossAttentionBackward;
    case kKeyValues:
      return KeysAndValues;
    case kPartAttn:
      return PartAttention;
    case kPartAttnBwd:
      return PartAttentionBackward;
    case kRegroup:
      return Regroup;
    case kLayerNorm:
      return LayerNorm;
    case kLayerNormBwd:
      return LayerNormBackward;
    case kLayerNormWgrad:
      return LayerNormWeightGrad;
    case kRmsNorm:
      return RmsNorm;
    case kRmsNormBwd:
      return RmsNormBackward;
    case kRmsNormWgrad:
      return RmsNormWeightGrad;
    case kQkNorm:
      return QkNorm;
    case kQkNormBwd:
      return QkNormBackward;
    case kQkNormWgrad:
      return QkNormWeightGrad;
    case kBiasResidual:
      return BiasResidual;
    case kDropout:
      return DropoutForward;
    case kDropoutBwd:
      return DropoutBackward;
    case kColSum:
      return ColumnSum;
    case kGelu:
      return Gelu;
    case kGeluBwd:
      return GeluBackward;
    case kRelu:
      return Relu;
    case kReluBwd:
      return ReluBackward;
    case kSwiglu:
      return Swiglu;
    case kSwigluBwd:
      return SwigluBackward;
    case kTanh:
      return Tanh;
    case kTanhBwd:
      return TanhBackward;
    case kXentMax:
      return CrossEntropyMax;
    case kXentSum:
      return CrossEntropySum;
    case kXentGrad:
      return CrossEntropyGrad;
    case kMse:
      return MeanSquaredError;
    case kSumSq:
      return SumOfSquares;
    case kSgd:
      return Sgd;
    case kAdam:
      return Adam;
    case kLambDir:
      return LambDirection;
    case kLambApply:
      return LambApply;
    case kLossScale:
      return LossScale;
    case kMuon:
    case kLoad:
    case kAllReduce:
    case kAllGather:
    case kReduceScatter:
    case kAllToAll:
    case kSend:
    case kRecv:
      return nullptr;
  }
  return nullptr;
}

}  // namespace orrery::interpreter
