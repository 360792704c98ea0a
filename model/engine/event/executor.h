// SPDX-License-Identifier: Apache-2.0
// Plays one training step of a plan on a cluster as a discrete-event simulation.
//
// Each rank issues its tasks per stream in order; a task waits for tasks on other streams as byte
// hazards demand; compute takes the device's time, longer while communication runs beside it; a
// collective starts when its last member arrives, a transfer when sender and receiver are there,
// and their bytes compete with everybody else's for links. What kind of parallelism a plan uses is
// not known here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/engine/event/communicators.h"

namespace orrery::sim {

// Seconds of one rank's step.
struct RankTime {
  double compute = 0;     // nothing else
  double overlapped = 0;  // compute with communication beside it
  double exposed = 0;     // communication, and no compute
  double idle = 0;        // neither: waits for others
  double end = 0;         // its last task

  double total() const { return compute + overlapped + exposed + idle; }
};

struct StepResult {
  double seconds = 0;           // until the last rank has ended
  std::vector<int64_t> ranks;   // executed
  std::vector<RankTime> times;  // of them
  int64_t ops = 0;              // executed plan ops, with those of ranks that others stand for
  int64_t tasks = 0;
  std::size_t paths = 0;  // that were simulated
};

// What makes ranks differ. Links are degraded through Wires.
struct Perturbation {
  double jitter = 0;  // standard deviation of each task's compute time, relative
  uint64_t seed = 1;  // same seed, same step
  std::vector<double>
      slowdown;  // of compute, by rank of the plan: 1.2 takes 20 % longer; empty: none
};

// When a task ran, in seconds since the step began.
struct TaskSpan {
  double start = 0;
  double earliest = 0;  // for the host: compute ends no earlier, communication starts no earlier
  double met = 0;       // communication: the last partner has come
  double end = 0;
};
// By index into StepResult::ranks and by task of the rank's stage.
using Timeline = std::vector<std::vector<TaskSpan>>;

// Plays the tasks; `timeline`, if not null, learns when each of them ran. Throws InputError: partners that disagree on a
// message; a deadlock, with what each stuck stream waits for.
StepResult Execute(const ir::Plan& plan, const PlanTasks& tasks, CommunicatorTable* communicators,
                   const Perturbation& perturbation = {}, Timeline* timeline = nullptr);

}  // namespace orrery::sim
