// SPDX-License-Identifier: Apache-2.0
// Peak device memory of a published run: the lowered plan's arena and the software's overhead.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "calib/validate/case_row.h"
#include "model/cost/profile.h"

namespace orrery {

struct PredictedMemory {
  double allocator_gib = 0;  // the plan's arena
  double device_gib = 0;     // and fragmentation, context, communication buffers
};

class MemoryPredictor {
 public:
  // On the fullest rank; nullopt when the strategy cannot be lowered (context parallelism).
  std::optional<PredictedMemory> Predict(const CaseRow& row, const StackProfile& stack);

 private:
  std::map<std::string, std::optional<double>> arenas_;  // bytes, by everything that shapes a plan
};

}  // namespace orrery
