// SPDX-License-Identifier: Apache-2.0
// Memory of a layout in text: classes of the fullest stage, the moment of the peak, the stages.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/memory/memory.h"

namespace orrery::report {

// Several lines, indented by two.
std::string MemoryText(const MemoryReport& memory);
nlohmann::ordered_json MemoryJson(const MemoryReport& memory);

// "17.1 GiB of 29.8 GiB (57 %)"
std::string MemoryOfCapacity(const MemoryReport& memory);
// Of memory that MemoryReport::nearly_full marks: it fits, and ranks below all that leave more.
inline constexpr char kNearlyFull[] = "nearly full";
// "fits", "fits, but nearly full", "DOES NOT FIT"
std::string FitWords(const MemoryReport& memory);
// What the summary counts, and what nearly full means; `framework`: the software's name.
std::string FitBasis(const MemoryReport& memory, const std::string& framework, double nearly_full);

}  // namespace orrery::report
