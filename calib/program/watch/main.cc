// SPDX-License-Identifier: Apache-2.0
// The program behind `plan watch`.
#include "calib/program/watch/watch_command.h"
#include "model/program/common/program.h"

int main(int argc, char** argv) {
  return orrery::cli::ProgramMain("watch", argc, argv, orrery::cli::RunWatch);
}
