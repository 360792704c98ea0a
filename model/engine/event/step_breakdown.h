// SPDX-License-Identifier: Apache-2.0
// Books a simulated step under the terms of model/price/breakdown.h.
//
// Idea: between two kernels of a rank something holds the next one back. Follow what it waited for, from the task
// that started last to the one that released it, until the moment in question lies inside a message (exposed), before
// the arrival of a partner (bubble) or before the host issued the task (host). While a kernel runs beside a message
// that slows it down, the time it loses belongs to that message.
// Contention is not booked here: see Simulation::breakdown().
// Invariant: the terms add up to the step.
#pragma once

#include <cstdint>

#include "model/engine/event/executor.h"
#include "model/price/breakdown.h"

namespace orrery::sim {

// What one simulation needed and left behind; all of it must outlive the call.
struct SimulatedRun {
  const ir::Plan& plan;
  const PlanTasks& tasks;
  const CommunicatorTable& communicators;
  const Timeline& timeline;
  const StepResult& result;
  const Perturbation& perturbation;
};

// Index into StepResult::ranks of the rank whose kernels take longest; of equals, whose messages inside of layers do; of these
// the first. A rank whose group is on one node waits for those of other groups: it would show as a bubble what they wait for.
std::size_t BusiestRank(const SimulatedRun& run);

// Of that rank. `fixed`: seconds per step outside of the plan.
Breakdown BreakdownOf(const SimulatedRun& run, std::size_t rank, double fixed);

}  // namespace orrery::sim
