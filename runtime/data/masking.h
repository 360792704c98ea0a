// SPDX-License-Identifier: Apache-2.0
// Masked language modelling on the fly: which positions a sample hides, and behind what.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/data/read_ahead.h"

namespace orrery::train {

struct Masking {
  uint64_t seed = 1;
  int64_t positions = 0;  // exactly so many a sample
  uint32_t mask_token = 0;
  int64_t random_below = 1;  // random tokens are below it
};

// Devlin et al. 2019, section 3.1: of the chosen positions, 80 % become the mask token, 10 % a
// random token, 10 % stay. Depends on seed, the sample's number and the position alone.
void Mask(const Masking& masking, int64_t sample_number, TokenSample* sample);

}  // namespace orrery::train
