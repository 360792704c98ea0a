// SPDX-License-Identifier: Apache-2.0
// From op kind to kernel.
#include "runtime/device/cuda/ops.h"

namespace orrery::cuda {
namespace {

using Body = void (*)(OpFrame&);

Body BodyOf(ir::OpKind kind) {
  using enum ir::OpKind;
  switch (kind) {
    case kZero:
      return Zero;
    case kAdd:
      return Add;
    case kSlice:
      return Slice;
    case kCopy:  // within the device; the others: Accelerator::CopyAcross
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
    case kQuantize:
    case kUnpack:
    case kUnitAmax:
    case kUnitCast:
    case kAmax:
    case kAmaxRoll:
    case kScaleUpdate:
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

}  // namespace

bool HasKernel(ir::OpKind kind) { return BodyOf(kind) != nullptr; }

void Run(const cpu::KernelArgs& args, const Queue& queue) {
  OpFrame frame(args, queue);
  const Body body = BodyOf(args.op.kind);
  if (body == nullptr) frame.Fail("no CUDA kernel");
  body(frame);
}

const char* FaultText(int fault) {
  switch (fault) {
    case kBadToken:
      return "a token index is negative";
    case kBadRow:
      return "a row index lies outside the sequence";
    case kBadLabel:
      return "a label is negative";
    default:
      return "no fault";
  }
}

}  // namespace orrery::cuda
