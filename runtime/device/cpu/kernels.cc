// SPDX-License-Identifier: Apache-2.0
// From op kind to kernel.
#include "runtime/device/cpu/kernels.h"

#include "runtime/device/cpu/bodies.h"

namespace orrery::cpu {
namespace {

template <void (*Body)(Frame&)>
void Run(const KernelArgs& args) {
  Frame frame(args);
  Body(frame);
  frame.Commit();
}

}  // namespace

Kernel KernelFor(ir::OpKind kind) {
  using enum ir::OpKind;
  switch (kind) {
    case kZero:
      return Run<Zero>;
    case kAdd:
      return Run<Add>;
    case kSlice:
      return Run<Slice>;
    case kCopy:
      return Run<Copy>;
    case kGatherRows:
      return Run<GatherRows>;
    case kScatterRows:
      return Run<ScatterRows>;
    case kEmbed:
      return Run<Embed>;
    case kEmbedBwd:
      return Run<EmbedBackward>;
    case kAddPos:
      return Run<AddPositions>;
    case kPosBwd:
      return Run<PositionsBackward>;
    case kRope:
      return Run<Rope>;
    case kMatmul:
      return Run<Matmul>;
    case kQuantize:
      return Run<Quantize>;
    case kUnpack:
      return Run<Unpack>;
    case kUnitAmax:
      return Run<UnitAmax>;
    case kUnitCast:
      return Run<UnitCast>;
    case kAmax:
      return Run<LargestMagnitude>;
    case kAmaxRoll:
      return Run<RollHistory>;
    case kScaleUpdate:
      return Run<UpdateScales>;
    case kAttn:
      return Run<Attention>;
    case kAttnBwd:
      return Run<AttentionBackward>;
    case kCrossAttn:
      return Run<CrossAttention>;
    case kCrossAttnBwd:
      return Run<CrossAttentionBackward>;
    case kKeyValues:
      return Run<KeysAndValues>;
    case kPartAttn:
      return Run<PartAttention>;
    case kPartAttnBwd:
      return Run<PartAttentionBackward>;
    case kRegroup:
      return Run<Regroup>;
    case kLayerNorm:
      return Run<LayerNorm>;
    case kLayerNormBwd:
      return Run<LayerNormBackward>;
    case kLayerNormWgrad:
      return Run<LayerNormWeightGrad>;
    case kRmsNorm:
      return Run<RmsNorm>;
    case kRmsNormBwd:
      return Run<RmsNormBackward>;
    case kRmsNormWgrad:
      return Run<RmsNormWeightGrad>;
    case kQkNorm:
      return Run<QkNorm>;
    case kQkNormBwd:
      return Run<QkNormBackward>;
    case kQkNormWgrad:
      return Run<QkNormWeightGrad>;
    case kBiasResidual:
      return Run<BiasResidual>;
    case kDropout:
      return Run<DropoutForward>;
    case kDropoutBwd:
      return Run<DropoutBackward>;
    case kColSum:
      return Run<ColumnSum>;
    case kGelu:
      return Run<Gelu>;
    case kGeluBwd:
      return Run<GeluBackward>;
    case kRelu:
      return Run<Relu>;
    case kReluBwd:
      return Run<ReluBackward>;
    case kSwiglu:
      return Run<Swiglu>;
    case kSwigluBwd:
      return Run<SwigluBackward>;
    case kTanh:
      return Run<Tanh>;
    case kTanhBwd:
      return Run<TanhBackward>;
    case kXentMax:
      return Run<CrossEntropyMax>;
    case kXentSum:
      return Run<CrossEntropySum>;
    case kXentGrad:
      return Run<CrossEntropyGrad>;
    case kMse:
      return Run<MeanSquaredError>;
    case kSumSq:
      return Run<SumOfSquares>;
    case kSgd:
      return Run<Sgd>;
    case kAdam:
      return Run<Adam>;
    case kLambDir:
      return Run<LambDirection>;
    case kLambApply:
      return Run<LambApply>;
    case kLossScale:
      return Run<LossScale>;
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

}  // namespace orrery::cpu
