// SPDX-License-Identifier: Apache-2.0
// The constants of chips and networks: key, member, range. Readers and documentation derive from here.
#pragma once

#include "model/hardware/profile_reader.h"

namespace orrery {

std::span<const ConstantRow<GpuProfile>> GpuConstants();
std::span<const ConstantRow<FabricProfile>> FabricConstants();

}  // namespace orrery
