// SPDX-License-Identifier: Apache-2.0
// Use of links over simulated time, as shares of their bandwidth.
//
// From the rates that the network logged; an exchange that has its links to itself was a timer, and
// counts with its mean rate from the end of its latency on.
#pragma once

#include <vector>

#include "model/engine/event/executor.h"

namespace orrery::sim {

struct LinkPoint {
  double time = 0;
  double share = 0;  // of the bandwidth, 0 to 1, from here on
};

// By `links`: points in order of time, the first at 0, no two at one date. The table must have been
// made with keep_links and log_rates, on a network that can log rates.
std::vector<std::vector<LinkPoint>> LinkTracks(const ir::Plan& plan, const PlanTasks& tasks,
                                               const CommunicatorTable& communicators,
                                               const Timeline& timeline,
                                               const std::vector<LinkId>& links,
                                               const std::vector<BytesPerSecond>& capacity);

}  // namespace orrery::sim
