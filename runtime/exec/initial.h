// SPDX-License-Identifier: Apache-2.0
// Initial parameters from the counter-based generator: a value depends on seed, the parameter's
// name and the element's global index, never on the layout.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/plan/ir/plan.h"
#include "model/plan/ir/unit_codes.h"

namespace orrery::train {

// Initial value of one element of a parameter, by its global row-major index.
double InitialValue(uint64_t seed, const ir::Param& param, int64_t global_index);

// Elements [first, first + out.size()) of a flat unit on a rank at `coords`; padding is 0. Throws
// std::invalid_argument when a segment's size contradicts its parameter.
void InitialUnit(uint64_t seed, const ir::Plan& plan, const ir::Unit& unit,
                 const std::vector<int>& coords, int64_t first, std::span<double> out);

// What weights held in 8 bits begin with, by the op that casts their unit. A tensor's scale is that of the whole tensor, so every
// layout begins alike.
class InitialCodes {
 public:
  InitialCodes(uint64_t seed, const ir::Plan& plan, const ir::Unit& unit,
               const std::vector<int>& coords, const ir::Op& cast);
  const std::vector<double>& scales() const { return scales_; }
  // Elements [first, first + values.size()) of the unit: numbers become codes.
  void Cast(int64_t first, std::span<double> values) const;

 private:
  std::vector<ir::CodedSegment> segments_;
  ir::CastFormat format_;
  std::vector<double> scales_;
};

}  // namespace orrery::train
