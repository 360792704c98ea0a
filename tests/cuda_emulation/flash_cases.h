// SPDX-License-Identifier: Apache-2.0
// Test support: attention calls that the flash kernels take: heads of 64 and 128, sequences that end inside a tile,
// shared key heads, cross attention, dropout.
#pragma once

#include "tests/cpu_kernels/typed_call.h"

namespace orrery {

// Forward and backward by turns, for operands in bf16; backward reads what the reference's forward pass gives.
std::vector<TypedCall> FlashCalls();

}  // namespace orrery
