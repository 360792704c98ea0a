// SPDX-License-Identifier: Apache-2.0
// `plan simulate` as a function.
#pragma once

#include "model/program/common/answer.h"
#include "model/program/common/command_line.h"

namespace orrery::cli {

// The whole command: words after "plan simulate" to its answer. Throws InputError.
Answer RunSimulate(const CommandLine& line);

}  // namespace orrery::cli
