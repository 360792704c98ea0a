// SPDX-License-Identifier: Apache-2.0
// Weighted sums of squares of pieces of a flat array, in double, always added in the same order.
#pragma once

#include <vector>

#include "runtime/device/cuda/frame.h"

namespace orrery::cuda {

// Elements [begin, middle) with one weight and [middle, end) with another, into element `target` of the output.
struct SquaredPiece {
  int64_t begin, middle, end, target;
};

// to[target] = (old absent: 0) old[target] + weight * sum before + weight_behind * sum behind, for each piece.
void SumSquares(OpFrame& f, Ref x, const std::vector<SquaredPiece>& pieces, double weight,
                double weight_behind, Ref old, Ref to);

}  // namespace orrery::cuda
