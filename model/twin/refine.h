// SPDX-License-Identifier: Apache-2.0
// Plays the best candidates op by op, with contention, and ranks them by what that says.
//
// Engine: the executor of model/engine/event over the fluid network; replicas of the data are executed once.
// Effort is bounded by counted ops, never by a clock: the same request gives the same result.
#pragma once

#include "model/twin/runner.h"

namespace orrery {

// Simulates the first request.refine of `ranked` as far as request.refine_ops reaches; where all of
// them could be, orders them by the objective at their simulated times (closer than 1e-6: in the
// closed form's order). Sets Candidate::simulated and closed_rank.
Refinement Refine(const SearchRequest& request, const Runner& runner,
                  std::vector<Candidate>* ranked);

// What the order of `ranked` owes to the simulation, in words; at most `most`. Candidates behind
// the first `shown` are named by layout instead of number.
std::vector<std::string> OrderChanges(const std::vector<Candidate>& ranked, std::size_t shown,
                                      std::size_t most);

}  // namespace orrery
