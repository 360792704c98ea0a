// SPDX-License-Identifier: Apache-2.0
// From left-out errors and covariances to trust in predictions (model/twin/trust.h).
#include "model/twin/trust.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "calib/fit/holdout.h"

namespace orrery {
namespace {

constexpr double kLeastSpreadOfErrors = 0.01;
constexpr double kNormal = 1.48;  // median of |error| to a normal distribution's standard deviation

struct Weighted {
  double value = 0, weight = 0;
};

// Weighted quantile, linear between the middles of the weights.
double QuantileOf(std::vector<Weighted> values, double q) {
  std::sort(values.begin(), values.end(),
            [](const Weighted& a, const Weighted& b) { return a.value < b.value; });
  double sum = 0;
  for (const Weighted& one : values) sum += one.weight;
  double before = 0, last_at = 0, last = values.front().value;
  for (const Weighted& one : values) {
    const double at = (before + 0.5 * one.weight) / sum;
    if (at >= q) {
      if (at <= last_at) return one.value;
      const double share = std::clamp((q - last_at) / (at - last_at), 0.0, 1.0);
      return last + share * (one.value - last);
    }
    before += one.weight;
    last_at = at;
    last = one.value;
  }
  return last;
}

constexpr double kRowsOfSource =
    10;  // a source left out as a whole is one more cluster, however many rows

// Weight of each row of `which`, by the size of what was left out with it.
std::vector<double> WeightsOf(const Evidence& evidence, Holdout holdout,
                              const std::vector<int>& which) {
  std::map<std::string, int> sizes;
  for (int row : which) ++sizes[GroupOf(*evidence.observations()[row], holdout)];
  std::vector<double> weights;
  for (int row : which) {
    const double n = sizes.at(GroupOf(*evidence.observations()[row], holdout));
    weights.push_back(holdout == Holdout::kSource ? std::min(1.0, kRowsOfSource / n)
                                                  : 1 / std::sqrt(n));
  }
  return weights;
}

void Widen(const Situation& at, bool first, FrameworkTrust* trust) {
  for (int i = 0; i < kFeatures; ++i) {
    auto& [low, high] = trust->range[i];
    low = first ? at[i] : std::min(low, at[i]);
    high = first ? at[i] : std::max(high, at[i]);
  }
}

double Outside(const FrameworkTrust& trust, const Situation& at) {
  double doublings = 0;
  for (int i = 0; i < kFeatures; ++i) {
    const auto [low, high] = trust.range[i];
    if (at[i] < low) doublings += std::log2(low / at[i]);
    if (at[i] > high) doublings += std::log2(at[i] / high);
  }
  return std::min(doublings, kMostDoublings);
}

// The 80 % quantile of |difference of errors| between rows of one sweep.
void TakeDifferences(const Evidence& evidence, const Unseen& unseen, const std::vector<int>& which,
                     FrameworkTrust* trust) {
  std::map<std::string, std::vector<int>> sweeps;
  for (int row : which) {
    const std::string& sweep = evidence.observations()[row]->sweep;
    if (!sweep.empty()) sweeps[sweep].push_back(row);
  }
  std::vector<Weighted> sizes;
  for (const auto& [name, rows] : sweeps) {
    for (std::size_t a = 0; a < rows.size(); ++a) {
      for (std::size_t b = 0; b < a; ++b)
        sizes.push_back({std::abs(unseen.error[rows[a]] - unseen.error[rows[b]]), 1});
    }
  }
  trust->pairs =
      static_cast<int>(sizes.size()) >= kLeastPoints ? static_cast<int>(sizes.size()) : 0;
  if (trust->pairs > 0) trust->difference = QuantileOf(std::move(sizes), 0.8);
}

bool OnSeveralNodes(const Observation& seen) { return seen.at && (*seen.at)[kAtNodes] > 1; }

// Runs only: kernels say nothing about the error of a step.
std::map<int, std::vector<int>> RunsByFramework(const Evidence& evidence) {
  std::map<int, std::vector<int>> rows;
  for (std::size_t i = 0; i < evidence.observations().size(); ++i) {
    const Observation& seen = *evidence.observations()[i];
    if (seen.at) rows[seen.framework].push_back(static_cast<int>(i));
  }
  return rows;
}

}  // namespace

FrameworkTrust TrustOf(const Evidence& evidence, Holdout holdout, const Unseen& unseen,
                       const std::vector<int>& which) {
  const bool site = holdout == Holdout::kSource;
  const std::vector<double> weights = WeightsOf(evidence, holdout, which);
  FrameworkTrust trust;
  trust.rows = static_cast<int>(which.size());
  std::vector<Weighted> sizes, z;
  for (std::size_t i = 0; i < which.size(); ++i)
    sizes.push_back({std::abs(unseen.error[which[i]]), site ? weights[i] : 1});
  trust.spread = std::max(kLeastSpreadOfErrors, kNormal * QuantileOf(sizes, 0.5));
  for (std::size_t i = 0; i < which.size(); ++i) {
    const int row = which[i];
    const double f = std::sqrt(trust.spread * trust.spread + unseen.variance[row]);
    const double error = -unseen.error[row] / f;
    z.push_back({site ? std::abs(error) : error, weights[i]});
    const Observation& seen = *evidence.observations()[row];
    if (seen.at) Widen(*seen.at, i == 0, &trust);
  }
  // A dozen sources do not tell on which side the next one lies.
  trust.low = site ? -QuantileOf(z, 0.8) : QuantileOf(z, 0.1);
  trust.high = site ? -trust.low : QuantileOf(z, 0.9);
  return trust;
}

namespace {

// What the rows outside of `group` say about a row of it; nullopt: they are too few.
std::optional<FrameworkTrust> TrustWithout(const Evidence& evidence, Holdout holdout,
                                           const Unseen& unseen, const std::string& group,
                                           const Observation& row) {
  const auto& seen = evidence.observations();
  const bool several = OnSeveralNodes(row);
  std::vector<int> alike, others, all;
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (GroupOf(*seen[i], holdout) == group || seen[i]->at.has_value() != row.at.has_value())
      continue;
    all.push_back(static_cast<int>(i));
    if (seen[i]->framework != row.framework) continue;
    others.push_back(static_cast<int>(i));
    if (OnSeveralNodes(*seen[i]) == several) alike.push_back(static_cast<int>(i));
  }
  const std::size_t enough = kLeastPoints;
  const std::vector<int>& range = others.size() < enough ? all : others;
  const bool split = alike.size() >= enough && others.size() - alike.size() >= enough;
  const bool foreign = holdout == Holdout::kSource || others.size() < enough;
  const std::vector<int>& errors = foreign ? all : split ? alike : others;
  if (errors.size() < enough) return std::nullopt;
  FrameworkTrust trust = TrustOf(evidence, holdout, unseen, errors);
  trust.range = TrustOf(evidence, holdout, unseen, range).range;
  return trust;
}

}  // namespace

std::map<int, bool> Coverage(const Evidence& evidence, Holdout holdout, const Unseen& unseen) {
  const auto& seen = evidence.observations();
  std::map<int, bool> inside;
  for (const auto& [name, rows] : GroupsOf(evidence, holdout)) {
    std::map<std::pair<int, bool>, std::optional<FrameworkTrust>> trusts;
    for (int row : rows) {
      const bool several = OnSeveralNodes(*seen[row]);
      const std::pair<int, bool> framework{seen[row]->framework, several};
      if (!trusts.contains(framework))
        trusts[framework] = TrustWithout(evidence, holdout, unseen, name, *seen[row]);
      if (!trusts.at(framework)) continue;
      const FrameworkTrust& trust = *trusts.at(framework);
      const double wide = seen[row]->at ? 1 + kPerDoubling * Outside(trust, *seen[row]->at) : 1;
      const double f = wide * std::sqrt(trust.spread * trust.spread + unseen.variance[row]);
      const double log = -unseen.error[row];
      inside[row] = log >= std::min(0.0, trust.low * f) && log <= std::max(0.0, trust.high * f);
    }
  }
  return inside;
}

namespace {

std::map<std::string, double> SiteSpreadsByName(const FitResult& result) {
  std::vector<FitParameter> parameters;
  for (const FittedConstant& constant : result.constants) parameters.push_back(constant.parameter);
  std::map<std::string, double> spreads;
  for (const auto& [centre, spread] : SiteSpreads(parameters)) {
    for (const ConstantName& name : parameters[static_cast<std::size_t>(centre)].names)
      spreads[name.Text()] = spread;
  }
  return spreads;
}

}  // namespace

Trust MakeTrust(const Evidence& evidence, Holdout holdout, const Unseen& unseen,
                const Unseen& foreign, const FitResult& result) {
  Trust trust;
  for (const FittedConstant& constant : result.constants) {
    auto& names = trust.constants.emplace_back();
    for (const ConstantName& name : constant.parameter.names) names.push_back(name.Text());
  }
  for (Eigen::Index i = 0; i < result.covariance.rows(); ++i) {
    for (Eigen::Index j = 0; j < result.covariance.cols(); ++j)
      trust.covariance.push_back(result.covariance(i, j));
  }
  trust.site_spread = SiteSpreadsByName(result);
  if (unseen.error.empty()) return trust;
  const auto add = [&](const std::string& framework, const std::vector<int>& rows, RunScale scale,
                       const std::vector<int>& chosen) {
    FrameworkTrust one = framework.empty() ? TrustOf(evidence, Holdout::kSource, foreign, chosen)
                                           : TrustOf(evidence, holdout, unseen, chosen);
    one.profile = framework;
    one.scale = scale;
    one.range = TrustOf(evidence, holdout, unseen, rows).range;
    TakeDifferences(evidence, unseen, rows, &one);
    for (int row : rows) {
      const Observation& seen = *evidence.observations()[row];
      if (seen.gpu >= 0) one.gpus.insert(evidence.store().gpu(seen.gpu).header.id);
      if (seen.fabric >= 0) one.fabrics.insert(evidence.store().fabric(seen.fabric).header.id);
      if (!framework.empty()) one.clusters.insert(seen.topology);
    }
    trust.frameworks.push_back(std::move(one));
  };
  std::vector<int> all;
  for (const auto& [framework, rows] : RunsByFramework(evidence)) {
    all.insert(all.end(), rows.begin(), rows.end());
    if (framework < 0 || static_cast<int>(rows.size()) < kLeastPoints) continue;
    const std::string& id = evidence.store().framework(framework).header.id;
    std::vector<int> one, several;
    for (int row : rows)
      (OnSeveralNodes(*evidence.observations()[row]) ? several : one).push_back(row);
    if (static_cast<int>(std::min(one.size(), several.size())) < kLeastPoints) {
      add(id, rows, RunScale::kAny, rows);
    } else {
      add(id, rows, RunScale::kOneNode, one);
      add(id, rows, RunScale::kSeveralNodes, several);
    }
  }
  if (static_cast<int>(all.size()) >= kLeastPoints) add("", all, RunScale::kAny, all);
  return trust;
}

Trust Merged(const Trust& old, const Trust& fresh) {
  std::set<std::string> replaced;
  for (const auto& names : fresh.constants) replaced.insert(names.begin(), names.end());
  std::vector<std::size_t> kept;
  for (std::size_t i = 0; i < old.constants.size(); ++i) {
    const auto& names = old.constants[i];
    if (std::none_of(names.begin(), names.end(),
                     [&](const std::string& name) { return replaced.contains(name); }))
      kept.push_back(i);
  }
  Trust merged = fresh;
  merged.site_spread.insert(old.site_spread.begin(), old.site_spread.end());
  const std::size_t a = fresh.constants.size(), n = a + kept.size();
  merged.covariance.assign(n * n, 0.0);
  for (std::size_t i = 0; i < a; ++i) {
    for (std::size_t j = 0; j < a; ++j) merged.covariance[i * n + j] = fresh.covariance[i * a + j];
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    merged.constants.push_back(old.constants[kept[i]]);
    for (std::size_t j = 0; j < kept.size(); ++j)
      merged.covariance[(a + i) * n + a + j] =
          old.covariance[kept[i] * old.constants.size() + kept[j]];
  }
  // Software that was fitted again without a run of its own (the family of sites) is trusted as any without runs.
  const auto stale = [&](const FrameworkTrust& framework) {
    const std::string start = "framework/" + framework.profile + ":";
    return !fresh.frameworks.empty() && !framework.profile.empty() &&
           std::any_of(replaced.begin(), replaced.end(),
                       [&](const std::string& name) { return name.starts_with(start); });
  };
  // All rows together: the larger collection speaks.
  const std::size_t present = merged.frameworks.size();
  for (const FrameworkTrust& framework : old.frameworks) {
    const auto end = merged.frameworks.begin() + static_cast<std::ptrdiff_t>(present);
    const auto same = std::find_if(merged.frameworks.begin(), end, [&](const FrameworkTrust& one) {
      return one.profile == framework.profile;
    });
    if (same == end) {
      if (!stale(framework)) merged.frameworks.push_back(framework);
    } else if (framework.profile.empty() && framework.rows > same->rows) {
      *same = framework;
    }
  }
  return merged;
}

}  // namespace orrery
