// SPDX-License-Identifier: Apache-2.0
// Legality of low-precision products; part of CheckStrategy().
#pragma once

#include <optional>
#include <string>

#include "model/plan/lower/lower.h"

namespace orrery {

// Every extent of a product is a multiple of the recipe's block, or of 16 (cuBLAS and TransformerEngine: both extents of a
// cast tensor divide by 16, of MXFP8 by 32). Rows count per sample, so that a recipe is legal for every micro-batch or none.
// CheckSkippedLayers(): some layers must be left that are cast.
std::optional<Refusal> CheckSkippedLayers(const ModelSpec& model, const Workload& work);
std::optional<Refusal> CheckLowPrecision(const ModelSpec& model, const Workload& work,
                                         const Strategy& strategy);

// Whether gathers and scatters of tensor parallelism can run beside pieces of such products: not where scales belong to blocks
// of 1 x 128, 128 x 128 or 1 x 16 numbers (NVIDIA/TransformerEngine module/layernorm_linear.py: "Comm+GEMM overlap is only
// supported with FP8 delayed scaling or per-tensor current scaling"; NVIDIA-NeMo/Megatron-Bridge@067f987df perf_recipes/llama:
// tp_comm_overlap = False with nvfp4, as nowhere else in pretraining of dense models).
bool OverlapsTensors(Fp8 recipe);

// What a recipe with one scale per tensor, from the tensor itself, rounds otherwise than one rank does; "": nothing. Delayed
// scales are the largest of all ranks, and blocks do not cross them.
std::string RoundingOfParts(const Workload& work, const Strategy& strategy);

}  // namespace orrery
