// SPDX-License-Identifier: Apache-2.0
// What the JSON of a prediction says of a GPU's peaks: for those who read it as a log, and as what a log is compared with.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>

#include "calib/import/training_log.h"

namespace orrery::measured {

// Absent: not said.
struct PredictedPeaks {
  // Of the GPUs' peak rate, see StepSample::peak_share; absent also where products are in fewer bits, which have another peak.
  std::optional<double> share;
  // Bytes at the peak that PyTorch's allocator hands out (tensors and the workspaces of libraries: max_memory_allocated), and
  // that it keeps with its free blocks (max_memory_reserved). The context of the device is in neither.
  std::optional<double> allocated, reserved;
};
// `body`: the prediction, or the ranked layout, in `root`.
PredictedPeaks PeaksOf(const nlohmann::json& root, const nlohmann::json& body);
// Each member `NAME_s` of an object is a term. What is hidden behind compute is no part of the step.
void TakeTerms(const nlohmann::json& object, int64_t rank, int line, TrainingLog* log);

}  // namespace orrery::measured
