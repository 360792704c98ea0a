// SPDX-License-Identifier: Apache-2.0
// What timed products and attentions of a chip leave of the formulas, as tables by shape that
// predictions use (model/hardware/kernel_factors.h).
//
// Spread, reach and noise are those under which the logarithms of measured over predicted are most
// likely, beside a clock that changes: short calls that were measured one after the other deviate together, long ones
// see its mean. A table holds the means at the measured shapes without that. Left out together are the shapes of a weight (n, k), or heads and head size of an
// attention; of kernels with fewer than three such groups single shapes. A table is used where left-out
// shapes come out better with it than without.
#pragma once

#include <string>
#include <vector>

#include "calib/fit/kernel_source.h"

namespace orrery {

struct ShapeTable {
  Precision precision = Precision::kBf16;
  std::string kernel;
  KernelFactors::Rule rule;
  std::vector<KernelFactors::Measured> shapes;
  int points = 0;
  double noise = 0,
         drift =
             0;  // of one measurement; of a clock that changes, shared by neighbours in the file
  double formula_error = 0, table_error = 0;  // mean |predicted / measured - 1| of left-out shapes
  bool used = false;
};

// `fitted`, `unseen`: ln(predicted / measured) of the source's observations by formulas alone, the
// constants fitted to all of them or without their group (empty: not known).
std::vector<ShapeTable> FitShapeTables(const KernelSource& source,
                                       const std::vector<double>& fitted,
                                       const std::vector<double>& unseen);

// One line per kernel: what was measured, how wrong left-out shapes are, whether it is used.
std::string RenderShapeTables(const std::vector<ShapeTable>& tables);

// The text of a chip's profile with these tables instead of what it held.
std::string WithShapeTables(const std::string& text, const std::vector<ShapeTable>& tables);

// Writes the used ones into the chip's profile at the place where WriteProfiles() puts it. "": none
// is used.
std::string WriteShapeTables(const std::vector<ShapeTable>& tables, const std::string& gpu,
                             const std::string& folder);

}  // namespace orrery
