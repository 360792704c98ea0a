// SPDX-License-Identifier: Apache-2.0
// Leave-one-group-out: what the fit would have predicted for rows that it had not seen.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calib/fit/fit.h"

namespace orrery {

enum class Holdout { kNone, kModel, kTopology, kSource };
Holdout ParseHoldout(const std::string& text);  // throws InputError
const char* NameOf(Holdout holdout);

// What is left out together with a row.
const std::string& GroupOf(const Observation& seen, Holdout holdout);
using Groups = std::map<std::string, std::vector<int>>;  // observations by the name of their group
Groups GroupsOf(const Evidence& evidence, Holdout holdout);

// Every observation of `groups`, each predicted without its group. `site`: see Fitter::LeaveOut().
Unseen LeaveGroupsOut(const Evidence& evidence, const Groups& groups, bool site, Fitter* fitter);
Unseen LeaveGroupsOut(const Evidence& evidence, Holdout holdout, Fitter* fitter);

// The 10 % and 90 % quantiles of measured over predicted, around 1.
struct Interval {
  double low = 1, high = 1;
  int points = 0;
};
Interval IntervalOf(std::vector<double> errors);

// Intervals by framework profile (index in the store), of those with kLeastPoints rows or more.
inline constexpr int kLeastPoints = 10;
std::map<std::string, Interval> IntervalsOf(const Evidence& evidence,
                                            const std::vector<double>& errors);

}  // namespace orrery
