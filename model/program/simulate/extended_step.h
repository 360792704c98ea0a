// SPDX-License-Identifier: Apache-2.0
// The report of a step of many micro-batches from those of two short ones (model/twin/steady.h): whatever a report says
// grows by the same amount with each further cycle.
#pragma once

#include <optional>

#include "model/engine/event/communicators.h"
#include "model/program/simulate/step_analysis.h"

namespace orrery::report {

// `more` has one cycle more than `fewer`; the step has `cycles` more than that.
sim::StepResult Extend(const sim::StepResult& fewer, sim::StepResult more, int64_t cycles);
std::vector<sim::LinkTraffic> Extend(const std::vector<sim::LinkTraffic>& fewer,
                                     std::vector<sim::LinkTraffic> more, int64_t cycles);
// nullopt: the two differ by something else than a cycle of `cycle` seconds, or the path would take too many words.
std::optional<StepAnalysis> Extend(const StepAnalysis& fewer, StepAnalysis more, double cycle,
                                   int64_t cycles);

}  // namespace orrery::report
