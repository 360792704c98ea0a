// SPDX-License-Identifier: Apache-2.0
// What this machine could still give, and what this process has taken.
#pragma once

namespace orrery::launch {

double FreeMemory();          // bytes for new processes; 0: unknown
double PeakResidentMemory();  // bytes of this process so far

}  // namespace orrery::launch
