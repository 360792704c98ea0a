// SPDX-License-Identifier: Apache-2.0
// The program `plan`.
#include "model/program/common/launcher_guard.h"
#include "model/program/common/program.h"
#include "model/program/plan/commands.h"

int main(int argc, char** argv) {
  if (argc > 1 && orrery::cli::TakesStopRequests(argv[1])) orrery::cli::HoldStopRequests();
  return orrery::cli::Main({argv, argv + argc}, orrery::cli::Run);
}
