// SPDX-License-Identifier: Apache-2.0
// What the inner projections of a block read: the normed input, cast, gathered over the tensor ranks.
#pragma once

#include <string>

#include "model/plan/lower/low_precision.h"
#include "model/plan/lower/sublayer.h"

namespace orrery {

bool HasInputNorm(const StageBuilder& stage);

// Of the norm in front of a sublayer, its output and statistics.
std::string InputNormName(const StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                          const std::string& prefix);
// The norm of a block's input; without one, the input as it is.
ir::ViewId EmitInputNorm(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                         const std::string& prefix, ir::ViewId x);
// What EmitInputNorm() left or leaves.
ir::ViewId NormedInput(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                       const std::string& prefix, ir::ViewId x);

// Whether the backward pass runs an MLP or a product of a block's input again.
bool ReadsInputAgain(const StageBuilder& stage, const Layer& layer, const Branches& block);

// This rank's rows of the normed input. An MLP that is run again casts what it reads again.
CastSource InputSource(StageBuilder& stage, const Layer& layer, const Branches& block,
                       const Sublayer& sub, const std::string& prefix, ir::ViewId x);

// Whether what is gathered of it serves the gradients of the weights, too (Strategy::gathers_kept).
bool KeepsGathers(const StageBuilder& stage);

}  // namespace orrery
