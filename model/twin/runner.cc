// SPDX-License-Identifier: Apache-2.0
// Spreads splits over threads and merges what they found.
#include "model/twin/runner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>

#include "model/base/check.h"
#include "model/base/parallel.h"
#include "model/base/text.h"
#include "model/memory/software_memory.h"

namespace orrery {
namespace {

constexpr std::size_t kDone = static_cast<std::size_t>(-1);

}  // namespace

void Runner::Run(bool prune) {
  results_.assign(splits_.size(), {});
  next_.assign(splits_.size(), 0);
  given_.assign(splits_.size(), 0);
  EvaluateOptions options;
  options.prune = prune;
  OverSplits("searching", [&](Evaluator& evaluator, std::size_t i) {
    results_[i] = evaluator.Run(splits_[i], static_cast<int64_t>(i), options);
  });
  MergeCounts();
}

void Runner::OverSplits(const char* what,
                        const std::function<void(Evaluator&, std::size_t)>& each) {
  const int used =
      std::clamp<int>(threads(), 1, std::max<int>(1, static_cast<int>(splits_.size() / 4)));
  of_threads_.resize(static_cast<std::size_t>(used) - 1);
  std::atomic<std::size_t> next{0};
  OnThreads(used, [&](int thread) {
    const Evaluators& evaluators = EvaluatorsOf(thread);
    for (std::size_t i = next++; i < splits_.size(); i = next++) {
      each(*evaluators[splits_[i].job], i);
      if (request_.progress)
        request_.progress(what, static_cast<double>(i + 1) / static_cast<double>(splits_.size()));
    }
  });
}

// Made when the thread first needs them.
Runner::Evaluators& Runner::EvaluatorsOf(int thread) {
  if (thread == 0) return evaluators_;
  Evaluators& own = of_threads_[static_cast<std::size_t>(thread) - 1];
  if (own.empty()) {
    for (const Job& job : jobs_)
      own.push_back(
          std::make_unique<Evaluator>(request_, preset_, limits_, job, memory_, shapes_.get()));
  }
  return own;
}

// All splits are done: what a row takes is known but for what moving layers saves, the same with any number of threads.
void Runner::MoveLayers(std::size_t rows) {
  constexpr std::size_t kBeyond = 3;  // of the rows: some may not fit by their exact memory
  const double margin = limits_.WithMargin().value;
  std::vector<double> values;
  for (const SplitResult& result : results_) {
    for (const Entry& entry : result.best) {
      const Bytes total = limits_.Total(Bytes(entry.allocated), Communicators(entry.strategy));
      if (total.value > margin) continue;
      values.push_back(entry.rank.value);
      if (!variants()) break;
    }
  }
  std::ranges::sort(values);
  const double below = values.size() > rows + kBeyond ? values[rows + kBeyond]
                                                      : std::numeric_limits<double>::infinity();
  moved_below_ = below;
  OverSplits("sharing layers", [&](Evaluator& evaluator, std::size_t i) {
    evaluator.MoveLayers(splits_[i], below, variants() ? Moves::kAll : Moves::kBest, &results_[i]);
  });
  for (const SplitResult& result : results_) counts_.shares += result.counts.shares;
}

// Where nothing fits no row says how fast they have to be: the best of them do, as they are.
void Runner::MoveUnfit(std::size_t near_misses) {
  double near_below = moved_below_, unlimited_below = moved_below_;
  const auto fits = [](const SplitResult& result) { return !result.best.empty(); };
  if (near_misses > 0 && std::ranges::none_of(results_, fits)) {
    std::vector<double> near;
    for (const SplitResult& result : results_) {
      if (result.near_miss) near.push_back(result.near_miss->rank.value);
      if (result.unlimited)
        unlimited_below = std::min(unlimited_below, result.unlimited->rank.value);
    }
    std::ranges::sort(near);
    if (near.size() >= near_misses) near_below = near[near_misses - 1];
  }
  for (SplitResult& result : results_) result.counts.shares = {};
  OverSplits("sharing layers", [&](Evaluator& evaluator, std::size_t i) {
    evaluator.MoveUnfit(splits_[i], near_below, unlimited_below, &results_[i]);
  });
  for (const SplitResult& result : results_) counts_.shares += result.counts.shares;
}

void Runner::MergeCounts() {
  for (std::size_t i = 0; i < results_.size(); ++i) {
    const SplitResult& result = results_[i];
    counts_.space += result.counts.space;
    counts_.illegal += result.counts.illegal;
    counts_.over_memory += result.counts.over_memory;
    counts_.bounded += result.counts.bounded;
    counts_.evaluated += result.counts.evaluated;
    for (const auto& [reason, tally] : result.refusals) {
      Tally& merged = refusals_[reason];
      merged.strategies += tally.strategies;
      if (merged.example.empty()) merged.example = ChoiceOf(splits_[i].job) + tally.example;
    }
  }
}

const Entry* Runner::EntryAt(std::size_t split, std::size_t place) {
  SplitResult& result = results_[split];
  if (place >= result.best.size() && result.truncated && !result.best.empty()) {
    EvaluateOptions options;
    options.after = result.best.back().rank;
    const SplitResult more =
        evaluators_[splits_[split].job]->Run(splits_[split], static_cast<int64_t>(split), options);
    result.best.insert(result.best.end(), more.best.begin(), more.best.end());
    result.truncated = more.truncated;
  }
  return place < result.best.size() ? &result.best[place] : nullptr;
}

const Entry* Runner::Head(std::size_t split) { return EntryAt(split, next_[split]); }

// `every`: splits that gave a candidate already, too.
std::size_t Runner::FirstSplit(bool every) {
  std::size_t first = kDone;
  const Entry* best = nullptr;
  for (std::size_t i = 0; i < splits_.size(); ++i) {
    if (!every && given_[i] != 0) continue;
    const Entry* entry = Head(i);
    if (entry == nullptr || (best != nullptr && !(entry->rank < best->rank))) continue;
    best = entry, first = i;
  }
  return first;
}

std::optional<Candidate> Runner::Suited(double value, bool every, std::size_t* split) {
  const double margin = limits_.WithMargin().value;
  for (;;) {
    const std::size_t first = FirstSplit(every);
    if (first == kDone || Head(first)->rank.value >= value) return std::nullopt;
    const Entry entry = *Head(first);
    // The bound is below the exact memory: above the margin it decides without a plan.
    if (limits_.Total(Bytes(entry.allocated), Communicators(entry.strategy)).value > margin) {
      nearly_full_.emplace(entry.rank, entry);
      ++next_[first];
      continue;
    }
    Candidate candidate = Complete(entry, true);
    if (candidate.memory->fits && !candidate.memory->nearly_full) {
      *split = first;
      return candidate;
    }
    if (candidate.memory->fits) nearly_full_.emplace(entry.rank, entry);
    counts_.exact_over_memory += !candidate.memory->fits;
    ++next_[first];
  }
}

std::optional<Candidate> Runner::NextBelow(double value, bool every) {
  std::size_t split = 0;
  std::optional<Candidate> candidate = Suited(value, every, &split);
  if (!candidate) return std::nullopt;
  ++next_[split];
  given_[split] = variants() ? 0 : 1;
  return candidate;
}

std::optional<Candidate> Runner::Next() {
  return NextBelow(std::numeric_limits<double>::infinity(), false);
}

// A shorter step does not shorten the wait for its input, so a smaller objective by as much is a bound alone.
bool Runner::AnyBelow(double value, double shrunk) {
  const double margin = limits_.WithMargin().value;
  const auto may = [&](std::size_t split, const Entry& entry) {
    if (limits_.Total(Bytes(entry.allocated), Communicators(entry.strategy)).value > margin)
      return false;
    if (ObjectiveValue(request_, shrunk * entry.seconds, jobs_[splits_[split].job],
                       entry.strategy.data_parallel()) >= value)
      return false;
    const Candidate candidate = Complete(entry, true);
    return candidate.memory->fits && !candidate.memory->nearly_full;
  };
  for (std::size_t i = 0; i < splits_.size(); ++i) {
    for (std::size_t at = next_[i];; ++at) {
      const Entry* entry = EntryAt(i, at);
      if (entry == nullptr || shrunk * entry->rank.value >= value) break;
      if (may(i, *entry)) return true;
    }
  }
  return false;
}

std::optional<Candidate> Runner::BestNearlyFull(double value) {
  for (const auto& [rank, entry] : nearly_full_) {
    if (rank.value >= value) break;
    Candidate candidate = Complete(entry, true);
    if (candidate.memory->fits) return candidate;
  }
  return std::nullopt;
}

std::optional<Candidate> Runner::NextNearlyFull() {
  for (const auto& [rank, entry] : nearly_full_) {
    const auto split = static_cast<std::size_t>(rank.split);
    if ((full_given_ && rank <= *full_given_) || given_[split] != 0) continue;
    full_given_ = rank;
    Candidate candidate = Complete(entry, true);
    if (!candidate.memory->fits) {
      ++counts_.exact_over_memory;
      continue;
    }
    given_[split] = variants() ? 0 : 1;
    return candidate;
  }
  return std::nullopt;
}

// By (tp, pp), each list and the lists best first.
std::vector<std::vector<const Entry*>> Runner::Layouts() const {
  std::map<std::pair<int, int>, std::vector<const Entry*>> layouts;
  for (const SplitResult& result : results_) {
    for (const Entry& entry : result.best)
      layouts[{entry.strategy.tp, entry.strategy.pp}].push_back(&entry);
  }
  std::vector<std::vector<const Entry*>> ordered;
  const auto better = [](const Entry* a, const Entry* b) { return a->rank < b->rank; };
  for (auto& [degrees, entries] : layouts) {
    std::sort(entries.begin(), entries.end(), better);
    ordered.push_back(std::move(entries));
  }
  std::sort(ordered.begin(), ordered.end(),
            [&](const auto& a, const auto& b) { return better(a[0], b[0]); });
  return ordered;
}

void Runner::Prepare(std::size_t rows, std::size_t layouts) {
  std::vector<const Entry*> entries;
  for (const SplitResult& result : results_) {
    if (!result.best.empty()) entries.push_back(&result.best.front());
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->rank < b->rank; });
  if (entries.size() > rows) entries.resize(rows);
  const std::vector<std::vector<const Entry*>> best = Layouts();
  for (std::size_t i = 0; i < std::min(layouts, best.size()); ++i) entries.push_back(best[i][0]);
  LayOutAll(entries);
}

void Runner::LayOutAll(const std::vector<const Entry*>& entries) {
  std::vector<Candidate*> works;
  for (const Entry* entry : entries) {
    const auto [at, added] = completed_.try_emplace({entry->rank.split, entry->rank.sequence});
    if (!added) continue;
    at->second = Fill(*entry);
    works.push_back(&at->second);
  }
  counts_.exact_memory += static_cast<int64_t>(works.size());
  EachOnThreads(threads(), works.size(), [&](std::size_t i) { LayOut(works[i]); });
}

int Runner::threads() const {
  return request_.threads > 0 ? request_.threads
                              : static_cast<int>(std::thread::hardware_concurrency());
}

std::vector<Candidate> Runner::BestOfEachLayout(std::size_t most) {
  std::vector<Candidate> found;
  for (const auto& entries : Layouts()) {
    if (found.size() == most) break;
    for (const Entry* entry : entries) {
      Candidate candidate = Complete(*entry, true);
      if (!candidate.memory->fits || candidate.memory->nearly_full) continue;
      found.push_back(std::move(candidate));
      break;
    }
  }
  return found;
}

std::vector<Candidate> Runner::NearMisses(double value, std::size_t most) {
  std::vector<const Entry*> entries;
  for (const SplitResult& result : results_) {
    if (result.near_miss && result.near_miss->rank.value < value)
      entries.push_back(&*result.near_miss);
  }
  std::sort(entries.begin(), entries.end(),
            [](const Entry* a, const Entry* b) { return a->rank < b->rank; });
  if (entries.size() > most) entries.resize(most);
  LayOutAll(entries);
  std::vector<Candidate> misses;
  for (const Entry* entry : entries) misses.push_back(Complete(*entry, true));
  return misses;
}

std::optional<Entry> Runner::BestOf(std::optional<Entry> SplitResult::*member) const {
  std::optional<Entry> best;
  for (const SplitResult& result : results_) {
    const std::optional<Entry>& entry = result.*member;
    if (entry && (!best || entry->rank < best->rank)) best = entry;
  }
  return best;
}

const Job& Runner::JobOf(const Candidate& candidate) const {
  for (const Job& job : jobs_) {
    if (job.cluster.nodes == candidate.nodes && job.work.global_batch == candidate.global_batch)
      return job;
  }
  ORRERY_CHECK(false, "no job with {} nodes and batch {}", candidate.nodes, candidate.global_batch);
}

Candidate Runner::Complete(const Entry& entry, bool exact_memory) {
  if (!exact_memory) return Fill(entry);
  const auto [at, added] = completed_.try_emplace({entry.rank.split, entry.rank.sequence});
  if (added) {
    at->second = Fill(entry);
    LayOut(&at->second);
    ++counts_.exact_memory;
  }
  return at->second;
}

BoundOfGpu Runner::MemoryBoundOf(const Entry& entry) const {
  const Job& job = jobs_[static_cast<std::size_t>(splits_[entry.rank.split].job)];
  if (!request_.topology.gpu_memory.empty())
    return orrery::MemoryBoundOf(job, entry.strategy, &memory_);
  return {limits_.Total(Bytes(entry.allocated), Communicators(entry.strategy)), limits_.capacity};
}

Candidate Runner::Fill(const Entry& entry) const {
  const auto index = static_cast<std::size_t>(splits_[entry.rank.split].job);
  Candidate candidate{
      PredictionOf(jobs_[index], entry.strategy,
                   std::get<StepTime>(evaluators_[index]->predictor().Predict(entry.strategy)))};
  candidate.memory_bound = MemoryBoundOf(entry).total;
  return candidate;
}

void Runner::LayOut(Candidate* candidate) const {
  const Job& job = JobOf(*candidate);
  auto plan = std::make_shared<const ir::Plan>(LowerLegal(job, candidate->strategy));
  AddMemoryOfLayout(job, *plan, candidate);
  candidate->plan = std::move(plan);
}

}  // namespace orrery
