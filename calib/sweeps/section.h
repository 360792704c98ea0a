// SPDX-License-Identifier: Apache-2.0
// What a fit of one machine's sweeps says: for people, and as a file for `--collectives`.
#pragma once

#include <string>

#include "calib/sweeps/machine.h"

namespace orrery {

// Constants with spread, what they rest on, errors of fitted and of left-out points.
std::string RenderMachine(const FittedMachine& machine);

// The format of model/price/measured_collectives.h. Groups of unknown ranks or nodes are left out.
std::string SectionText(const FittedMachine& machine);

}  // namespace orrery
