// SPDX-License-Identifier: Apache-2.0
// The program behind `plan compare`.
#include "calib/program/compare/compare_command.h"
#include "model/program/common/program.h"

int main(int argc, char** argv) {
  return orrery::cli::ProgramMain("compare", argc, argv, orrery::cli::RunCompare);
}
