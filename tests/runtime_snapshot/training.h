// SPDX-License-Identifier: Apache-2.0
// Test support: training on threads that saves and resumes.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/train/snapshot/hook.h"
#include "tests/runtime/single.h"

namespace orrery::snapshot {

struct Trained {
  std::map<int64_t, double> losses;  // by step, of rank 0
  std::vector<std::string> notes;    // of rank 0
  std::string failure;
};

// Snapshots as `options` say; seed, source and batch are filled in.
Trained Train(const parity::Job& job, const Strategy& strategy, int64_t steps, HookOptions options);

HookOptions Saving(const std::string& folder, int64_t every);
HookOptions Resuming(const std::string& folder);

// The largest relative deviation where both have a loss; infinite where they share none.
double Deviation(const Trained& a, const Trained& b);

}  // namespace orrery::snapshot
