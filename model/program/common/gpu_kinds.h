// SPDX-License-Identifier: Apache-2.0
// Whether a scheduler is asked for another kind of GPU than the one that is predicted.
#pragma once

#include <string>

namespace orrery::cli {

// "h100", "a100_80gb", "nvidia_a100-sxm4-40gb" as sites name them, against the name of a profile. False also where the text
// names no chip that a profile has.
bool IsOtherGpu(const std::string& said, const std::string& gpu);

}  // namespace orrery::cli
