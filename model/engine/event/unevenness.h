// SPDX-License-Identifier: Apache-2.0
// In what ranks and messages of a step differ that a closed form has one of: why the engines may be apart.
#pragma once

#include <vector>

#include "model/engine/event/communicators.h"
#include "model/engine/event/tasks.h"
#include "model/plan/ir/plan.h"
#include "model/price/breakdown.h"

namespace orrery::sim {

struct Unevenness {
  // Axes of which one message of the plan has several prices: some of its ranks are on one node, others are not.
  std::vector<CommAxis> axes;
  double stages = 1;  // seconds of kernels of the busiest stage over those of the idlest
  double host = 0;    // seconds that the busiest host needs to issue its ops

  bool Of(CommAxis axis) const;
};

Unevenness UnevennessOf(const ir::Plan& plan, const PlanTasks& tasks,
                        const CommunicatorTable& table);

}  // namespace orrery::sim
