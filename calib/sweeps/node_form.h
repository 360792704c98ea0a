// SPDX-License-Identifier: Apache-2.0
// Fits the form over ranks of one node (NodeRingForm) to all-reduce sweeps of several n.
#pragma once

#include <vector>

#include "calib/sweeps/curve_fit.h"

namespace orrery {

struct NodeSweep {
  int ranks = 0;
  int rings = 1;  // R(n)
  std::vector<SweepPoint> points;
};

struct NodeFormFit {
  NodeRingForm form;
  std::vector<CurveConstant> constants;
  double spread = 0;  // robust standard deviation of the logarithmic residuals
  int points = 0;
};

// At least one sweep, 2 ranks or more each, rings above 0. With one n only, offset and step, copy
// and bandwidth are told apart by their priors.
NodeFormFit FitNodeForm(const std::vector<NodeSweep>& sweeps);

// What the form leaves at the measured n on both sides of `ranks`, by distance, as a table: library
// protocols change at sizes that move little with n. Empty where `ranks` does not lie between two
// of them, or where they have different rings (their protocols change elsewhere): there the form
// alone is closer.
std::vector<SweepCurve::Residual> ResidualsNear(const NodeRingForm& form,
                                                const std::vector<NodeSweep>& sweeps, int ranks);

}  // namespace orrery
