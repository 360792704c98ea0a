// SPDX-License-Identifier: Apache-2.0
// Training steps in a lab beside their simulation, after measuring the machine and the lab.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace orrery::bench {

// Runs a program with its arguments and waits for it: its exit code.
using Run = std::function<int(const std::vector<std::string>& words)>;

// Prints simulated and measured step times of two small GPTs on 2 and 4 nodes. `programs`: the folder
// of plan-lab and the others. 0, or the exit code of the command that failed.
int CompareSteps(const std::string& programs, const std::string& lab, const Run& run);

}  // namespace orrery::bench
