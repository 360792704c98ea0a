// SPDX-License-Identifier: Apache-2.0
// What a quantity's text may be at most, and at least where it is not 0.
#pragma once

#include "model/base/text.h"

namespace orrery {

// Of a text that ParseQuantity() has refused: it is a quantity, but more than any of its kind.
bool IsTooLarge(const TextError& error);
// Likewise: above 0, but less than any of its kind.
bool IsTooSmall(const TextError& error);

}  // namespace orrery
