// SPDX-License-Identifier: Apache-2.0
// A simulated step as a Chrome trace in the shape that Kineto (PyTorch's profiler) writes.
//
// A process per executed rank, a thread per stream, a complete event per op, flow arrows from sends
// to receives. Times in microseconds with three decimals: events are rounded to nanoseconds at both
// ends, so that neighbours never overlap.
#pragma once

#include <iosfwd>

#include "model/ir/plan.h"
#include "model/sim/executor.h"

namespace orrery::report {

// What one simulation leaves behind; all from the same plan.
struct TraceSource {
  const ir::Plan* plan = nullptr;
  const sim::PlanTasks* tasks = nullptr;
  const sim::MeetingTable* meetings = nullptr;
  const sim::Timeline* timeline = nullptr;
  const sim::OpTime* op_time = nullptr;
};

// Ops that the executor joined into one task share its time in proportion to their device times.
void WriteTrace(const TraceSource& source, std::ostream* out);

}  // namespace orrery::report
