// SPDX-License-Identifier: Apache-2.0
// What goes into a collective that is checked, and what must come out: a function of rank and
// index, small whole numbers that every type holds exactly, sums included.
#pragma once

#include <cstddef>
#include <cstdint>

#include "model/collectives/algorithm.h"
#include "model/plan/ir/plan.h"

namespace orrery::bench {

struct Pattern {
  Collective collective = Collective::kAllReduce;
  ir::Dtype dtype = ir::Dtype::kF32;
  bool maximum = false;
  int64_t ranks = 1;
  int64_t count = 0;  // elements of the buffer, or of a rank's part

  int64_t inputs() const;   // elements that a rank gives
  int64_t outputs() const;  // elements that a rank gets

  int Input(int64_t rank, int64_t i) const;
  int Expected(int64_t rank, int64_t i) const;
};

void FillInput(const Pattern& pattern, int64_t rank, std::byte* input);
// Elements of a rank's result that are not as expected.
int64_t CountWrong(const Pattern& pattern, int64_t rank, const std::byte* output);

}  // namespace orrery::bench
