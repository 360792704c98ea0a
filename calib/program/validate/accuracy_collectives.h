// SPDX-License-Identifier: Apache-2.0
// Collective times against published tables, as a section of calib/ACCURACY.md.
#pragma once

#include <string>
#include <vector>

#include "calib/validate/collective_errors.h"

namespace orrery {

// Errors by table, which of them made constants, the means without these and with the algorithms that the model
// takes by itself, and what sweeps of a machine leave.
std::string CollectiveSection(const std::vector<CollectiveErrors>& tables,
                              const std::vector<SweepErrors>& sweeps);

}  // namespace orrery
