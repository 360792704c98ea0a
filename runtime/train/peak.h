// SPDX-License-Identifier: Apache-2.0
// What one thread of this machine computes at best.
#pragma once

namespace orrery::launch {

// FLOP/s of the best of a few single-precision products of 1024 x 1024 matrices on this thread.
// Takes about 0.1 s.
double MeasurePeak();

}  // namespace orrery::launch
