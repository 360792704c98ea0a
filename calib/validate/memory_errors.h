// SPDX-License-Identifier: Apache-2.0
// Errors of predicted memory, apart for the two figures that programs print.
#pragma once

#include <vector>

#include "calib/validate/validate.h"

namespace orrery {

struct MemoryErrors {
  int rows = 0;
  double mean = 0, bias = 0, worst = 0;  // relative; of |error|, of error, signed
  // Rows with others of the same layout, which differ in the number of micro-batches or in nothing, and the least mean
  // |error| on them of any prediction that has one figure for a layout: readings of one thing differ so much.
  int repeated = 0;
  double least_mean = 0;
};

// Rows whose figure is of that kind, or that do not say which.
MemoryErrors SummariseMemory(const std::vector<const CasePrediction*>& cases, MemoryKind kind);

}  // namespace orrery
