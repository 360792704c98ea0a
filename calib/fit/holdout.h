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

// log(predicted / measured) of every observation, each predicted without its group.
std::vector<double> LeaveGroupsOut(const Evidence& evidence, Holdout holdout, Fitter* fitter);

// The 10 % and 90 % quantiles of measured over predicted, around 1.
struct Interval {
  double low = 1, high = 1;
  int points = 0;
};
Interval IntervalOf(std::vector<double> errors);

// Intervals by stack profile (index in the store), of those with kLeastPoints rows or more.
inline constexpr int kLeastPoints = 10;
std::map<int, Interval> IntervalsOf(const Evidence& evidence, const std::vector<double>& errors);

// Whether each row lies inside the interval that the other groups of its stack give. Rows of stacks
// with too few other rows are left out (absent).
std::map<int, bool> Coverage(const Evidence& evidence, Holdout holdout,
                             const std::vector<double>& errors);

}  // namespace orrery
