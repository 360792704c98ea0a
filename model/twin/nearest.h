// SPDX-License-Identifier: Apache-2.0
// The published runs nearest to a question, with what was measured and what is predicted for them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/twin/job.h"
#include "model/twin/kinship.h"

namespace orrery {

struct NearRun : RunIdentity {
  std::string name;                    // case in calib/data/published_runs.csv
  double measured = 0, predicted = 0;  // seconds; predicted by a fit that saw no run of the model
  double distance = 0;                 // see NearestRuns()
};

// All runs of calib/profiles/left_out.csv: what the constants were calibrated on. Empty where there is no such file.
// Throws InputError: the file is damaged.
std::shared_ptr<const std::vector<NearRun>> CalibratedRuns();

// What `plan calibrate` left in the profile of a site, its `calibration` block.
struct SiteCalibration {
  std::string site;  // FRAMEWORK@TOPOLOGY; "": it was not calibrated by itself
  std::vector<NearRun>
      runs;  // of a profile outside of the catalogue, whose runs are in no left_out.csv
};
// Throws InputError: its lines are damaged.
SiteCalibration CalibrationOf(const FrameworkProfile& framework);

// The `count` calibrated runs that are nearest to a layout, nearest first. Distance: the length of
// the vector of log2 ratios of kFeatures but nodes (GPUs say it), in doublings; another chip and another framework (not release) count as two doublings each,
// another cluster and another precision of products as one. Of one model on one cluster only the nearest run is named. Empty where there is no such file.
// Throws InputError: the file is damaged.
std::vector<NearRun> NearestRuns(const Job& job, const Strategy& layout, std::size_t count);

}  // namespace orrery
