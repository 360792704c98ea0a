// SPDX-License-Identifier: Apache-2.0
// The kernel of each op kind on the operands that an OpFrame opens; run.cc has the table.
#pragma once

#include "runtime/device/cuda/frame.h"

namespace orrery::cuda {

// matmul.cc, product.cu
void Matmul(OpFrame& f);
// attention.cc: to flash_*.cu where those can, else to attention.cu; rope.cu
void Attention(OpFrame& f);
void CrossAttention(OpFrame& f);
void AttentionBackward(OpFrame& f);
void CrossAttentionBackward(OpFrame& f);
void Rope(OpFrame& f);
// context.cu
void KeysAndValues(OpFrame& f);
void PartAttention(OpFrame& f);
void PartAttentionBackward(OpFrame& f);
void Regroup(OpFrame& f);
// norm.cu
void LayerNorm(OpFrame& f);
void LayerNormBackward(OpFrame& f);
void RmsNorm(OpFrame& f);
void RmsNormBackward(OpFrame& f);
void QkNorm(OpFrame& f);
void QkNormBackward(OpFrame& f);
// columns.cu
void LayerNormWeightGrad(OpFrame& f);
void RmsNormWeightGrad(OpFrame& f);
void QkNormWeightGrad(OpFrame& f);
void ColumnSum(OpFrame& f);
// elementwise.cu
void Zero(OpFrame& f);
void Add(OpFrame& f);
void Slice(OpFrame& f);
void Copy(OpFrame& f);
void Gelu(OpFrame& f);
void GeluBackward(OpFrame& f);
void Relu(OpFrame& f);
void ReluBackward(OpFrame& f);
void Swiglu(OpFrame& f);
void SwigluBackward(OpFrame& f);
void Tanh(OpFrame& f);
void TanhBackward(OpFrame& f);
// dropout.cu
void BiasResidual(OpFrame& f);
void DropoutForward(OpFrame& f);
void DropoutBackward(OpFrame& f);
// embedding.cu
void Embed(OpFrame& f);
void EmbedBackward(OpFrame& f);
void AddPositions(OpFrame& f);
void PositionsBackward(OpFrame& f);
void GatherRows(OpFrame& f);
void ScatterRows(OpFrame& f);
// loss.cu
void CrossEntropyMax(OpFrame& f);
void CrossEntropySum(OpFrame& f);
void CrossEntropyGrad(OpFrame& f);
void MeanSquaredError(OpFrame& f);
// optimizer.cu, lamb.cu
void SumOfSquares(OpFrame& f);
void Sgd(OpFrame& f);
void Adam(OpFrame& f);
void LambDirection(OpFrame& f);
void LambApply(OpFrame& f);
void LossScale(OpFrame& f);

// Runs an op; throws cpu::KernelError. (run.cc)
void Run(const cpu::KernelArgs& args, const Queue& queue);
bool HasKernel(ir::OpKind kind);
const char* FaultText(int fault);

}  // namespace orrery::cuda
