// SPDX-License-Identifier: Apache-2.0
// Brings a lab up: starts the process that holds its namespaces and runs its switch.
#pragma once

#include "runtime/lab/state.h"

namespace orrery::lab {

// `already`: the same lab is up, and stays. Leftovers of a crashed one are removed first. After a
// failure, or SIGINT or SIGTERM meanwhile, nothing is left. Throws LabError; InputError when a
// different lab of that name is up. The caller's process is single-threaded.
State BringUp(const Settings& settings, bool* already);

}  // namespace orrery::lab
