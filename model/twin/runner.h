// SPDX-License-Identifier: Apache-2.0
// One search under way: settings, jobs, threads, and exact memory for what is shown.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "model/twin/evaluator.h"

namespace orrery {

class Runner {
 public:
  // Throws InputError when the request contradicts itself. Request and profiles must outlive it.
  Runner(const SearchRequest& request, const Profiles& profiles);

  // Evaluates every job.
  void Run(bool prune = true);
  // The next best strategy that fits, by exact memory; nullopt: none is left. Unless the request asks for variants,
  // each job gives one.
  std::optional<Candidate> Next();
  // The best that fits of each (tp, pp) other than the winner's, best first.
  std::vector<Candidate> OtherLayouts(const Candidate& winner, std::size_t most);
  std::vector<Candidate> NearMisses(const Candidate* winner, std::size_t most);
  // The smallest by one of the members of JobResult.
  std::optional<Entry> BestOf(std::optional<Entry> JobResult::*member) const;

  // Time, price and, with `exact_memory`, the lowered plan's memory and what verify says of it.
  Candidate Complete(const Entry& entry, bool exact_memory);
  std::variant<Candidate, Refusal> Assess(const Strategy& strategy);

  std::vector<Rejection> Rejections() const;
  const SearchCounts& counts() const { return counts_; }
  const MemoryLimits& limits() const { return limits_; }
  const Setting& SettingOf(const Candidate& candidate) const;

 private:
  void MakeSettings();
  void MakeJobs();
  void CountUndivided(const Job& degrees, int setting);
  void MergeCounts();
  void Advance(std::size_t job);
  std::string MemoryExample() const;
  Candidate Fill(const Entry& entry, std::size_t setting, bool exact_memory, bool digest = false);

  const SearchRequest& request_;
  const Profiles& profiles_;
  const FrameworkPreset& preset_;
  MemoryLimits limits_;
  MemoryModel memory_;
  std::vector<std::unique_ptr<Setting>> settings_;
  std::vector<std::unique_ptr<Evaluator>> evaluators_;  // of the calling thread, by setting
  std::vector<Job> jobs_;
  std::vector<JobResult> results_;
  std::vector<std::size_t> next_;  // by job: position in `best`
  SearchCounts counts_;
  std::map<std::string, Tally> refusals_;
};

}  // namespace orrery
