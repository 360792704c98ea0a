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

// What a recipe with one scale per tensor, from the tensor itself, rounds otherwise than one rank does; "": nothing. Delayed
// scales are the largest of all ranks, and blocks do not cross them.
std::string RoundingOfParts(const Workload& work, const Strategy& strategy);

}  // namespace orrery
