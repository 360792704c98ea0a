// SPDX-License-Identifier: Apache-2.0
// Random plans for the text form: every field takes many values; they make no sense as training.
#pragma once

#include <random>

#include "model/plan/ir/plan.h"

namespace orrery::ir {

Plan RandomPlan(uint32_t seed);
// One program with `ops` distinct ops and buffers.
Plan WidePlan(int ops);

}  // namespace orrery::ir
