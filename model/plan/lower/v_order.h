// SPDX-License-Identifier: Apache-2.0
// The order of passes where the chunks of a pipeline lie in a V; the rule stands in schedules.h.
#pragma once

#include <memory>
#include <vector>

#include "model/plan/lower/schedules.h"

namespace orrery {

// Of one stage. Kept: layouts with the same stages and micro-batches share it. Safe for concurrent use.
std::shared_ptr<const std::vector<PassCall>> PassesInV(int stages, int stage, int micro_batches);

}  // namespace orrery
