// SPDX-License-Identifier: Apache-2.0
// The program behind `plan validate`.
#include "calib/program/validate/validate_command.h"
#include "model/program/common/program.h"

int main(int argc, char** argv) {
  return orrery::cli::ProgramMain("validate", argc, argv, orrery::cli::RunValidate);
}
