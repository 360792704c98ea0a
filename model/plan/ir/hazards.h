// SPDX-License-Identifier: Apache-2.0
// The program of one stage unfolded into op instances with the waits that byte hazards demand.
#pragma once

#include "model/plan/ir/layout.h"

namespace orrery::ir {

struct Instance {
  int32_t call;  // index into Layout::calls
  int32_t block;
  int32_t op;  // index into the block's ops
  int32_t micro_batch;
  std::vector<int32_t>
      waits;  // earlier instances on other streams (same-stream order is implied), pruned
};

// Instances in issue order; ops whose `when` flag the call lacks are left out.
std::vector<Instance> Unfold(const Plan& plan, const Program& program, const Layout& layout);

// Ops that the schedule issues, at most; nothing is unfolded for it.
double ScheduledOps(const Program& program);

}  // namespace orrery::ir
