// SPDX-License-Identifier: Apache-2.0
// The published runs nearest to a question, with what was measured and what is predicted for them.
#pragma once

#include <string>
#include <vector>

#include "model/twin/job.h"
#include "model/twin/situation.h"

namespace orrery {

struct NearRun {
  std::string name;                      // case in calib/data/published_runs.csv
  std::string framework, gpu, topology;  // the framework without release and site
  Situation at{};
  double measured = 0, predicted = 0;  // seconds; predicted by a fit that saw no run of the model
  double distance = 0;                 // see NearestRuns()
};

// The `count` runs of calib/profiles/left_out.csv that are nearest to a layout, nearest first. Distance: the length of
// the vector of log2 ratios of kFeatures but nodes (GPUs say it), in doublings; another chip and another framework count as two doublings each,
// another cluster as one. Of one model on one cluster only the nearest run is named. Empty where there is no such file.
// Throws InputError: the file is damaged.
std::vector<NearRun> NearestRuns(const Job& job, const Strategy& layout, std::size_t count);

}  // namespace orrery
