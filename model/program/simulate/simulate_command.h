// SPDX-License-Identifier: Apache-2.0
// `plan simulate` as a function.
#pragma once

#include "model/program/common/answer.h"
#include "model/program/common/command_line.h"

namespace orrery::cli {

Answer RunSimulate(const CommandLine& line);  // its flags follow behind "plan simulate"

}  // namespace orrery::cli
