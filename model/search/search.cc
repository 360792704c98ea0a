// SPDX-License-Identifier: Apache-2.0
// A search from request to result.
#include "model/search/search.h"

#include <algorithm>
#include <chrono>

#include "model/search/explain.h"

namespace orrery {
namespace {

constexpr std::size_t kComparisons = 3;
constexpr std::size_t kNearMisses = 3;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void RankCandidates(Runner& runner, const SearchRequest& request, SearchResult* result) {
  runner.Run();
  while (static_cast<int>(result->ranked.size()) < std::max(1, request.top)) {
    auto candidate = runner.Next();
    if (!candidate) break;
    if (!result->ranked.empty()) {
      const StepTime& first = result->ranked.front().time;
      candidate->tie_with_first = candidate->time.low <= first.high && first.low <= candidate->time.high;
    }
    result->ranked.push_back(std::move(*candidate));
  }
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
  profiles.fabric = LoadFabricProfile(request.topology.fabric_profile);
  profiles.stack = SelectStackProfile(preset.name, request.topology.name, request.flash_attention);
  return profiles;
}

SearchResult SearchOnly(const SearchRequest& request, const Profiles& profiles) {
  SearchResult result;
  Runner runner(request, profiles);
  RankCandidates(runner, request, &result);
  result.counts = runner.counts();
  return result;
}

SearchResult Search(const SearchRequest& request, const Profiles& profiles) {
  const double start = Now();
  SearchResult result;
  Runner runner(request, profiles);
  RankCandidates(runner, request, &result);
  if (const auto unlimited = runner.BestOf(&JobResult::unlimited)) {
    result.unlimited = runner.Complete(*unlimited, false);
  }
  if (result.feasible()) {
    const Candidate& winner = result.ranked.front();
    for (Candidate& other : runner.OtherLayouts(winner, kComparisons)) {
      result.comparisons.push_back(Compare(winner, other));
    }
    result.limits = NextLimits(request, profiles, winner, result.unlimited);
    result.near_misses = runner.NearMisses(&winner, kNearMisses);
  } else {
    if (const auto closest = runner.BestOf(&JobResult::smallest)) result.closest = runner.Complete(*closest, true);
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
  return Runner(free, profiles).Assess(strategy);
}

}  // namespace orrery
