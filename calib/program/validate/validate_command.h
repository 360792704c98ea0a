// SPDX-License-Identifier: Apache-2.0
// `plan validate` as a function.
#pragma once

#include "model/program/common/answer.h"
#include "model/program/common/command_line.h"

namespace orrery::cli {

Answer RunValidate(const CommandLine& line);  // its flags follow behind "plan validate"

}  // namespace orrery::cli
