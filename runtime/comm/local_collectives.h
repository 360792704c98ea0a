// SPDX-License-Identifier: Apache-2.0
// Collectives over the operands of all members at once, in one address space.
#pragma once

#include <span>

#include "runtime/comm/communicator.h"

namespace orrery::comm {

// Throws CommError when two members start different things.
void CheckAlike(std::span<const Collective> parts);
// Does what the parts ask for, all at once.
void Perform(std::span<const Collective> parts);

}  // namespace orrery::comm
