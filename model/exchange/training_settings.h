// SPDX-License-Identifier: Apache-2.0
// Settings of a training that no plan depends on, as flags of `plan run`: rates, their schedule, steps, decay, seed.
#pragma once

#include "model/exchange/mapping.h"

namespace orrery::exchange {

// By flag ("--lr"). What a run cannot do, and what only a shell knows, stays unread, to be named among what has no effect.
Values TrainingOf(const SettingIndex& settings, Target target);

}  // namespace orrery::exchange
