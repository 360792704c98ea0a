// SPDX-License-Identifier: Apache-2.0
// Figures of other programs that are not at hand here, as they were measured next to this project's on two quiet cores of
// one machine in November 2026 (medians).
#pragma once

#include <fmt/format.h>

namespace orrery {

// "calculon_exact_search_recorded_2026_11 = 12.4 s"
inline void PrintRecorded(const char* name, double value, const char* unit) {
  fmt::print("{}_recorded_2026_11 = {:g} {}\n", name, value, unit);
}

}  // namespace orrery
