// SPDX-License-Identifier: Apache-2.0
// A search from request to result.
#include "model/twin/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <set>

#include "model/base/parallel.h"
#include "model/twin/explain.h"
#include "model/twin/placed_traffic.h"
#include "model/twin/refine.h"
#include "model/twin/time_bound.h"

namespace orrery {
namespace {

constexpr std::size_t kComparisons = 3;
constexpr std::size_t kNearMisses = 3;
constexpr std::size_t kMostChanges = 3;
constexpr std::size_t kSharesCompared = 3;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t Shown(const SearchRequest& request) {
  return static_cast<std::size_t>(std::max(1, request.top));
}

void RankCandidates(Runner& runner, std::size_t wanted, SearchResult* result) {
  while (result->ranked.size() < wanted) {
    auto candidate = runner.Next();
    if (!candidate) candidate = runner.NextNearlyFull();  // below all others
    if (!candidate) break;
    result->ranked.push_back(std::move(*candidate));
  }
}

// Of layouts that are shown and not compared.
void SettleAll(const SearchRequest& request, const Runner& runner,
               std::vector<Candidate>* candidates) {
  if (request.refine == 0) return;
  std::vector<Candidate*> all;
  for (Candidate& candidate : *candidates) all.push_back(&candidate);
  CandidateSimulator(request, runner).Simulate(all, true);
}

// The best of other degrees than the winner's, out of `others`, best first.
std::vector<Candidate> OtherLayouts(const std::vector<Candidate>& others, const Candidate& winner) {
  std::vector<Candidate> found;
  std::set<std::pair<int, int>> seen = {{winner.strategy.tp, winner.strategy.pp}};
  for (const Candidate& other : others) {
    if (found.size() < kComparisons && seen.emplace(other.strategy.tp, other.strategy.pp).second)
      found.push_back(other);
  }
  return found;
}

// Candidates that do not fit, with the step time of every answer; only what is faster than the winner stays.
class Alternatives {
 public:
  Alternatives(const SearchRequest& request, Runner* runner, CandidateSimulator* simulator,
               const Candidate& winner)
      : request_(request), runner_(*runner), simulator_(simulator), winner_(winner) {}

  // What fits without the margin and is faster.
  void FindNearlyFull(SearchResult* result) {
    if (winner_.memory->nearly_full) return;  // nothing fits with it
    if (auto best = runner_.BestNearlyFull(ValueOf(winner_))) {
      std::vector<Candidate> faster = Faster({std::move(*best)});
      if (!faster.empty()) result->nearly_full = std::move(faster.front());
    }
  }

  void Find(SearchResult* result) {
    result->near_misses = Faster(runner_.NearMisses(ValueOf(winner_), kNearMisses));
    const auto entry = runner_.BestOf(&SplitResult::unlimited);
    if (!entry || entry->rank.value >= ValueOf(winner_)) return;
    Candidate unlimited = runner_.Complete(*entry, simulator_ != nullptr);
    for (const Candidate& miss : result->near_misses) {  // often one of them
      if (miss.nodes == unlimited.nodes && miss.global_batch == unlimited.global_batch &&
          DescribeLayout(miss.strategy) == DescribeLayout(unlimited.strategy))
        unlimited = miss;
    }
    std::vector<Candidate> faster = Faster({std::move(unlimited)});
    if (!faster.empty()) result->unlimited = std::move(faster.front());
  }

 private:
  double ValueOf(const Candidate& candidate) const {
    return ObjectiveValue(request_, candidate.time.total, runner_.JobOf(candidate),
                          candidate.strategy.data_parallel());
  }

  std::vector<Candidate> Faster(std::vector<Candidate> candidates) {
    if (simulator_ != nullptr) {
      std::vector<Candidate*> all;
      for (Candidate& candidate : candidates) all.push_back(&candidate);
      simulator_->Simulate(all, true);  // shown, if faster: whatever the rows have left
    }
    std::erase_if(candidates, [&](const Candidate& candidate) {
      return (simulator_ != nullptr && !candidate.settled()) ||
             ValueOf(candidate) >= ValueOf(winner_);
    });
    return candidates;
  }

  const SearchRequest& request_;
  Runner& runner_;
  CandidateSimulator* const simulator_;  // null: by the closed form
  const Candidate& winner_;
};

// `simulator`: null where the request wants no simulation.
void ExplainWinner(Runner& runner, CandidateSimulator* simulator, const SearchRequest& request,
                   const Profiles& profiles, const std::vector<Candidate>& others,
                   SearchResult* result) {
  const Candidate& winner = result->ranked.front();
  const auto fed = [&](const Candidate& of) {
    return FedIn(request.input, runner.JobOf(of), of.strategy.data_parallel());
  };
  SearchRequest unfed = request;
  unfed.input = {};
  const auto value = [&](const Candidate& of, double seconds) {
    return ObjectiveValue(unfed, seconds, runner.JobOf(of), of.strategy.data_parallel());
  };
  // What a second of a step counts in seconds of the winner's. Runs have parts beside their steps.
  const auto weight = [&](const Candidate& of) {
    const double seconds = winner.time.total;
    const bool alike = value(of, seconds) == value(winner, seconds);
    return alike ? 1.0
                 : value(of, of.time.total) / of.time.total / (value(winner, seconds) / seconds);
  };
  Alternatives alternatives(request, &runner, simulator, winner);
  alternatives.FindNearlyFull(result);
  for (const Candidate& other : OtherLayouts(others, winner))
    result->comparisons.push_back(
        Compare(winner, other, {fed(winner), fed(other), request.input.slowest, weight(other)}));
  alternatives.Find(result);
  result->limits =
      fed(winner) > winner.time.total
          ? std::vector<Limit>{InputLimit(winner, fed(winner), request.input.slowest)}
          : NextLimits(request, profiles, winner, result->unlimited, result->shapes.get());
}

// Layouts of one model and cluster share most of the errors: their difference is judged by those of
// published layouts of one sweep. Across clusters and batches the whole intervals count, of what the search ranks by: a
// step on other nodes is no faster for being shorter. Where one of the two is not simulated, the engines' own difference
// comes on top.
void MarkTies(const SearchRequest& request, const Runner& runner, SearchResult* result) {
  const auto value = [&](const Candidate& of, double seconds) {
    return ObjectiveValue(request, seconds, runner.JobOf(of), of.strategy.data_parallel());
  };
  const double engines = result->refinement ? std::log1p(result->refinement->disagreement) : 0.0;
  for (std::size_t i = 1; i < result->ranked.size(); ++i) {
    const Candidate& first = result->ranked.front();
    Candidate& other = result->ranked[i];
    const bool alike = first.nodes == other.nodes && first.global_batch == other.global_batch;
    const double across =
        first.simulated.has_value() == other.simulated.has_value() ? 0.0 : engines;
    other.tie_with_first =
        alike && other.difference > 0
            ? std::abs(std::log(value(other, other.time.total) / value(first, first.time.total))) <
                  other.difference + across
            : value(other, other.time.low) <= value(first, first.time.high) &&
                  value(first, first.time.low) <= value(other, other.time.high);
  }
}

// Of a layout's step with whatever shares of the layers.
double LeastOfShares(const Job& job, const Strategy& s, StepPredictor* predictor) {
  const auto found = predictor->Table(KeyOf(job.model, s));
  const auto* table = std::get_if<const LayerTable*>(&found);
  if (table == nullptr) return 0;
  const auto micro_batches = static_cast<double>(MicroBatches(job.work, s));
  const std::vector<double> slowdown = SlowdownOf(job);
  double least = slowdown.empty() ? LeastTime(**table, s, micro_batches) : 0.0;
  if (!slowdown.empty()) {
    for (const std::vector<double>& replica :
         PlacedTraffic(s, job.cluster.gpus_per_node)
             .SlowReplicas(InOrder(slowdown, OrderOf(job, s)), StagesWait(s)))
      least = std::max(least, LeastTime(**table, s, micro_batches, replica));
  }
  return least + predictor->closed_form().fixed;
}

// Of the first rows that have a layout of their own.
void CompareShares(const Runner& runner, std::vector<Candidate>* ranked) {
  for (std::size_t i = 0; i < std::min(kSharesCompared, ranked->size()); ++i) {
    Candidate& candidate = (*ranked)[i];
    if (candidate.shares.empty() || !candidate.strategy.layout) continue;
    const Job& job = runner.JobOf(candidate);
    Strategy equal = candidate.strategy;
    equal.layout = nullptr;
    StepPredictor predictor(job);
    const auto time = predictor.Predict(equal);
    if (std::holds_alternative<Refusal>(time)) continue;
    Prediction prediction = PredictionOf(job, equal, std::get<StepTime>(time));
    const ir::Plan plan = LowerLegal(job, equal);
    AddMemoryOfLayout(job, plan, &prediction);
    if (candidate.simulated) Settle(job, plan, ClusterOf(job), &prediction);
    if (candidate.simulated.has_value() == prediction.simulated.has_value())
      candidate.equals = {prediction.time.total, prediction.memory->fits,
                          LeastOfShares(job, candidate.strategy, &predictor)};
  }
}

}  // namespace

std::string ChosenWords(const SearchRequest& request, int64_t nodes, int64_t global_batch) {
  std::string words;
  if (request.nodes.size() > 1) words = fmt::format("{} node{}, ", nodes, nodes == 1 ? "" : "s");
  if (request.global_batches.size() > 1) words += fmt::format("batch {}, ", global_batch);
  return words;
}

Profiles LoadProfiles(const SearchRequest& request) {
  return LoadProfiles(request.topology, request.framework, request.flash_attention);
}

Job JobOf(const SearchRequest& request, const Profiles& profiles, int64_t nodes,
          int64_t global_batch) {
  Job job = MakeJob(request.model, request.work, request.topology, nodes, request.gpus_per_node,
                    profiles);
  job.work.global_batch = global_batch;
  job.memory_limit = request.memory_limit;
  job.most_effort = request.most_effort;
  if (request.node_price) job.node_price = request.node_price;
  return job;
}

Job JobOf(const SearchRequest& request, const Profiles& profiles) {
  return JobOf(
      request, profiles, request.nodes.empty() ? request.topology.nodes : request.nodes.front(),
      request.global_batches.empty() ? request.work.global_batch : request.global_batches.front());
}

SearchResult SearchOnly(const SearchRequest& request, const Profiles& profiles) {
  SearchResult result;
  Runner runner(request, profiles);
  runner.Run();
  runner.MoveLayers(Shown(request));
  RankCandidates(runner, Shown(request), &result);
  SettleAll(request, runner, &result.ranked);
  MarkTies(request, runner, &result);
  result.counts = runner.counts();
  if (!result.feasible()) result.rejections = runner.Rejections();
  return result;
}

SearchResult Search(const SearchRequest& request, const Profiles& profiles) {
  const double start = Now();
  SearchResult result;
  Runner runner(request, profiles);
  result.shapes = runner.shapes();
  runner.Run();
  const std::size_t rows =
      std::max(Shown(request), static_cast<std::size_t>(std::max(0, request.refine)));
  runner.MoveLayers(rows);
  runner.MoveUnfit(kNearMisses);
  runner.Prepare(rows, kComparisons + 1);
  RankCandidates(runner, rows, &result);
  if (result.feasible()) {
    std::vector<Candidate> others = runner.BestOfEachLayout(kComparisons + 1);
    CandidateSimulator simulator(request, runner);
    if (request.refine > 0)
      result.refinement = Refine(request, &runner, &simulator, &result.ranked, &others);
    if (result.refinement)
      result.refinement->changes = OrderChanges(result.ranked, Shown(request), kMostChanges);
    const Trust trust = LoadTrust();
    EachOnThreads(runner.threads(), result.ranked.size(), [&](std::size_t i) {
      Candidate& candidate = result.ranked[i];
      AddConfidence(runner.JobOf(candidate), trust, &candidate, result.shapes.get());
    });
    MarkTies(request, runner, &result);
    ExplainWinner(runner, result.refinement ? &simulator : nullptr, request, profiles, others,
                  &result);
    if (result.ranked.size() > Shown(request)) result.ranked.resize(Shown(request));
    if (!request.fixed.layout) CompareShares(runner, &result.ranked);
    if (result.refinement) result.refinement->simulated = simulator.simulated();
  } else {
    const auto settled = [&](std::optional<Entry> SplitResult::*member) {
      const auto entry = runner.BestOf(member);
      if (!entry) return std::optional<Candidate>();
      std::vector<Candidate> one = {runner.Complete(*entry, true)};
      SettleAll(request, runner, &one);
      return std::optional(std::move(one.front()));
    };
    result.unlimited = settled(&SplitResult::unlimited);
    result.closest = settled(&SplitResult::smallest);
    result.near_misses = runner.NearMisses(std::numeric_limits<double>::infinity(), kNearMisses);
    SettleAll(request, runner, &result.near_misses);
    result.remedies = FindRemedies(request, profiles);
  }
  result.rejections = runner.Rejections();
  result.counts = runner.counts();
  result.counts.seconds = Now() - start;
  return result;
}

SearchResult Search(const SearchRequest& request) { return Search(request, LoadProfiles(request)); }

}  // namespace orrery
