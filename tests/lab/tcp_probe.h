// SPDX-License-Identifier: Apache-2.0
// TCP between two nodes of a lab, measured by two processes inside it.
#pragma once

#include <cstdint>

#include "runtime/lab/state.h"

namespace orrery::lab {

// Least round trip of one byte, in seconds; -1: no connection.
double MeasureRoundTrip(const State& state, int from, int to, int rounds);
// Payload bytes per second from `from` to `to`; -1: no connection.
double MeasureRate(const State& state, int from, int to, int64_t bytes);

}  // namespace orrery::lab
