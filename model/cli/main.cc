// SPDX-License-Identifier: Apache-2.0
// The program `plan`.
#include "model/cli/commands.h"

int main(int argc, char** argv) { return orrery::cli::Main({argv, argv + argc}); }
