// SPDX-License-Identifier: Apache-2.0
// The kernel of each op kind, on the operands that a Frame opens; kernels.cc has the table.
#pragma once

#include "runtime/device/cpu/frame.h"

namespace orrery::cpu {

// matmul.cc
void Matmul(Frame& f);
// low_precision.cc
void Quantize(Frame& f);
void Unpack(Frame& f);
void UnitAmax(Frame& f);
void UnitCast(Frame& f);
void LargestMagnitude(Frame& f);
void RollHistory(Frame& f);
void UpdateScales(Frame& f);
// attention.cc, attention_backward.cc, rope.cc
void Attention(Frame& f);
void CrossAttention(Frame& f);
void AttentionBackward(Frame& f);
void CrossAttentionBackward(Frame& f);
void Rope(Frame& f);
// context.cc
void KeysAndValues(Frame& f);
void PartAttention(Frame& f);
void PartAttentionBackward(Frame& f);
void Regroup(Frame& f);
// norm.cc
void LayerNorm(Frame& f);
void LayerNormBackward(Frame& f);
void LayerNormWeightGrad(Frame& f);
void RmsNorm(Frame& f);
void RmsNormBackward(Frame& f);
void RmsNormWeightGrad(Frame& f);
// qk_norm.cc
void QkNorm(Frame& f);
void QkNormBackward(Frame& f);
void QkNormWeightGrad(Frame& f);
// elementwise.cc
void Zero(Frame& f);
void Add(Frame& f);
void Slice(Frame& f);
void Copy(Frame& f);
void ColumnSum(Frame& f);
void Gelu(Frame& f);
void GeluBackward(Frame& f);
void Relu(Frame& f);
void ReluBackward(Frame& f);
void Swiglu(Frame& f);
void SwigluBackward(Frame& f);
void Tanh(Frame& f);
void TanhBackward(Frame& f);
// dropout.cc
void BiasResidual(Frame& f);
void DropoutForward(Frame& f);
void DropoutBackward(Frame& f);
// embedding.cc
void Embed(Frame& f);
void EmbedBackward(Frame& f);
void AddPositions(Frame& f);
void PositionsBackward(Frame& f);
void GatherRows(Frame& f);
void ScatterRows(Frame& f);
// loss.cc
void CrossEntropyMax(Frame& f);
void CrossEntropySum(Frame& f);
void CrossEntropyGrad(Frame& f);
void MeanSquaredError(Frame& f);
// optimizer.cc
void SumOfSquares(Frame& f);
void Sgd(Frame& f);
void Adam(Frame& f);
void LambDirection(Frame& f);
void LambApply(Frame& f);
void LossScale(Frame& f);

}  // namespace orrery::cpu
