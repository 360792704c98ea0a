// SPDX-License-Identifier: Apache-2.0
// Peak memory of a published run: what its plan demands and the software's terms on top.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "calib/validate/case_row.h"
#include "model/framework/profile.h"
#include "model/memory/memory.h"

namespace orrery {

struct PredictedMemory {
  double allocator_gib = 0;  // of the fullest rank
  double device_gib = 0;  // of the fullest rank on the job's first node, where nvidia-smi is read
};

// What one run demands of its GPUs, whatever the constants.
struct RunDemand {
  std::vector<StageDemand> stages;
  int first_node_stages =
      1;  // stages with ranks on the first node: ranks count data before pipeline
  int communicators = 0;
};
PredictedMemory MemoryOf(const RunDemand& demand, const GpuProfile& gpu,
                         const FrameworkProfile& framework);

class MemoryPredictor {
 public:
  // Null when the strategy cannot be lowered; the pointer stays valid.
  const RunDemand* Demand(const CaseRow& row, const Holding& holding);
  std::optional<PredictedMemory> Predict(const CaseRow& row, const GpuProfile& gpu,
                                         const FrameworkProfile& framework);
  // The plan of a row that Demand() has lowered last, with few micro-batches; once. nullopt: that was another row's, or of
  // other choices of this row.
  std::optional<ir::Plan> TakePlan(const CaseRow& row);

 private:
  // By everything that shapes a plan, and by who holds it.
  std::map<std::pair<std::string, Holding>, std::optional<RunDemand>> demands_;
  std::string lowered_for_;
  std::optional<ir::Plan> lowered_;
};

}  // namespace orrery
