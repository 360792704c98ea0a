// SPDX-License-Identifier: Apache-2.0
// What is worked out from a recorded step: its breakdown, memory over time, the critical path.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/engine/closed/closed_form.h"
#include "model/engine/event/critical_path.h"
#include "model/engine/event/simulation.h"
#include "model/engine/event/unevenness.h"
#include "model/memory/memory.h"
#include "model/program/common/step_picture.h"
#include "model/program/simulate/trace_json.h"

namespace orrery::report {

// Of one rank of a stage.
struct MemoryUse {
  int64_t rank = 0;
  int stage = 0;
  StageMemory need;      // the figures of every command
  double peak_time = 0;  // seconds; when the op of the peak begins
};

struct StepAnalysis {
  std::vector<MemoryUse> memory;  // of the ranks asked for
  sim::CriticalPath path;
  StepTime time;                            // of the rank that computes longest; without interval
  int64_t rank = 0;                         // that one
  std::vector<Breakdown> of_ranks;          // of the ranks asked for
  std::vector<sim::SharedLink> contention;  // where it arises, most first
  sim::Unevenness uneven;
};

// `ranks`: indices into the result's ranks, one per stage. `memory`: of the same plan.
StepAnalysis AnalyseStep(const TraceSource& source, const sim::Simulation& simulation,
                         const sim::Perturbation& perturbation, const MemoryReport& memory,
                         const std::vector<std::size_t>& ranks);

}  // namespace orrery::report
