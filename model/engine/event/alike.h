// SPDX-License-Identifier: Apache-2.0
// Ranks that do the same at the same time: one of each kind is executed.
//
// Idea: everything that a date depends on is a graph: ranks and the messages they take part in, messages and the paths
// of their traffic, paths and their links. Its coarsest equitable partition (colour refinement, Weisfeiler and Leman
// 1968; Paige and Tarjan, SIAM J. Comput. 16, 1987) has classes whose members see the same numbers of the same classes
// all around. The executor and max-min fairness are functions of that structure alone, so what is equal at the beginning
// of a step stays equal: a class is executed once, and its traffic crosses one link of each class with the weight of all
// of its members there. Nothing is assumed of axes: a slow rank, a slow node or a degraded link makes the classes
// that it touches smaller, and no others.
#pragma once

#include <vector>

#include "model/engine/event/communicators.h"

namespace orrery::sim {

// The table of one rank of each class, the first one; its dates are those of `whole` to rounding. `slowdown` as
// Perturbation. The table comes back as it is where ranks differ all, share cores, or their rates are logged.
CommunicatorTable MergeAlike(CommunicatorTable whole, const ir::Plan& plan, const PlanTasks& tasks,
                             const std::vector<double>& slowdown, net::Wires wires,
                             bool keep_whole);

}  // namespace orrery::sim
