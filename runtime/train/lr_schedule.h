// SPDX-License-Identifier: Apache-2.0
// The learning rate of each step, as a share of --lr: a function of the step's number alone, so that a
// run that is resumed goes on with it on any number of ranks.
#pragma once

#include <cstdint>

namespace orrery::train {

enum class LrShape { kConstant, kCosine, kPolynomial };

// Steps count from 1. Up to `warmup`: step / warmup. From there to `steps` the share s falls from 1 to
// `end`: with t = (step - warmup) / (steps - warmup) in [0, 1],
//   cosine      end + (1 - end) (1 + cos(pi t)) / 2   (Loshchilov and Hutter 2017, equation 5)
//   polynomial  end + (1 - end) (1 - t)^power
// and stays there.
struct LrSchedule {
  LrShape shape = LrShape::kConstant;
  int64_t warmup = 0, steps = 0;
  double end = 0, power = 1;

  double At(int64_t step) const;
};

}  // namespace orrery::train
