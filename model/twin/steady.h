// SPDX-License-Identifier: Apache-2.0
// The simulated step of a layout, in time and memory that do not grow with its micro-batches.
//
// Idea: a pipeline of many micro-batches spends most of its step in a cycle that repeats. Two steps of the same layout
// are simulated, with few micro-batches and with one cycle more; where the longer one is the shorter one and the cycle
// again (model/engine/event/cycle.h), total and terms grow by the same amount with each further cycle. Else two longer
// ones are tried, as a cycle may settle late; else the whole step is simulated.
#pragma once

#include "model/engine/event/simulation.h"
#include "model/engine/event/unevenness.h"
#include "model/twin/job.h"

namespace orrery {

// What a simulation of a step says beyond its time.
struct SimulatedStep {
  int64_t ops = 0;                      // of the step, as if all were executed
  std::vector<sim::SharedLink> shared;  // terms that contention lengthens, with the link
  bool repeated = false;                // most micro-batches follow from a cycle
  bool perturbed = false;               // on request: no reason to agree with the closed form
  sim::Unevenness uneven;               // in what ranks differ that the closed form has one of
};

// Of a step, on request: to keep which messages share links takes long where there are many ranks.
enum class Learn { kAll, kNoLinks };

// Micro-batches of the two steps.
struct ShortSteps {
  int64_t fewer = 0, more = 0;
};
// Pairs to try, the shortest first. Empty: the step is too short to gain by it, or its schedule has no such cycle (GPipe).
std::vector<ShortSteps> ShortStepsOf(const Strategy& layout, int64_t micro_batches);

// `more` with `cycles` times what it has beyond `fewer`.
Breakdown Extend(const Breakdown& fewer, Breakdown more, double cycles);
StepTime Extend(const StepTime& fewer, StepTime more, double cycles);

// The plan of a layout with the micro-batches of the first pair's longer step: it needs the same memory and is as correct as the
// whole step, which repeats its cycle. nullopt: there are no short steps.
std::optional<ir::Plan> ShorterPlan(const Job& job, const Strategy& layout, const ir::Plan& plan);

// The step by two short ones, simulated with contention; nullopt: no cycle repeats in the pairs that there are. `step` and errors: as
// below.
std::optional<StepTime> SimulateCycle(const Job& job, const Strategy& layout, const ir::Plan& plan,
                                      const Cluster& cluster, SimulatedStep* step,
                                      Learn learn = Learn::kAll);
// The step of a layout that lowers to `plan`, simulated with contention: total and breakdown; `step`, if not null,
// learns the rest. Throws InputError: see sim::Simulation.
StepTime SimulateLayout(const Job& job, const Strategy& layout, const ir::Plan& plan,
                        const Cluster& cluster, SimulatedStep* step = nullptr);
// Its total alone, in seconds, equal to rounding: less to record, and no second run for the terms where messages contend.
double SimulateTotal(const Job& job, const Strategy& layout, const ir::Plan& plan,
                     const Cluster& cluster);
// The same as SimulateLayout() of a plan from elsewhere: op by op.
StepTime SimulateStep(const ir::Plan& plan, const Cluster& cluster, const CostSetting& prices,
                      SimulatedStep* step = nullptr, Learn learn = Learn::kAll);

}  // namespace orrery
