// SPDX-License-Identifier: Apache-2.0
// What stops a run on a cluster, as goodput.h wants it: failures, interruptions, repairs and waits for spares.
#pragma once

#include <cstdint>

#include "model/provision/goodput.h"
#include "model/provision/long_run.h"

namespace orrery {

// Failed nodes that are in repair in the mean; `rate`: failures per 1000 node-days.
double InRepair(const Conditions& conditions, double nodes, double rate);
// Interruptions per 1000 node-days of spot capacity; 0: the quote is none, or there is none.
double SpotRate(const Conditions& conditions, const Quote* quote);
// Stops per second and what they cost, at a rate of node failures per 1000 node-days; `work`: of the whole run.
StopModel StopsOf(const Conditions& conditions, const Job& job, const CheckpointCost& checkpoint,
                  const Quote* quote, double rate, int64_t spares, Seconds work);

}  // namespace orrery
