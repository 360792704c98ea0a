// SPDX-License-Identifier: Apache-2.0
// Leave-one-group-out: what the fit would have predicted for rows that it had not seen.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calib/fit/fit.h"
#include "model/twin/trust.h"

namespace orrery {

enum class Holdout { kNone, kModel, kTopology, kSource };
Holdout ParseHoldout(const std::string& text);  // throws InputError
const char* NameOf(Holdout holdout);

// What is left out together with a row.
const std::string& GroupOf(const Observation& seen, Holdout holdout);
std::map<std::string, std::vector<int>> GroupsOf(const Evidence& evidence, Holdout holdout);

// Every observation, each predicted without its group.
Unseen LeaveGroupsOut(const Evidence& evidence, Holdout holdout, Fitter* fitter);

// The 10 % and 90 % quantiles of measured over predicted, around 1.
struct Interval {
  double low = 1, high = 1;
  int points = 0;
};
Interval IntervalOf(std::vector<double> errors);

// Intervals by framework profile (index in the store), of those with kLeastPoints rows or more.
inline constexpr int kLeastPoints = 10;
std::map<int, Interval> IntervalsOf(const Evidence& evidence, const std::vector<double>& errors);

// What the rows `which`, left out by groups, say of the trust in predictions like theirs: s, z and
// ranges of model/price/trust.h. A group of n rows counts as sqrt(n), a source at most as ten, on both sides alike.
FrameworkTrust TrustOf(const Evidence& evidence, Holdout holdout, const Unseen& unseen,
                       const std::vector<int>& which);

// Whether each row lies inside the interval that the other groups of its framework profile give; of profiles with
// fewer than kLeastPoints other rows, and where sources are left out, those of all profiles.
std::map<int, bool> Coverage(const Evidence& evidence, Holdout holdout, const Unseen& unseen);

// All framework profiles with kLeastPoints rows or more, the constants' covariance, and all rows together: these
// stand for software without runs of its own, so that `foreign`, left out by source, speaks there.
Trust MakeTrust(const Evidence& evidence, Holdout holdout, const Unseen& unseen,
                const Unseen& foreign, const FitResult& result);

// `fresh` over `old`: its constants and profiles replace those of the same name.
Trust Merged(const Trust& old, const Trust& fresh);

}  // namespace orrery
