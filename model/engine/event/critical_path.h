// SPDX-License-Identifier: Apache-2.0
// The chain of tasks that a step waited for, from its end back to its beginning.
//
// Each task's binding predecessor is the one that ended last before it: the one before it on its
// stream, one on another stream that it waited for, or, for a message, the partner that came last.
// The pieces of the path follow each other without gaps, from 0 to the end of the step.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/engine/event/executor.h"
#include "model/engine/event/task_ops.h"

namespace orrery::sim {

// A task of the path. A message is entered on one rank and left on the one that came last to it.
struct PathTask {
  uint32_t rank = 0;  // index into executed ranks
  int32_t task = -1;
  uint32_t last_rank = 0;  // equal but for messages
  int32_t last_task = -1;
};
// Backwards in time.
std::vector<PathTask> TasksOfPath(const ir::Plan& plan, const PlanTasks& tasks,
                                  const CommunicatorTable& communicators, const Timeline& timeline);

struct PathClass {
  std::string name;  // "GEMM", "tp traffic", "host"
  double seconds = 0;
};

// The path's stay on one rank.
struct PathStretch {
  int64_t rank = 0;
  int stage = 0;
  double begin = 0, end = 0;
  std::string first, last;  // "F0[3]": block and micro-batch of the tasks at both ends

  double seconds() const { return end - begin; }
};

struct CriticalPath {
  std::vector<PathClass> classes;      // largest first; the seconds add up to the step
  std::vector<PathStretch> stretches;  // in order of time
  int64_t tasks = 0;
};

// `ops` by stage, of all stages; `timeline` of the same simulation.
CriticalPath FindCriticalPath(const ir::Plan& plan, const PlanTasks& tasks,
                              const CommunicatorTable& communicators, const Timeline& timeline,
                              const std::vector<TaskOps>& ops, const Perturbation& perturbation);

// What of a compute task's time the device waits for its host.
double HostShare(const Task& task, const TaskSpan& span, double compute_factor);

}  // namespace orrery::sim
