// SPDX-License-Identifier: Apache-2.0
// Step time of a published run from the event-driven simulator.
#pragma once

#include <variant>

#include "calib/validate/case_row.h"
#include "model/hardware/spec.h"
#include "model/twin/step_predictor.h"

namespace orrery {

// Replaces the total of `closed` by the simulated step plus the fixed costs, which the simulator leaves out; the
// interval keeps its width relative to the total. Data-parallel replicas are executed once. Refusal: the plan cannot
// be lowered or simulated (no route, too many ops), or the window is not a whole step.
std::variant<StepTime, Refusal> SimulateCase(const CaseRow& row, const TopologySpec& topology,
                                             const CostSetting& setting, const StepTime& closed);

}  // namespace orrery
