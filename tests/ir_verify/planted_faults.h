// SPDX-License-Identifier: Apache-2.0
// Correct plans, each to be broken in one way, and what verify must say of it; one list per kind of fault.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "model/plan/ir/layout.h"
#include "model/plan/ir/verify.h"
#include "model/plan/lower/strategy.h"

namespace orrery::ir {

using Layouts = std::vector<Layout>;

struct PlantedFault {
  std::string fault;
  Strategy strategy;
  std::function<void(Plan&)> plant;
  std::vector<Fault> expected;                              // each must be found
  std::function<void(const Plan&, Layouts&)> plant_layout;  // instead of `plant`
  Lora lora = {};
};

std::vector<PlantedFault> SumFaults();
std::vector<PlantedFault> LifeFaults();
std::vector<PlantedFault> ShapeFaults();
std::vector<PlantedFault> MatchingFaults();
std::vector<PlantedFault> ContextFaults();
std::vector<PlantedFault> AdapterFaults();
std::vector<PlantedFault> RecomputeFaults();
std::vector<PlantedFault> OffloadFaults();

inline Strategy Degrees(int tp, int pp, int dp, int zero = 0) {
  Strategy s;
  s.tp = tp;
  s.pp = pp;
  s.dp = dp;
  s.zero = zero;
  return s;
}

}  // namespace orrery::ir
