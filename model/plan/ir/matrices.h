// SPDX-License-Identifier: Apache-2.0
// The matrices of a flat unit as a rank holds them, for optimizers that update each as a whole (Muon).
#pragma once

#include <span>
#include <vector>

#include "model/plan/ir/plan.h"

namespace orrery::ir {

// Matrices of one shape, the shorter side first.
struct UnitMatrix {
  double rows = 0, columns = 0;
  double count = 0;
};

// Of a unit: parameters with two dimensions, a tensor rank's own part of each. Equal shapes are one entry.
std::vector<UnitMatrix> MatricesOf(const Unit& unit, std::span<const Param> params);

// Newton-Schulz steps on X [k x l], k <= l, each of three products (Jordan et al. 2024): A = X X^T (2 k^2 l operations), A A
// (2 k^3), B X (2 k^2 l).
inline constexpr double kNewtonSchulzSteps = 5;
// Operations on one of them.
double NewtonSchulzWork(const UnitMatrix& matrix);
// On all of them.
double NewtonSchulzWork(const std::vector<UnitMatrix>& matrices);

}  // namespace orrery::ir
