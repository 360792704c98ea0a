// SPDX-License-Identifier: Apache-2.0
// One search under way: jobs, splits, threads, and exact memory for what is shown.
#pragma once

#include <deque>
#include <functional>
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
  // Behind Run(): moves layers between the stages of what may be among the best `rows` then.
  void MoveLayers(std::size_t rows);
  // Behind it: the same of the best `near_misses` of what needs more memory (0: of all) and of the fastest whatever its memory.
  void MoveUnfit(std::size_t near_misses);
  // The next best strategy that fits with the margin of the framework's memory_nearly_full, by exact memory; nullopt: none
  // is left. Unless variants(), each split gives one.
  std::optional<Candidate> Next();
  // Of the strategies that Next() and NextBelow() passed over because they fit without that margin only: the next best,
  // of a split that gave nothing yet, or of any (`every`) with an objective below `value`.
  std::optional<Candidate> NextNearlyFull();
  std::optional<Candidate> BestNearlyFull(double value);
  // The same while the objective is below `value`; `every`: of all strategies, splits that gave one included.
  std::optional<Candidate> NextBelow(double value, bool every);
  // Whether a strategy is left, by exact memory as above, whose objective is below `value` if its step takes `shrunk` times
  // its closed form.
  bool AnyBelow(double value, double shrunk);
  // Lays out, on all threads, what Next() will give `rows` times and the best of `layouts` (tp, pp).
  void Prepare(std::size_t rows, std::size_t layouts);
  // The best that fits with the margin of each (tp, pp), best first.
  std::vector<Candidate> BestOfEachLayout(std::size_t most);
  // Over memory by little, with an objective below `value`; best first.
  std::vector<Candidate> NearMisses(double value, std::size_t most);
  // The smallest by one of the members of SplitResult.
  std::optional<Entry> BestOf(std::optional<Entry> SplitResult::*member) const;

  // Time, price and, with `exact_memory`, the lowered plan's memory.
  Candidate Complete(const Entry& entry, bool exact_memory);

  std::vector<Rejection> Rejections() const;
  const SearchCounts& counts() const { return counts_; }
  // Each strategy is a row of its own, for there is one split alone or the request asks for it.
  bool variants() const { return request_.variants || splits_.size() == 1; }
  const MemoryLimits& limits() const { return limits_; }
  const Job& JobOf(const Candidate& candidate) const;

  int threads() const;
  const std::shared_ptr<ShapeCache>& shapes() const { return shapes_; }

 private:
  void MakeJobs();
  void MakeSplits();
  void CountUndivided(const Split& degrees, int job);
  void MergeCounts();
  using Evaluators = std::vector<std::unique_ptr<Evaluator>>;  // by job
  Evaluators& EvaluatorsOf(int thread);
  // Calls `each` of every split, on all threads.
  void OverSplits(const char* what, const std::function<void(Evaluator&, std::size_t)>& each);
  // The best strategy of a split that was not given yet; null: none is left.
  const Entry* Head(std::size_t split);
  const Entry* EntryAt(std::size_t split, std::size_t place);  // from the best on; null: no more
  std::size_t FirstSplit(bool every);
  // Steps over strategies that do not fit with the margin; the best below `value` that does, still to be given.
  std::optional<Candidate> Suited(double value, bool every, std::size_t* split);
  std::vector<std::vector<const Entry*>> Layouts() const;
  std::string ChoiceOf(int job) const;  // ChosenWords()
  std::string MemoryExample() const;
  BoundOfGpu MemoryBoundOf(const Entry& entry) const;
  Candidate Fill(const Entry& entry) const;
  void LayOut(Candidate* candidate) const;
  // What Complete() will hand out of them, on all threads.
  void LayOutAll(const std::vector<const Entry*>& entries);

  const SearchRequest& request_;
  const Profiles& profiles_;
  const FrameworkPreset& preset_;
  MemoryLimits limits_;
  mutable MemoryModel memory_;                                                 // a cache
  const std::shared_ptr<ShapeCache> shapes_ = std::make_shared<ShapeCache>();  // likewise
  std::deque<Job> jobs_;               // (nodes, global batch); evaluators refer to them
  Evaluators evaluators_;              // of the calling thread
  std::deque<Evaluators> of_threads_;  // of others
  std::vector<Split> splits_;
  std::vector<SplitResult> results_;
  std::vector<std::size_t> next_;      // by split: position in `best`
  std::vector<uint8_t> given_;         // by split: Next() gave one
  std::map<Rank, Entry> nearly_full_;  // passed over, by bound or exact memory
  std::optional<Rank> full_given_;     // the last that NextNearlyFull() looked at
  std::map<std::pair<int64_t, int64_t>, Candidate> completed_;  // by split and sequence
  SearchCounts counts_;
  double moved_below_ = 0;  // objective of the last row, where layers were moved
  std::map<std::string, Tally> refusals_;
};

}  // namespace orrery
