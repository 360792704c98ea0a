// SPDX-License-Identifier: Apache-2.0
// One simulated step: its time beside the closed form's, where ranks spend it, the busiest links.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/engine/event/executor.h"
#include "model/program/common/job.h"
#include "model/program/simulate/step_analysis.h"

namespace orrery::report {

struct LinkBusy {
  std::string name;
  double bytes = 0;       // that cross it in the step
  double busy = 0;        // share of the step in which messages occupy it
  double efficiency = 1;  // share of its rate that they reach meanwhile
};

// What `plan simulate` found out.
struct Simulation {
  Prediction candidate;  // in closed form; of a plan text, which has none, simulated undisturbed
  StepTime micro_step;   // in closed form, in the long run
  double printed_s = 0;  // of a micro-step, by the framework's timer
  sim::StepResult result;
  std::vector<int> stages;               // by executed rank
  int64_t ranks = 0;                     // of the plan
  int64_t simulated_micro_batches = 0;   // the others repeat them; 0: all were simulated
  std::string digest;                    // of the plan
  bool contention = true;                // false: every message took its price
  std::string network;                   // "fluid", "simgrid"
  std::string scenario;                  // what its file says of it; empty: none
  std::string perturbation;              // in words; empty: none
  double fixed = 0;                      // seconds of a step outside of its ops
  double undisturbed = 0;                // seconds of the step without the perturbation
  std::vector<LinkBusy> links;           // busiest first
  std::optional<StepAnalysis> analysis;  // of Representatives(); absent: too many ops to record
  double wall = 0;                       // seconds that the simulation took

  double seconds() const { return result.seconds + fixed; }
};

std::string SimulationText(const Job& job, const Simulation& simulation);
nlohmann::ordered_json SimulationJson(const Job& job, const Simulation& simulation);

}  // namespace orrery::report
