// SPDX-License-Identifier: Apache-2.0
// A standard normal number from the bits of a counter-based draw.
#pragma once

#include <cmath>

#include "model/plan/ir/draws.h"

namespace orrery::train {

// Box and Muller 1958.
inline double NormalOf(uint64_t bits) {
  return std::sqrt(-2 * std::log(ir::UniformOf(bits))) *
         std::cos(2 * M_PI * ir::UniformOf(ir::MixBits(bits)));
}

}  // namespace orrery::train
