// SPDX-License-Identifier: Apache-2.0
// Which elements a dropout keeps: by seed, step, site, global sample and place in the sample, never by rank.
#pragma once

#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {

class Dropout {
 public:
  explicit Dropout(const KernelArgs& a);
  bool active() const { return rate_ > 0; }
  // 1/(1 - rate) where the element is kept, 0 where it is dropped. `sample` counts inside the micro-batch.
  double Factor(int64_t sample, int64_t position, int64_t column) const;
  double Factor(int64_t sample, int64_t head, int64_t query, int64_t key) const;

 private:
  double Draw(uint64_t place) const;
  double rate_;
  uint64_t site_;
  uint64_t first_sample_;
};

}  // namespace orrery::interpreter
