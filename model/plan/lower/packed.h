// SPDX-License-Identifier: Apache-2.0
// Frozen weights of linear maps in 4 and 8 bits (QLoRA, Dettmers et al. 2023; formats in model/plan/ir/packed.h).
//
// The codes of a range of layers are a unit, their scales one or two more. ZeRO 3 cuts and gathers the codes; scales are whole
// on each rank, as bitsandbytes' quantisation states are under FSDP. Each pass that reads a weight unpacks it into the type of
// the activations in front of its product. Where products are in 8 bits (Workload::fp8) they read codes of 8 bits as they
// are: nothing is cast, and the backward pass transposes them first (TransformerEngine's weights in 8 bits).
#pragma once

#include <vector>

#include "model/plan/lower/low_precision.h"

namespace orrery {

ir::Packed PackingOf(const Workload& work);
ir::Dtype PackedDtype(const LowerContext& ctx, const ParamDecl& part);
double CodeBytes(ir::Packed packing);                                    // of one weight
int64_t PackedParameters(const ModelSpec& model, const Workload& work);  // of a layer; 0: none

// Adds the units of packed weights `linear`, named after `layers`; the refs of their codes.
std::vector<ParamRef> AddPackedUnits(StageBuilder& stage, const std::string& layers,
                                     const std::vector<ParamDecl>& linear);
// A packed weight [out, in] on this rank as an operand of products.
Factor PackedFactor(StageBuilder& stage, ParamRef codes, const PackedWeight& packed, int64_t out,
                    int64_t in);

// Whether blocks divide the weights of each rank.
std::optional<Refusal> CheckPacked(const ModelSpec& model, const Workload& work,
                                   const Strategy& strategy);

}  // namespace orrery
