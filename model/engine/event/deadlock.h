// SPDX-License-Identifier: Apache-2.0
// A step that came to a halt before its end: who waits for whom.
#pragma once

#include "model/engine/event/step_state.h"

namespace orrery::sim {

// Throws InputError when a stream has tasks left, naming the first few of them.
void CheckAllDone(const StepState& state);

}  // namespace orrery::sim
