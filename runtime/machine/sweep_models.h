// SPDX-License-Identifier: Apache-2.0
// The models whose training times the kernels: widths 64 to 1024, 32 to 1024 tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/plan/lower/strategy.h"

namespace orrery::machine {

struct SweepModel {
  std::string name;
  ModelSpec spec;
  Workload work;  // of one rank
  bool flash = false;
};

std::vector<SweepModel> SweepModels(Precision precision);
// Other shapes than those, to see what the table is worth.
std::vector<SweepModel> LeftOutModels(Precision precision);

}  // namespace orrery::machine
