// SPDX-License-Identifier: Apache-2.0
// A search from request to result.
#include "model/twin/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "model/hardware/measured_collectives.h"
#include "model/twin/explain.h"
#include "model/twin/refine.h"
#include "model/twin/trust.h"

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

void AddConfidence(const SearchRequest& request, const Setting& setting, const Trust& trust,
                   Candidate* candidate) {
  ShapeCache shapes;
  const Strategy& strategy = candidate->strategy;
  const auto predict = [&](const CostSetting& cost) {
    StepPredictor predictor(request.model, setting.work, cost, &shapes);
    return std::get<StepTime>(predictor.Predict(strategy)).total;
  };
  Confidence confidence = ConfidenceOf(
      trust, setting.cost, SituationOf(request.model, setting.work, strategy, setting.nodes),
      candidate->time.total, predict);
  candidate->time.low = confidence.low;
  candidate->time.high = confidence.high;
  candidate->outside = std::move(confidence.outside);
  candidate->difference = confidence.difference;
  candidate->difference_pairs = confidence.pairs;
}

}  // namespace

Profiles LoadProfiles(const SearchRequest& request) {
  const FrameworkPreset& preset = FindFramework(request.framework);
  if (request.topology.gpu == kUnknownGpu) {
    throw InputError("topology '" + request.topology.name + "' does not name its GPU",
                     "name one: " + SuggestName("", ProfileIds("gpu")));
  }
  Profiles profiles;
  profiles.gpu = LoadGpuProfile(request.topology.gpu);
  profiles.fabric = LoadFabricProfile(request.topology.fabric_profile, request.topology.collectives,
                                      request.topology.gpu);
  const auto here = request.topology.framework_profiles.find(preset.name);
  profiles.framework =
      here != request.topology.framework_profiles.end()
          ? LoadFrameworkProfile(here->second)
          : SelectFrameworkProfile(preset.name, request.topology.name, request.flash_attention);
  return profiles;
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
    AddConfidence(request, runner.SettingOf(candidate), trust, &candidate);
  RefineRanked(runner, request, &result);
  MarkTies(&result);
  if (const auto unlimited = runner.BestOf(&JobResult::unlimited)) {
    result.unlimited = runner.Complete(*unlimited, false);
  }
  if (result.feasible()) {
    ExplainWinner(runner, request, profiles, &result);
    if (result.ranked.size() > Shown(request)) result.ranked.resize(Shown(request));
  } else {
    if (const auto closest = runner.BestOf(&JobResult::smallest))
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

std::variant<Candidate, Refusal> Assess(const SearchRequest& request, const Profiles& profiles,
                                        const Strategy& strategy) {
  SearchRequest free = request;
  free.fixed = {};
  Runner runner(free, profiles);
  auto assessed = runner.Assess(strategy);
  if (auto* candidate = std::get_if<Candidate>(&assessed))
    AddConfidence(free, runner.SettingOf(*candidate), LoadTrust(), candidate);
  return assessed;
}

}  // namespace orrery
