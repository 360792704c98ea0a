// SPDX-License-Identifier: Apache-2.0
// What one core can do: the yardstick of MFU.
#pragma once

namespace orrery::launch {

// FLOP/s of the best of a few single-precision products of 1024 x 1024 matrices on this thread.
// Takes about 0.1 s.
double MeasurePeak();

}  // namespace orrery::launch
