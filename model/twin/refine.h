// SPDX-License-Identifier: Apache-2.0
// Simulates what an answer compares, op by op and with contention, and ranks it by the simulated time.
//
// Idea: the closed form leaves contention out, so what it puts first may not be first. Simulated are the rows of the
// answer, the best of other degrees, and then, in the closed form's order, every layout whose closed form says that it
// may still beat the fastest simulated one: its closed-form time is below that, divided by the least ratio of simulated
// to closed-form time seen so far where that is below 1.
// Engine: the executor of model/engine/event over the fluid network; replicas of the data are executed once.
// Effort is bounded by counted ops, never by a clock: the same request gives the same result.
#pragma once

#include <map>
#include <span>

#include "model/twin/runner.h"

namespace orrery {

// Simulates candidates within one budget.
class CandidateSimulator {
 public:
  // Both must outlive it.
  CandidateSimulator(const SearchRequest& request, const Runner& runner)
      : request_(request), runner_(runner), left_(request.refine_ops) {}

  // Those that have no simulation yet, in order, as far as the budget reaches; their time, and what follows from it,
  // becomes the simulated one. True: all of `candidates` are simulated now.
  bool Simulate(std::span<Candidate* const> candidates);
  // What the simulation of a candidate takes, in ops.
  static double EffortOf(const Candidate& candidate);

  int simulated() const { return simulated_; }
  double left() const { return left_; }
  // Why a candidate could not be simulated although the budget reached.
  const std::map<const Candidate*, std::string>& refusals() const { return refusals_; }

 private:
  const Cluster& ClusterOf(int64_t nodes);

  const SearchRequest& request_;
  const Runner& runner_;
  double left_;
  int simulated_ = 0;
  std::map<int64_t, Cluster> clusters_;  // by nodes
  std::map<const Candidate*, std::string> refusals_;
};

// `ranked`: best first by the closed form, all of them rows of the answer; `others`: the best of other degrees. Either
// all rows are simulated, and both lists become the best ones by simulated time, with at most as many rows as before,
// or both stay as they are.
Refinement Refine(const SearchRequest& request, Runner* runner, CandidateSimulator* simulator,
                  std::vector<Candidate>* ranked, std::vector<Candidate>* others);

// What the order of `ranked` owes to the simulation, in words; at most `most`. Candidates behind
// the first `shown` are named by layout instead of number.
std::vector<std::string> OrderChanges(const std::vector<Candidate>& ranked, std::size_t shown,
                                      std::size_t most);

}  // namespace orrery
