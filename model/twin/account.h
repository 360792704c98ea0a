// SPDX-License-Identifier: Apache-2.0
// Books a simulated step under the closed form's terms, so that both can be put side by side.
#pragma once

#include "model/engine/event/executor.h"
#include "model/twin/search.h"

namespace orrery {

// What one simulation needed and left behind.
struct PlayedStep {
  const ir::Plan& plan;
  const Cluster& cluster;
  const sim::PlanTasks& tasks;
  const sim::MeetingTable& meetings;  // made with keep_links
  const sim::Timeline& timeline;
  const sim::StepResult& result;
};

// The terms of the GPU that computes longest (the first of equals): its seconds add up to the
// simulated step. `closed` is filled from `time`, without its fixed costs.
std::vector<SimulatedTerm> AccountStep(const PlayedStep& step, const StepTime& time);

}  // namespace orrery
