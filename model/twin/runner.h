// SPDX-License-Identifier: Apache-2.0
// One search under way: jobs, splits, threads, and exact memory for what is shown.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "model/twin/evaluator.h"

namespace orrery {

class Runner {
 public:
  // Throws InputError when the request contradicts itself. Request and profiles must outlive it.
  Runner(const SearchRequest& request, const Profiles& profiles);

  // Evaluates every split.
  void Run(bool prune = true);
  // The next best strategy that fits, by exact memory; nullopt: none is left. Unless the request asks for variants,
  // each split gives one.
  std::optional<Candidate> Next();
  // The best that fits of each (tp, pp) other than the winner's, best first.
  std::vector<Candidate> OtherLayouts(const Candidate& winner, std::size_t most);
  std::vector<Candidate> NearMisses(const Candidate* winner, std::size_t most);
  // The smallest by one of the members of SplitResult.
  std::optional<Entry> BestOf(std::optional<Entry> SplitResult::*member) const;

  // Time, price and, with `exact_memory`, the lowered plan's memory and what verify says of it.
  Candidate Complete(const Entry& entry, bool exact_memory);

  std::vector<Rejection> Rejections() const;
  const SearchCounts& counts() const { return counts_; }
  const MemoryLimits& limits() const { return limits_; }
  const Job& JobOf(const Candidate& candidate) const;

 private:
  void MakeJobs();
  void MakeSplits();
  void CountUndivided(const Split& degrees, int job);
  void MergeCounts();
  void Advance(std::size_t split);
  std::string MemoryExample() const;

  const SearchRequest& request_;
  const Profiles& profiles_;
  const FrameworkPreset& preset_;
  MemoryLimits limits_;
  MemoryModel memory_;
  std::deque<Job> jobs_;  // (nodes, global batch); evaluators refer to them
  std::vector<std::unique_ptr<Evaluator>> evaluators_;  // of the calling thread, by job
  std::vector<Split> splits_;
  std::vector<SplitResult> results_;
  std::vector<std::size_t> next_;  // by split: position in `best`
  SearchCounts counts_;
  std::map<std::string, Tally> refusals_;
};

}  // namespace orrery
