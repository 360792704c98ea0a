// SPDX-License-Identifier: Apache-2.0
// Weights of products in 8 bits that are held and gathered in 8 bits (Strategy::fp8_weights).
//
// The matrices of a range of layers are a unit of their own; norms and biases stay in 16 bits in another (Megatron-Core keeps a
// buffer for each type, distributed/param_and_grad_buffer.py). The update changes the fp32 master copy alone. Behind it each rank
// casts its shard: scales need the largest magnitude of whole tensors, so those of all weights of the stage are reduced in one
// message over the ranks that hold shards (TransformerEngine pytorch/tensor/utils.py, quantize_master_weights). Then the codes
// travel, at a byte each: ZeRO 1 and 2 gather them for the next step, ZeRO 3 before each use. Products read them as they are; the
// copy for products of gradients is transposed from them, not cast.
//   delayed    the scale comes from the magnitudes of earlier steps' weights, over replicas and tensor ranks, as all delayed scales
//   current    from this update's; a tensor rank has a tensor of its own
//   blockwise  of each 128 x 128, whose parts on several ranks are reduced, too
// The two casts of MXFP8 have blocks of their own, so one does not follow from the other. The update leaves shards in 16 bits;
// the first micro-batch gathers them, layer by layer, casts both ways and drops them (Megatron-Core
// distributed/param_and_grad_buffer.py: the gather lands in the gradient buffer and is copied into MXFP8 parameters).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/plan/lower/low_precision.h"

namespace orrery {

ir::Dtype CodeDtype(const LowerContext& ctx);
// Weights of all layers that are held so.
int64_t CodedParameters(const ModelSpec& model);

// Adds the unit of matrices `linear`, named after `layers`.
std::vector<ParamRef> AddCodedUnit(StageBuilder& stage, const std::string& layers,
                                   std::vector<ParamDecl> linear);
// The unit of matrices that MXFP8 gathers once per step.
std::vector<ParamRef> AddOnceUnit(StageBuilder& stage, const std::string& layers,
                                  std::vector<ParamDecl> linear);
// A matrix [out, in] on this rank as an operand of products.
Factor CodedFactor(StageBuilder& stage, ParamRef codes, int64_t out, int64_t in);

std::optional<Refusal> CheckCodedWeights(const Workload& work, const Strategy& strategy);

}  // namespace orrery
