// SPDX-License-Identifier: Apache-2.0
// One rank of the lab's benchmark: times of this project's own ring all-reduce.
#pragma once

#include "runtime/lab/settings.h"

namespace orrery::bench {

// Rank 0 prints a line for alpha and one per size. `settings`: of the lab it runs in.
void MeasureRings(const lab::Settings& settings);

}  // namespace orrery::bench
