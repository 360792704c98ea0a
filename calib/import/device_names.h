// SPDX-License-Identifier: Apache-2.0
// Whether a measurement is of the GPU that it is given for, by the names that programs print.
#pragma once

#include <string>
#include <vector>

#include "model/hardware/profile.h"

namespace orrery::measured {

// Label, usable and printed memory of one card count as the same.
bool IsMemoryOf(double bytes, const GpuProfile& gpu);

// "it ran on 'NVIDIA A100-SXM4-40GB'": none of these devices is this GPU by chip, form factor and memory. "": one
// of them is, or there are none.
std::string OtherDevice(const std::vector<std::string>& names, const GpuProfile& gpu);

// The same of a text in words ("8x A100 40GB, 400Gb"): it names chips of other profiles alone.
std::string OtherChip(const std::string& text, const GpuProfile& gpu);

}  // namespace orrery::measured
