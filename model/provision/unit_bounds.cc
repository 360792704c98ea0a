// SPDX-License-Identifier: Apache-2.0
// Bounds of runs from bounds of a sequence.
#include "model/provision/unit_bounds.h"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

bool AllBeaten(const std::vector<LeastRun>& runs, const Frontier& frontier) {
  return std::ranges::all_of(runs, [&](const LeastRun& least) {
    return frontier.Dominates({least.time.value, least.cost.value});
  });
}

}  // namespace

double UnitBounds::Seconds(const Unit& unit) const {
  const Site& site = sites_[unit.site];
  const Job job = JobOf(site.request, site.profiles, unit.nodes, 1);
  const double by_work = work_[unit.site] / static_cast<double>(job.cluster.ranks());
  const auto none = none_below_.find({unit.site, unit.nodes});
  return none != none_below_.end() ? std::max(by_work, none->second) : by_work;
}

std::vector<LeastRun> UnitBounds::RunsAt(const Unit& unit, std::size_t quote,
                                         double seconds) const {
  const Site& site = sites_[unit.site];
  const Job job = JobOf(site.request, site.profiles, unit.nodes, 1);
  return BoundRuns(question_.conditions, job, seconds / static_cast<double>(job.work.seq_len),
                   quotes_[quote]);
}

const std::vector<LeastRun>& UnitBounds::Keep(const Unit& unit, std::size_t quote, double seconds,
                                              Runs* kept) {
  Known& known = (*kept)[{quote, unit.nodes}];
  if (known.seconds != seconds) known = {seconds, RunsAt(unit, quote, seconds)};
  return known.runs;
}

const std::vector<LeastRun>& UnitBounds::RunsOf(const Unit& unit, std::size_t quote) {
  return Keep(unit, quote, Seconds(unit), &runs_);
}

bool UnitBounds::Beaten(const Unit& unit, const Frontier& frontier, double gain) {
  return std::ranges::all_of(unit.quotes, [&](std::size_t q) {
    return AllBeaten(Keep(unit, q, Seconds(unit) * gain, &gained_), frontier);
  });
}

double UnitBounds::SecondsToReach(const Unit& unit, const Frontier& frontier, double gain) const {
  return SecondsUntil(unit,
                      [&](std::size_t, const std::vector<LeastRun>& runs) {
                        return !AllBeaten(runs, frontier);
                      }) /
         gain;
}

double UnitBounds::SecondsToBeat(const Unit& unit, const std::vector<Price>& cheapest) const {
  return SecondsUntil(unit, [&](std::size_t q, const std::vector<LeastRun>& runs) {
    return LeastPrice(question_, runs) < cheapest[q];
  });
}

double UnitBounds::SecondsUntil(
    const Unit& unit,
    const std::function<bool(std::size_t, const std::vector<LeastRun>&)>& matter) const {
  constexpr double kNear = 1.002, kFar = 1e3;  // ratios
  const auto any = [&](double seconds) {
    return std::ranges::any_of(unit.quotes,
                               [&](std::size_t q) { return matter(q, RunsAt(unit, q, seconds)); });
  };
  const double least = Seconds(unit);
  if (least <= 0 || any(least * kFar)) return std::numeric_limits<double>::infinity();
  double low = 1, high = kFar;
  while (high > low * kNear) {
    const double middle = std::sqrt(low * high);
    (any(least * middle) ? low : high) = middle;
  }
  return least * high;
}

}  // namespace orrery
