// SPDX-License-Identifier: Apache-2.0
// What is worked out from a recorded step: its parts as the closed form names them, memory over
// time, communication by axis, the critical path.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/engine/closed/closed_form.h"
#include "model/engine/event/axis_time.h"
#include "model/engine/event/critical_path.h"
#include "model/program/simulate/trace_json.h"

namespace orrery::report {

// Of one rank of a stage.
struct MemoryUse {
  int64_t rank = 0;
  int stage = 0;
  int64_t peak = 0;   // live bytes in simulated time
  int64_t arena = 0;  // bytes of the static layout
  double peak_time = 0;
};

struct AxisUse {
  std::string axis;
  sim::AxisTime mean, worst;  // over ranks; the worst is the one with most exposed
  int64_t worst_rank = 0;
};

struct StepAnalysis {
  std::vector<MemoryUse> memory;  // of the ranks asked for
  std::vector<AxisUse> axes;
  std::vector<std::vector<sim::AxisTime>> rank_axes;  // of the ranks asked for, by axis
  sim::CriticalPath path;
  StepTime time;  // of the rank that computes longest; without interval
};

// All but `time`. `ranks`: indices into result.ranks, one per stage.
StepAnalysis AnalyseStep(const TraceSource& source, const sim::StepResult& result,
                         const sim::Perturbation& perturbation,
                         const std::vector<std::size_t>& ranks);

// Of each stage the rank that computes longest, the first one of equals: indices into times.
std::vector<std::size_t> Representatives(const sim::StepResult& result,
                                         const std::vector<int>& stages);

}  // namespace orrery::report
