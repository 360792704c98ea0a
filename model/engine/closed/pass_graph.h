// SPDX-License-Identifier: Apache-2.0
// What each pass of a pipeline waits for. It follows from the schedule alone: layouts that differ in anything that takes
// time share it.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "model/plan/lower/schedules.h"

namespace orrery {

// The passes of all stages, each behind all that it waits for. Number 0 is no pass: it ended at 0.
struct PassGraph {
  struct Pass {
    int work = 0;       // virtual stage x 3 + kind
    int16_t stage = 0;  // a search walks millions of passes: a cache line holds two
    int16_t hop = 0;    // stage x 2, one more for what comes from the next stage
    bool receives = false, loads = false;
    bool first = false;  // forward pass of the first micro-batch
    bool last = false;   // backward pass of the last one
    // The pass that makes what it receives; of the head, whose layers may be none, the pass that receives its tensor.
    int sender = 0;
    int before = 0;    // the pass of its stage and kind before it: messages arrive in order
    int received = 0;  // the pass that ends with the slot of what it receives free
    int next = -1;     // work of the stage's next pass, where that receives a tensor
    int sent = 0;      // the pass of the receiver that takes what the slot of what it sends held
  };
  std::vector<Pass> passes;
  // By stage and kind, in order.
  std::vector<std::array<std::vector<int>, 3>> of_stage;
  std::vector<int> ahead;  // by stage: as PassOrder has it
};

struct PassGraphKey {
  PassRules order;
  int stages = 2, chunks = 1, micro_batches = 1;
};

PassGraph MakePassGraph(const PassGraphKey& key);

// Keeps graphs of at most some megabytes. Not for concurrent use.
class PassGraphs {
 public:
  // Valid until the next call.
  const PassGraph& Of(const PassGraphKey& key);

 private:
  std::map<std::array<int, 7>, PassGraph> kept_;
  std::size_t passes_ = 0;  // of all
};

}  // namespace orrery
