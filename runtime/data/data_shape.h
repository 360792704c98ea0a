// SPDX-License-Identifier: Apache-2.0
// What a plan wants to be fed with: the sequences of one sample.
#pragma once

#include <cstdint>

#include "model/plan/ir/plan.h"

namespace orrery::train {

struct DataShape {
  int64_t input = 0;    // tokens of a sample; 0: the plan wants features
  int64_t decoder = 0;  // tokens that follow for a decoder
  int64_t masked = 0;   // positions to predict; 0: every next token

  int64_t stride() const { return input + decoder; }
  int64_t window() const { return stride() + (masked > 0 ? 0 : 1); }  // with the last label
};

DataShape ShapeOf(const ir::Plan& plan);

}  // namespace orrery::train
