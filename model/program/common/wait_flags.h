// SPDX-License-Identifier: Apache-2.0
// Flags that say how long a program waits.
#pragma once

#include <optional>

#include "model/program/common/flags.h"

namespace orrery::cli {

// In seconds, at most 366 days: clocks overflow beyond; 0 only with `or_none`. nullopt: not given, or wrong (then recorded).
std::optional<double> ReadWait(const Flag& flag, Diagnostics* diagnostics, bool or_none = false);

}  // namespace orrery::cli
