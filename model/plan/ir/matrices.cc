// SPDX-License-Identifier: Apache-2.0
// Matrices of flat units, and what orthogonalising them takes.
#include "model/plan/ir/matrices.h"

#include <algorithm>

namespace orrery::ir {

std::vector<UnitMatrix> MatricesOf(const Unit& unit, std::span<const Param> params) {
  std::vector<UnitMatrix> matrices;
  for (const UnitSegment& segment : unit.segments) {
    const Param& param = params[static_cast<std::size_t>(segment.param)];
    if (param.shape.size() != 2 || param.shape[0] <= 0 || param.shape[1] <= 0) continue;
    const auto whole =
        static_cast<double>(param.shape[param.shard_dim == 1 ? 0 : 1]);  // side that is not cut
    const double other = static_cast<double>(segment.elements) / whole;
    const double rows = std::min(whole, other), columns = std::max(whole, other);
    const auto known = std::ranges::find_if(matrices, [&](const UnitMatrix& matrix) {
      return matrix.rows == rows && matrix.columns == columns;
    });
    if (known == matrices.end())
      matrices.push_back({rows, columns, 1});
    else
      ++known->count;
  }
  return matrices;
}

double NewtonSchulzWork(const UnitMatrix& matrix) {
  const double square = matrix.rows * matrix.rows;
  return kNewtonSchulzSteps * (4 * square * matrix.columns + 2 * square * matrix.rows);
}

double NewtonSchulzWork(const std::vector<UnitMatrix>& matrices) {
  double work = 0;
  for (const UnitMatrix& matrix : matrices) work += matrix.count * NewtonSchulzWork(matrix);
  return work;
}

}  // namespace orrery::ir
