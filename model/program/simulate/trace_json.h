// SPDX-License-Identifier: Apache-2.0
// A simulated step as a Chrome trace in the shape that Kineto (PyTorch's profiler) writes.
//
// A process per executed rank, a thread per stream, a complete event per op, flow arrows from sends
// to receives; counters of live bytes per rank and, in a process of its own behind the ranks, of
// the use of links. Times in microseconds with three decimals: events are rounded to nanoseconds at
// both ends, so that neighbours never overlap.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "model/engine/event/executor.h"
#include "model/engine/event/link_track.h"
#include "model/plan/ir/plan.h"

namespace orrery::report {

struct TracedLink {
  std::string name;
  std::vector<sim::LinkPoint> points;
};

// What one simulation leaves behind; all from the same plan.
struct TraceSource {
  const ir::Plan* plan = nullptr;
  const sim::PlanTasks* tasks = nullptr;
  const sim::CommunicatorTable* communicators = nullptr;
  const sim::Timeline* timeline = nullptr;
  const Pricer* pricer = nullptr;
  std::vector<TracedLink> links = {};
  const sim::Perturbation* perturbation = nullptr;  // of the step; null: none
  double fixed = 0;                                 // seconds outside the ops, behind them
  const Breakdown* breakdown = nullptr;             // of the step; null: not known
};

// Ops that the executor joined into one task share its time in proportion to their device times. A kernel lasts as long as the
// device works at it at full speed, as in the breakdown: where the host is late or messages slow it, it stands behind a gap. "ProfilerStep#1" lasts for the
// whole step, fixed costs included.
void WriteTrace(const TraceSource& source, std::ostream* out);
// The same, compressed; false when `out` has failed.
bool WriteGzipTrace(const TraceSource& source, std::ostream* out);

}  // namespace orrery::report
