// SPDX-License-Identifier: Apache-2.0
// The program `plan`.
#include "model/program/common/program.h"
#include "model/program/plan/commands.h"

int main(int argc, char** argv) { return orrery::cli::Main({argv, argv + argc}, orrery::cli::Run); }
