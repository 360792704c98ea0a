// SPDX-License-Identifier: Apache-2.0
// One abstract run of tasks on several stages: lanes are FIFO, waits order tasks of a stage, and
// tasks with one match number complete together. Whether it gets stuck does not depend on the
// interleaving, so one run is a proof.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orrery::ir {

struct StageTasks {
  std::vector<int32_t> lane;      // by task, in issue order
  std::vector<int32_t> match;     // by task; -1: completes on its own
  std::vector<int32_t> wait_end;  // by task: end of its part of `waits`
  std::vector<int32_t> waits;     // earlier tasks of the stage
  int lanes = 0;

  void Reserve(size_t tasks) {
    lane.reserve(tasks);
    match.reserve(tasks);
    wait_end.reserve(tasks);
    waits.reserve(tasks);
  }
  void Add(int32_t task_lane, int32_t task_match) {
    lane.push_back(task_lane);
    match.push_back(task_match);
    wait_end.push_back(static_cast<int32_t>(waits.size()));
  }
  void WaitFor(int32_t task) {  // of the task added last
    waits.push_back(task);
    ++wait_end.back();
  }
};

// By stage: the first unfinished task of each lane when nothing moves any more; all empty:
// everything completes. `needed`: by match, how many tasks meet. `window` > 0: a stage issues in
// order and keeps at most so many unfinished.
std::vector<std::vector<int32_t>> RunRendezvous(const std::vector<StageTasks>& stages,
                                                const std::vector<int32_t>& needed, int window);

}  // namespace orrery::ir
