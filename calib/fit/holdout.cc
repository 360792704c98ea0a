// SPDX-License-Identifier: Apache-2.0
// Groups, refits without them, and the intervals that follow.
#include "calib/fit/holdout.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/base/check.h"
#include "model/base/diagnostics.h"

namespace orrery {
namespace {

constexpr std::pair<const char*, Holdout> kNames[] = {{"none", Holdout::kNone},
                                                      {"model", Holdout::kModel},
                                                      {"topology", Holdout::kTopology},
                                                      {"source", Holdout::kSource}};

double Quantile(const std::vector<double>& sorted, double q) {
  const double at = q * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<std::size_t>(at);
  const std::size_t high = std::min(low + 1, sorted.size() - 1);
  return sorted[low] + (at - static_cast<double>(low)) * (sorted[high] - sorted[low]);
}

}  // namespace

const std::string& GroupOf(const Observation& seen, Holdout holdout) {
  if (holdout == Holdout::kTopology) return seen.topology;
  return holdout == Holdout::kSource ? seen.source : seen.model;
}

Groups GroupsOf(const Evidence& evidence, Holdout holdout) {
  Groups groups;
  for (std::size_t i = 0; i < evidence.observations().size(); ++i)
    groups[GroupOf(*evidence.observations()[i], holdout)].push_back(static_cast<int>(i));
  return groups;
}

Holdout ParseHoldout(const std::string& text) {
  std::vector<std::string> known;
  for (const auto& [name, holdout] : kNames) {
    if (text == name) return holdout;
    known.emplace_back(name);
  }
  throw InputError(fmt::format("cannot leave out by '{}'", text), SuggestName(text, known));
}

const char* NameOf(Holdout holdout) { return kNames[static_cast<int>(holdout)].first; }

Unseen LeaveGroupsOut(const Evidence& evidence, const Groups& groups, bool site, Fitter* fitter) {
  Unseen all;
  all.error.resize(evidence.observations().size());
  all.variance.resize(all.error.size());
  all.site_variance.resize(all.error.size());
  for (const auto& [name, rows] : groups) {
    const Unseen left = fitter->LeaveOut(rows, site);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      all.error[rows[i]] = left.error[i];
      all.variance[rows[i]] = left.variance[i];
      all.site_variance[rows[i]] = left.site_variance[i];
    }
  }
  return all;
}

Unseen LeaveGroupsOut(const Evidence& evidence, Holdout holdout, Fitter* fitter) {
  return LeaveGroupsOut(evidence, GroupsOf(evidence, holdout), holdout == Holdout::kSource, fitter);
}

Interval IntervalOf(std::vector<double> errors) {
  for (double& error : errors) error = std::exp(-error);
  std::sort(errors.begin(), errors.end());
  return {std::clamp(Quantile(errors, 0.1), 0.01, 1.0), std::max(1.0, Quantile(errors, 0.9)),
          static_cast<int>(errors.size())};
}

std::map<std::string, Interval> IntervalsOf(const Evidence& evidence,
                                            const std::vector<double>& errors) {
  std::map<std::string, std::vector<double>> by_framework;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    const Observation& seen = *evidence.observations()[i];
    if (seen.step_time && seen.framework >= 0)
      by_framework[evidence.store().framework(seen.framework).header.id].push_back(errors[i]);
  }
  std::map<std::string, Interval> intervals;
  for (auto& [framework, values] : by_framework) {
    if (static_cast<int>(values.size()) >= kLeastPoints)
      intervals[framework] = IntervalOf(std::move(values));
  }
  return intervals;
}

}  // namespace orrery
