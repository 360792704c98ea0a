// SPDX-License-Identifier: Apache-2.0
// Test support: trains cases of the parity grid with the real runtime on threads.
#pragma once

#include <string>
#include <vector>

#include "runtime/train/train_rank.h"
#include "tests/parity/parity.h"

namespace orrery::runtime_test {

struct Trained {
  std::vector<launch::StepRecord> steps;  // of rank 0
  std::vector<int64_t> arenas;            // by rank
  std::string failure;                    // empty: none
};

ir::Plan LowerFor(const parity::Job& job, const Strategy& strategy);
Strategy OneRank(const parity::Job& job);

Trained Train(const ir::Plan& plan, const parity::Job& job, int64_t steps, bool poison = true,
              const std::vector<launch::StepHook*>& hooks = {}, double deadline_s = 60);

// The largest relative deviation of loss and of gradient norm between two runs.
struct Deviation {
  double loss = 0, norm = 0;
};
Deviation Compare(const Trained& a, const Trained& b);

}  // namespace orrery::runtime_test
