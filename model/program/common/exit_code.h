// SPDX-License-Identifier: Apache-2.0
// What `plan` tells the shell.
#pragma once

namespace orrery::cli {

enum class ExitCode : int {
  kOk = 0,
  kFailure = 1,     // the answer could not be written, or a program could not be started
  kInputError = 2,  // command line or a file
  kInfeasible = 3,  // nothing fits, or the given layout does not
  kCheckFailed = 4,
};

}  // namespace orrery::cli
