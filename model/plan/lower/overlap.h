// SPDX-License-Identifier: Apache-2.0
// Which layouts reduce their gradients beside the backward pass, and how much of that stays visible.
//
// A software reduces whole replicas (one stage, nothing sharded over the data axis) differently from
// everything else: Megatron of 2020 and DeepSpeed 0.3 offer it beside the backward pass where their
// pipelines and optimizers reduce at its end. The closed form asks with a strategy, the simulator with
// the plan that was lowered from it: the answers are equal.
#pragma once

#include "model/plan/ir/plan.h"
#include "model/plan/lower/strategy.h"

namespace orrery {

// Parts of a software's gradient reduction that no compute hides, 0 to 1.
struct VisibleReduction {
  double usual = 1;           // 1: it begins when the backward pass is over
  double whole_replicas = 1;  // where that is less
};

bool HoldsWholeReplicas(const Strategy& strategy);
bool HoldsWholeReplicas(const ir::Plan& plan);

double VisibleShare(const VisibleReduction& software, bool whole_replicas);

// Takes the overlaps away from a layout whose reduction this software begins after the backward pass.
// With ZeRO 2 and 3 it is in the passes anyway.
void FollowFramework(const VisibleReduction& software, Strategy* strategy);

}  // namespace orrery
