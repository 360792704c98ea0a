// SPDX-License-Identifier: Apache-2.0
// Simulates what an answer compares, op by op and with contention, and ranks it by step time.
//
// Idea: the closed form leaves most contention out, so what it puts first may not be first. Simulated are the rows of the
// answer, the best of other degrees, and then, in the closed form's order, every layout whose closed form says that it
// may still beat the fastest simulated one: its closed-form time is below that, divided by the least ratio of simulated
// to closed-form time seen so far where that is below 1.
// Engine: the executor of model/engine/event over the fluid network; replicas of the data are executed once.
// Effort is bounded by counted ops, never by a clock: the same request gives the same result. A layout has one step time
// in every answer (Settle() of predict.h), so that a bound on all of them together holds only for layouts beyond the rows:
// those it leaves out are not shown. Layouts too large to simulate alone keep the closed form and are ranked by it.
#pragma once

#include <map>
#include <span>

#include "model/twin/runner.h"

namespace orrery {

// Gives candidates the step time of every answer, see Settle().
class CandidateSimulator {
 public:
  // Both must outlive it.
  CandidateSimulator(const SearchRequest& request, const Runner& runner)
      : request_(request), runner_(runner), left_(request.refine_ops) {}

  // Those that have none yet, in order: `rows` whatever they take together, others as far as the budget reaches. True: all
  // of `candidates` have theirs now.
  bool Simulate(std::span<Candidate* const> candidates, bool rows = false);

  int simulated() const { return simulated_; }

 private:
  const Cluster& ClusterOf(int64_t nodes);

  const SearchRequest& request_;
  const Runner& runner_;
  double left_;
  int simulated_ = 0;
  std::map<int64_t, Cluster> clusters_;  // by nodes
};

// `ranked`: best first by the closed form, all of them rows of the answer; `others`: the best of other degrees. Both
// become the best ones by step time, `ranked` with at most as many rows as before.
Refinement Refine(const SearchRequest& request, Runner* runner, CandidateSimulator* simulator,
                  std::vector<Candidate>* ranked, std::vector<Candidate>* others);

// What the order of `ranked` owes to the simulation, in words; at most `most`. Candidates behind
// the first `shown` are named by layout instead of number.
std::vector<std::string> OrderChanges(const std::vector<Candidate>& ranked, std::size_t shown,
                                      std::size_t most);

}  // namespace orrery
