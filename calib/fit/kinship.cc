// SPDX-License-Identifier: Apache-2.0
// Leaves runs out by kinship and fits the model of their errors.
#include "calib/fit/kinship.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

namespace orrery {
namespace {

constexpr double kLeastKinSpread = 0.01, kMostKinSpread = 2;
constexpr double kNormal80 = 1.2816;  // 80 % of |x|, x standard normal, are below it
constexpr double kSiteGroups = 5;     // that a site needs to weigh as much as all of its class
constexpr int kRunFolds = 4, kShapeFolds = 8;
constexpr int kBisections = 24;

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

using Errors = std::vector<const KinError*>;

// By class and group: how many rows share the weight of one.
class GroupSizes {
 public:
  explicit GroupSizes(const Errors& errors) {
    for (const KinError* e : errors) ++sizes_[{e->kin, e->group}];
  }
  double WeightOf(const KinError& e) const { return 1.0 / sizes_.at({e.kin, e.group}); }
  int groups() const { return static_cast<int>(sizes_.size()); }

 private:
  std::map<std::pair<Kin, std::string>, int> sizes_;
};

// Of one more group, not of the average one.
double NextGroup80(int groups) { return std::min(1.0, 0.8 * (1 + 1.0 / groups)); }

// |e| in units of f, with this spread of the class and factor of the site.
double Standardised(const KinModel& model, const KinError& e, double spread, double site) {
  double variance = e.variance;
  if (e.kin == Kin::kNewFramework && e.new_chip) variance += ChipBesideFramework(model.kin);
  return std::abs(e.error) /
         HalfWidth({.spread = spread, .quantile = 1}, site, variance, e.doublings);
}

// The factor s of of_one(e) with which the quantile q of |e| / f is the 80 % quantile of a normal distribution.
double MatchedSpread(const KinModel& model, const Errors& errors, double q,
                     const std::function<double(const KinError&)>& of_one, double least,
                     double most) {
  const GroupSizes sizes(errors);
  const auto too_small = [&](double s) {
    std::vector<Weighted> values;
    for (const KinError* e : errors)
      values.push_back({Standardised(model, *e, of_one(*e), s), sizes.WeightOf(*e)});
    return QuantileOf(std::move(values), q) > kNormal80;
  };
  if (!too_small(least)) return least;
  double low = std::log(least), high = std::log(most);
  for (int i = 0; i < kBisections; ++i) {
    const double middle = 0.5 * (low + high);
    (too_small(std::exp(middle)) ? low : high) = middle;
  }
  return std::exp(high);
}

double FactorOf(const KinModel& model, const KinError& e) {
  const auto found = model.sites.find(e.site);
  return e.kin > Kin::kCluster || found == model.sites.end() ? 1.0 : found->second;
}

double Standardised(const KinModel& model, const KinError& e) {
  return Standardised(model, e, model.kin[static_cast<std::size_t>(e.kin)].spread,
                      FactorOf(model, e));
}

bool IsInside(const KinModel& model, const KinError& e) {
  return Standardised(model, e) <= model.kin[static_cast<std::size_t>(e.kin)].quantile;
}

double SiteFactor(const KinModel& model, const Errors& of_site) {
  if (of_site.empty()) return 1;
  const auto spread = [&](const KinError& e) {
    return model.kin[static_cast<std::size_t>(e.kin)].spread;
  };
  const double own = MatchedSpread(model, of_site, 0.8, spread, 0.05, 20);
  const double n = GroupSizes(of_site).groups();
  return std::sqrt((n * own * own + kSiteGroups) / (n + kSiteGroups));
}

KinErrors SpreadOfClass(const KinModel& nearer, const Errors& of_class) {
  KinErrors errors;
  std::set<int> rows;
  for (const KinError* e : of_class) rows.insert(e->row);
  errors.rows = static_cast<int>(rows.size());
  errors.groups = GroupSizes(of_class).groups();
  errors.spread = MatchedSpread(
      nearer, of_class, NextGroup80(errors.groups), [](const KinError&) { return 1.0; },
      kLeastKinSpread, kMostKinSpread);
  return errors;
}

double QuantileOfClass(const KinModel& model, const Errors& of_class) {
  const GroupSizes sizes(of_class);
  std::vector<Weighted> values;
  for (const KinError* e : of_class)
    values.push_back({Standardised(model, *e), sizes.WeightOf(*e)});
  return QuantileOf(std::move(values), NextGroup80(sizes.groups()));
}

Errors Select(const std::vector<KinError>& errors, const std::function<bool(const KinError&)>& is) {
  Errors some;
  for (const KinError& e : errors) {
    if (is(e)) some.push_back(&e);
  }
  return some;
}

// Kin that is further away never has a narrower interval, however the errors of its few groups fall: each step adds
// something (judgement).
void WidenWithDistance(KinModel* model) {
  constexpr double kWider = 1.03;
  double nearer = 0;
  for (auto& one : model->kin) {
    if (one.groups == 0 || one.spread <= 0) continue;
    one.quantile = std::max(one.quantile, kWider * nearer / one.spread);
    nearer = one.spread * one.quantile;
  }
}

// A class of `model` again, from rows that are not in `without`: its spread, the site `site`, its quantile.
KinModel WithoutRows(const KinModel& model, const std::vector<KinError>& errors, Kin kin,
                     const std::string& site, const std::set<int>& without) {
  const auto known = [&](const KinError& e) { return !without.contains(e.row); };
  KinModel fresh = model;
  const Errors of_class =
      Select(errors, [&](const KinError& e) { return e.kin == kin && known(e); });
  if (of_class.empty()) return fresh;
  auto& of_kin = fresh.kin[static_cast<std::size_t>(kin)];
  of_kin.spread = SpreadOfClass(fresh, of_class).spread;
  if (kin > Kin::kShape)
    of_kin.spread = std::max(of_kin.spread, model.kin[static_cast<std::size_t>(kin) - 1].spread);
  if (kin <= Kin::kCluster)
    fresh.sites[site] = SiteFactor(fresh, Select(errors, [&](const KinError& e) {
                                     return e.kin <= Kin::kCluster && e.site == site && known(e);
                                   }));
  of_kin.quantile = QuantileOfClass(fresh, of_class);
  WidenWithDistance(&fresh);
  return fresh;
}

std::string ShapeOf(const RunIdentity& run) {
  return fmt::format("{}@{} {} {} {} {}", run.framework, run.topology, run.at[kAtHidden],
                     run.at[kAtSeqLen], run.at[kAtMicroTokens], run.at[kAtTensor]);
}
std::string WidthOf(const RunIdentity& run) {
  return fmt::format("{}@{} {}", run.framework, run.topology, run.at[kAtHidden]);
}

// What is one observation of a class.
std::string CauseOf(Kin kin, const RunIdentity& run) {
  switch (kin) {
    case Kin::kShape:
    case Kin::kModel:
      return ShapeOf(run);
    case Kin::kCluster:
      return WidthOf(run);
    case Kin::kNewCluster:
      return run.topology;
    case Kin::kNewChip:
      return ChipOf(run.gpu);
    case Kin::kNewFramework:
      return run.framework;
  }
  return "";
}

const RunIdentity* RunOf(const Evidence& evidence, std::size_t row) {
  const auto& run = evidence.observations()[row]->run;
  return run ? &*run : nullptr;
}

// Groups of the training runs by a name.
Groups GroupsBy(const Evidence& evidence,
                const std::function<std::string(const RunIdentity&)>& name) {
  Groups groups;
  for (std::size_t i = 0; i < evidence.observations().size(); ++i) {
    if (const RunIdentity* run = RunOf(evidence, i))
      groups[name(*run)].push_back(static_cast<int>(i));
  }
  return groups;
}

}  // namespace

std::vector<KinError> ClassifyLeftOut(const Evidence& evidence, const Groups& groups,
                                      const Unseen& unseen) {
  std::vector<KinError> errors;
  const std::size_t count = evidence.observations().size();
  for (const auto& [name, rows] : groups) {
    std::vector<bool> left(count);
    for (int row : rows) left[static_cast<std::size_t>(row)] = true;
    std::vector<const RunIdentity*> known;
    for (std::size_t i = 0; i < count; ++i) {
      if (!left[i] && RunOf(evidence, i) != nullptr) known.push_back(RunOf(evidence, i));
    }
    if (known.empty()) continue;
    for (int row : rows) {
      const RunIdentity* run = RunOf(evidence, static_cast<std::size_t>(row));
      if (run == nullptr) continue;
      const Kinship kinship = KinshipOf(*run, known);
      const auto i = static_cast<std::size_t>(row);
      const double variance =
          unseen.variance[i] + (kinship.new_site ? unseen.site_variance[i] : 0.0);
      errors.push_back({row, kinship.kin, CauseOf(kinship.kin, *run), SiteOf(*run), unseen.error[i],
                        variance, kinship.doublings, kinship.new_chip});
    }
  }
  return errors;
}

std::vector<KinError> LeaveKinOut(const Evidence& evidence, Fitter* fitter) {
  std::vector<KinError> errors;
  const auto leave = [&](const Groups& groups, bool site) {
    const std::vector<KinError> more =
        ClassifyLeftOut(evidence, groups, LeaveGroupsOut(evidence, groups, site, fitter));
    errors.insert(errors.end(), more.begin(), more.end());
  };
  std::map<std::string, int> runs, shapes;
  leave(GroupsBy(evidence,
                 [&](const RunIdentity& run) {
                   return std::to_string(runs[ShapeOf(run)]++ % kRunFolds);
                 }),
        false);
  leave(GroupsBy(evidence,
                 [&](const RunIdentity& run) {
                   const int next = static_cast<int>(shapes.size());
                   return std::to_string(shapes.emplace(ShapeOf(run), next).first->second %
                                         kShapeFolds);
                 }),
        false);
  leave(GroupsBy(evidence, WidthOf), false);
  leave(GroupsBy(evidence, [](const RunIdentity& run) { return run.topology; }), true);
  leave(GroupsBy(evidence, [](const RunIdentity& run) { return ChipOf(run.gpu); }), true);
  leave(GroupsBy(evidence, [](const RunIdentity& run) { return run.framework; }), true);
  return errors;
}

KinModel FitKinship(const std::vector<KinError>& errors) {
  KinModel model;
  std::array<Errors, kKins> of_class;
  std::map<std::string, Errors> of_site;
  for (const KinError& e : errors) {
    of_class[static_cast<std::size_t>(e.kin)].push_back(&e);
    if (e.kin <= Kin::kCluster) of_site[e.site].push_back(&e);
  }
  double nearer = 0;
  for (std::size_t c = 0; c < kKins; ++c) {
    if (of_class[c].empty()) continue;
    model.kin[c] = SpreadOfClass(model, of_class[c]);
    nearer = model.kin[c].spread = std::max(nearer, model.kin[c].spread);
  }
  for (const auto& [site, some] : of_site) model.sites[site] = SiteFactor(model, some);
  for (std::size_t c = 0; c < kKins; ++c) {
    if (!of_class[c].empty()) model.kin[c].quantile = QuantileOfClass(model, of_class[c]);
  }
  WidenWithDistance(&model);
  return model;
}

KinModel FitAndCover(const std::vector<KinError>& errors) {
  KinModel model = FitKinship(errors);
  std::map<std::pair<Kin, std::string>, Errors> groups;
  for (const KinError& e : errors) groups[{e.kin, e.group}].push_back(&e);
  std::array<double, kKins> inside{};
  for (const auto& [name, members] : groups) {
    std::set<int> rows;
    for (const KinError* e : members) rows.insert(e->row);
    std::map<std::string, KinModel> by_site;
    int hits = 0;
    for (const KinError* e : members) {
      auto found = by_site.find(e->site);
      if (found == by_site.end())
        found = by_site.emplace(e->site, WithoutRows(model, errors, e->kin, e->site, rows)).first;
      hits += IsInside(found->second, *e);
    }
    inside[static_cast<std::size_t>(name.first)] += static_cast<double>(hits) / members.size();
  }
  for (std::size_t c = 0; c < kKins; ++c) {
    if (model.kin[c].groups > 0) model.kin[c].covered = inside[c] / model.kin[c].groups;
  }
  return model;
}

std::map<int, bool> Coverage(const Evidence& evidence, Holdout holdout, const Unseen& unseen,
                             const std::vector<KinError>& errors) {
  std::map<int, bool> inside;
  for (const auto& [name, rows] : GroupsOf(evidence, holdout)) {
    const std::set<int> left(rows.begin(), rows.end());
    std::vector<KinError> known;
    for (const KinError& e : errors) {
      if (!left.contains(e.row)) known.push_back(e);
    }
    if (static_cast<int>(known.size()) < kLeastPoints) continue;
    const KinModel model = FitKinship(known);
    for (const KinError& e : ClassifyLeftOut(evidence, {{name, rows}}, unseen)) {
      if (model.kin[static_cast<std::size_t>(e.kin)].groups > 0) inside[e.row] = IsInside(model, e);
    }
  }
  return inside;
}

}  // namespace orrery
