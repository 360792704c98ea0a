// SPDX-License-Identifier: Apache-2.0
// The rule itself, on strategies and on plans.
#include "model/plan/lower/overlap.h"

#include <algorithm>

namespace orrery {

bool HoldsWholeReplicas(const Strategy& strategy) { return strategy.pp == 1 && strategy.zero == 0; }

bool HoldsWholeReplicas(const ir::Plan& plan) {
  return plan.programs.size() == 1 &&
         std::ranges::none_of(plan.programs.front().buffers,
                              [](const ir::Buffer& buffer) { return buffer.unit_shard_axis >= 0; });
}

double VisibleShare(const VisibleReduction& software, bool whole_replicas) {
  return whole_replicas ? std::min(software.usual, software.whole_replicas) : software.usual;
}

void FollowFramework(const VisibleReduction& software, Strategy* strategy) {
  if (strategy->zero >= 2 && !strategy->reduce_once) return;
  if (VisibleShare(software, HoldsWholeReplicas(*strategy)) < 1) return;
  strategy->overlap_grad_reduce = false;
  strategy->reduce_in_backward = false;
  strategy->overlap_param_gather = false;
}

}  // namespace orrery
