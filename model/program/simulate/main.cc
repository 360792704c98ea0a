// SPDX-License-Identifier: Apache-2.0
// The program behind `plan simulate`; with SimGrid linked in, that of `--network simgrid`.
#include "model/program/common/program.h"
#include "model/program/simulate/simulate_command.h"

int main(int argc, char** argv) {
  return orrery::cli::ProgramMain("simulate", argc, argv, orrery::cli::RunSimulate);
}
