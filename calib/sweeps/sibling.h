// SPDX-License-Identifier: Apache-2.0
// A sweep seen from those among other numbers of ranks of its node.
//
// Their form over ranks (node_form.h), with what it leaves of them, is a curve for this sweep before
// it is measured: floors and steps of a library that move little with the number of ranks. What the
// sweep's own points leave of it is a table, as over the formula of curve_fit.h. The one of the two
// whose left-out points come out better is taken.
#pragma once

#include <optional>
#include <vector>

#include "calib/sweeps/machine.h"

namespace orrery {

// The curve that other sweeps say. nullopt: no ring all-reduce of one node, or no other one.
std::optional<SweepCurve> CurveOfSiblings(const MeasuredRuns& sweep,
                                          const std::vector<MeasuredRuns>& sweeps,
                                          const MachineTopologies& topologies);

// `base` corrected by the points.
CurveFit FitOnBase(const std::vector<SweepPoint>& points, const SweepCurve& base);

// ln(predicted / measured) of every point, each predicted without the points of its size.
std::vector<double> LeavePointsOutOnBase(const std::vector<SweepPoint>& points,
                                         const SweepCurve& base);

// Whether left-out points come out clearly better with the second.
bool IsBetter(const std::vector<double>& before, const std::vector<double>& after);

}  // namespace orrery
