// SPDX-License-Identifier: Apache-2.0
// `plan validate` as a function.
#pragma once

#include "model/program/common/answer.h"
#include "model/program/common/command_line.h"

namespace orrery::cli {

// The whole command: words after "plan validate" to its answer. Throws InputError.
Answer RunValidate(const CommandLine& line);

}  // namespace orrery::cli
