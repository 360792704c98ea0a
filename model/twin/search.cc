// SPDX-License-Identifier: Apache-2.0
// A search from request to result.
#include "model/twin/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "model/twin/explain.h"
#include "model/twin/refine.h"

namespace orrery {
namespace {

constexpr std::size_t kComparisons = 3;
constexpr std::size_t kNearMisses = 3;
constexpr std::size_t kMostChanges = 3;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::size_t Shown(const SearchRequest& request) {
  return static_cast<std::size_t>(std::max(1, request.top));
}

void RankCandidates(Runner& runner, std::size_t wanted, SearchResult* result) {
  runner.Run();
  while (result->ranked.size() < wanted) {
    auto candidate = runner.Next();
    if (!candidate) break;
    result->ranked.push_back(std::move(*candidate));
  }
}

void RefineRanked(const Runner& runner, const SearchRequest& request, SearchResult* result) {
  if (request.refine < 1 || !result->feasible()) return;
  result->refinement = Refine(request, runner, &result->ranked);
  if (result->refinement->ranked_by_simulation) {
    result->refinement->changes = OrderChanges(result->ranked, Shown(request), kMostChanges);
  }
}

// The best by the closed form, wherever the simulation put it.
const Candidate& FastestClosed(const std::vector<Candidate>& ranked) {
  return *std::min_element(ranked.begin(), ranked.end(), [](const auto& a, const auto& b) {
    return a.closed_rank < b.closed_rank;
  });
}

// Comparisons go by the engine that ranked.
void AddSimulated(const SearchResult& result, Candidate* other) {
  if (!result.refinement || !result.refinement->ranked_by_simulation) return;
  for (const Candidate& candidate : result.ranked) {
    if (candidate.nodes == other->nodes && candidate.global_batch == other->global_batch &&
        DescribeLayout(candidate.strategy) == DescribeLayout(other->strategy))
      *other = candidate;
  }
}

void ExplainWinner(Runner& runner, const SearchRequest& request, const Profiles& profiles,
                   SearchResult* result) {
  const Candidate& winner = result->ranked.front();
  for (Candidate& other : runner.OtherLayouts(winner, kComparisons)) {
    AddSimulated(*result, &other);
    result->comparisons.push_back(Compare(winner, other));
  }
  const Candidate& fastest = FastestClosed(result->ranked);
  const bool memory_limits =
      result->unlimited && result->unlimited->time.total < fastest.ClosedForm().total;
  result->limits =
      NextLimits(request, profiles, winner, memory_limits ? result->unlimited : std::nullopt);
  result->near_misses = runner.NearMisses(&fastest, kNearMisses);
}

// Of `one`: by simulation where both were simulated.
double SecondsOf(const Candidate& one, const Candidate& other) {
  return one.simulated && other.simulated ? one.time.total : one.ClosedForm().total;
}

// Layouts of one model and cluster share most of the errors: their difference is judged by those of
// published layouts of one sweep. Across clusters and batches the whole intervals count.
void MarkTies(SearchResult* result) {
  for (std::size_t i = 1; i < result->ranked.size(); ++i) {
    const Candidate& first = result->ranked.front();
    Candidate& other = result->ranked[i];
    const bool alike = first.nodes == other.nodes && first.global_batch == other.global_batch;
    other.tie_with_first =
        alike && other.difference > 0
            ? std::abs(std::log(SecondsOf(other, first) / SecondsOf(first, other))) <
                  other.difference
            : other.time.low <= first.time.high && first.time.low <= other.time.high;
  }
}

}  // namespace

Profiles LoadProfiles(const SearchRequest& request) {
  return LoadProfiles(request.topology, request.framework, request.flash_attention);
}

Job JobOf(const SearchRequest& request, const Profiles& profiles, int64_t nodes,
          int64_t global_batch) {
  Job job = MakeJob(request.model, request.work, request.topology, nodes, request.gpus_per_node,
                    profiles);
  job.work.global_batch = global_batch;
  job.memory_limit = request.memory_limit;
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
  RankCandidates(runner, Shown(request), &result);
  MarkTies(&result);
  result.counts = runner.counts();
  return result;
}

SearchResult Search(const SearchRequest& request, const Profiles& profiles) {
  const double start = Now();
  SearchResult result;
  Runner runner(request, profiles);
  RankCandidates(runner,
                 std::max(Shown(request), static_cast<std::size_t>(std::max(0, request.refine))),
                 &result);
  const Trust trust = LoadTrust();
  for (Candidate& candidate : result.ranked)
    AddConfidence(runner.JobOf(candidate), trust, &candidate);
  RefineRanked(runner, request, &result);
  MarkTies(&result);
  if (const auto unlimited = runner.BestOf(&SplitResult::unlimited)) {
    result.unlimited = runner.Complete(*unlimited, false);
  }
  if (result.feasible()) {
    ExplainWinner(runner, request, profiles, &result);
    if (result.ranked.size() > Shown(request)) result.ranked.resize(Shown(request));
  } else {
    if (const auto closest = runner.BestOf(&SplitResult::smallest))
      result.closest = runner.Complete(*closest, true);
    result.near_misses = runner.NearMisses(nullptr, kNearMisses);
    result.remedies = FindRemedies(request, profiles);
  }
  result.rejections = runner.Rejections();
  result.counts = runner.counts();
  result.counts.seconds = Now() - start;
  return result;
}

SearchResult Search(const SearchRequest& request) { return Search(request, LoadProfiles(request)); }

}  // namespace orrery
