// SPDX-License-Identifier: Apache-2.0
// `plan watch` as a function.
#pragma once

#include "model/program/common/answer.h"
#include "model/program/common/command_line.h"

namespace orrery::cli {

// The whole command: words after "plan watch" to its answer. Throws InputError.
Answer RunWatch(const CommandLine& line);

}  // namespace orrery::cli
