// SPDX-License-Identifier: Apache-2.0
// The constants that a fit may move: names, priors, bounds; chosen by hand or by default.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calib/fit/profile_store.h"
#include "calib/fit/solver.h"
#include "calib/fit/source.h"

namespace orrery {

// What a user or a job file asks for.
struct ParameterRequest {
  std::vector<ConstantName> names;  // constants that share one value; the first speaks for all
  std::optional<double> prior;      // SI; absent: the present value
  std::optional<double> spread;     // relative; absent: from the profile, at least kLeastSpread
  std::optional<ConstantName>
      around;  // instead of `prior`: another requested constant, as a family's
};

// Logarithms of the value: relative spreads, and no constant changes its sign.
struct FitParameter {
  std::vector<ConstantName> names;
  ConstantKind kind = ConstantKind::kNumber;
  double before = 0;
  double prior = 0;
  Variable variable;
  std::vector<std::pair<ProfileLayer, int>> heirs;  // profiles that it reaches
  std::vector<std::string> heir_keys;               // the key in each heir

  void Apply(double value, ProfileStore* store) const;
};

inline constexpr double kLeastSpread = 0.3;  // of a prior without a spread of its own
// Of the factor of a site that nobody calibrated, around 1: what errors of whole sources are that no fit has
// seen (calib/ACCURACY.md, leave-one-source-out).
inline constexpr double kSiteSpread = 0.15;

// Checks the requests against the store, and makes files own what they override. Throws InputError:
// constants without effect on the rows, a value of zero without a prior.
std::vector<FitParameter> MakeParameters(const std::vector<ParameterRequest>& requests,
                                         ProfileStore* store);

// The one constant that a site (framework@topology) has by default.
ParameterRequest SiteRequest(const std::string& site);

// Every calibrated constant of the named profiles, to be set in their own files: no figures of the
// vendor, no memory, no intervals.
std::vector<ParameterRequest> DefaultRequests(
    const std::vector<std::pair<ProfileLayer, std::string>>& named, const ProfileStore& store);

}  // namespace orrery
