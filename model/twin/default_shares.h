// SPDX-License-Identifier: Apache-2.0
// The layers of each chunk where an interleaved pipeline's layers do not divide and nobody names them.
#pragma once

#include <memory>
#include <vector>

#include "model/twin/job.h"

namespace orrery {

// The framework has no rule of its own for these chunks: it takes a layout, none is given, and layers do not divide, with the
// ends where they count as layers.
bool ChoosesShares(const ModelSpec& model, const FrameworkPreset& preset, const Strategy& strategy);

// The fastest of RunsOfFullerChunks() and of the rule of model/plan/lower/balance.h, in closed form: of those that fit with the
// margin, else of those that fit, else of all, by a lower bound of their memory. Null: nothing to choose, or the strategy
// cannot be lowered. A search starts from the same shares and moves layers from there (share_climb.h).
std::shared_ptr<const std::vector<int>> DefaultShares(const Job& job, const Strategy& strategy);

}  // namespace orrery
