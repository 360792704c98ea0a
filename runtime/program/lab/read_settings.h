// SPDX-License-Identifier: Apache-2.0
// From the flags of `plan lab` to what is to be done. Wrong ones: InputError, all at once.
#pragma once

#include <string>

#include "model/program/common/lab_flags.h"
#include "runtime/lab/settings.h"

namespace orrery::lab {

// up, run, measure, status, down or enter; refuses flags that belong to another action.
std::string ReadAction(const cli::LabFlags& flags, bool has_command);
std::string ReadLabName(const cli::LabFlags& flags);
Settings ReadSettings(const cli::LabFlags& flags);

}  // namespace orrery::lab
