// SPDX-License-Identifier: Apache-2.0
// Strategies that between them take every option of the lowering, for the tiny model.
#pragma once

#include <random>
#include <vector>

#include "model/plan/lower/strategy.h"

namespace orrery::ir {

// `count` legal strategies drawn at random; equal seeds give equal lists.
std::vector<Strategy> DrawStrategies(int count, unsigned seed);

}  // namespace orrery::ir
