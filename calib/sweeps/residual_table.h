// SPDX-License-Identifier: Apache-2.0
// What a formula leaves of measured times, as a table that does not follow noise.
//
// Gaussian process over ln(bytes): covariance s^2 exp(-|x - y| / l) + n^2 [x = y]; s, l and n are
// those of a small grid under which the residuals are most likely. Its mean between two points is
// close to a straight line, so that a table at the points says it all.
#pragma once

#include <vector>

#include "model/hardware/sweep_curve.h"

namespace orrery {

struct ResidualTable {
  std::vector<SweepCurve::Residual> entries;  // ascending, one per size
  double noise = 0;                           // n: relative scatter of single points
};

// `residuals`: ln(measured / formula) at ln(bytes), ascending.
ResidualTable ShrinkResiduals(const std::vector<SweepCurve::Residual>& residuals);

}  // namespace orrery
