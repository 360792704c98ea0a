// SPDX-License-Identifier: Apache-2.0
// Scenario files: a job, a layout and what disturbs them, in YAML (scenarios/README.md).
#pragma once

#include <string>

#include "model/program/simulate/perturbation_flags.h"

namespace orrery::cli {

struct Scenario {
  std::string name;  // of the file; empty: there is none
  std::string description;
  Perturbations perturbations;
};

// Reads the file that --scenario names (a name of scenarios/*.yaml, or a path); flags of the job
// and the layout that were not given take its values, with their places. Throws InputError with
// everything that is wrong in the file.
Scenario ReadScenario(SimulateFlags* flags);

}  // namespace orrery::cli
