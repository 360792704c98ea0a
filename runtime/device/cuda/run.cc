// SPDX-License-Identifier: Apache-2.0
// From op kind to kernel.
#include <string>

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
    case kQkNorm:
    case kQkNormBwd:
    case kQkNormWgrad:
    case kMuon:
    case kLoad:
    case kAllReduce:
    case kAllGather:
    case kReduceScatter:
    case kSend:
    case kRecv:
      return nullptr;
  }
  return nullptr;
}

// Attributes that change what an op computes and that no CUDA kernel knows yet.
constexpr ir::Attr kUnknown[] = {ir::Attr::kWindow, ir::Attr::kCap, ir::Attr::kGate,
                                 ir::Attr::kPower};

}  // namespace

bool HasKernel(ir::OpKind kind) { return BodyOf(kind) != nullptr; }

void Run(const cpu::KernelArgs& args, const Queue& queue) {
  OpFrame frame(args, queue);
  const Body body = BodyOf(args.op.kind);
  if (body == nullptr) frame.Fail("no CUDA kernel");
  for (const ir::Attr attr : kUnknown) {
    if (args.op.attrs.Get(attr) != ir::AttrDefault(attr))
      frame.Fail(("no CUDA kernel with " + std::string(ir::AttrName(attr))).c_str());
  }
  if (args.op.kind == ir::OpKind::kBiasResidual && args.op.attrs.Get(ir::Attr::kBias) > 1)
    frame.Fail("no CUDA kernel with two biases");
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
