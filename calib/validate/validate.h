// SPDX-License-Identifier: Apache-2.0
// `plan validate FILE.csv`: predicts every published run of a file and compares.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "calib/validate/case_row.h"
#include "model/twin/predict.h"

namespace orrery {

struct CasePrediction {
  CaseRow row;
  std::optional<StepTime> time;                   // absent: row.refused says why
  std::vector<std::string> outside;               // what the calibration does not cover
  std::optional<double> predicted_mem_gib;        // of the device, as nvidia-smi shows it
  std::optional<double> gpu_gib;                  // that a GPU has
  std::optional<double> predicted_allocator_gib;  // peak that the allocator handed out

  bool compared() const { return time && row.measured_step_s > 0; }
};

// Signed errors are predicted / measured - 1.
struct ErrorSummary {
  int rows = 0;                           // all rows of the group
  int predicted = 0;                      // of them compared
  int refused = 0;                        // of them without a prediction
  double mean = 0, median = 0, bias = 0;  // mean and median of |error|, mean of error
  double worst = 0;                       // the error of largest size, signed
  std::string worst_case;
  double inside = 0;  // share of the measured times inside the interval
};
ErrorSummary Summarise(const std::vector<const CasePrediction*>& cases);

// By source; a source with rows of one node and of several is there thrice: "a", "a, one node",
// "a, several nodes".
std::map<std::string, std::vector<const CasePrediction*>> BySource(
    const std::vector<CasePrediction>& cases);

// Predicts all rows. A topology, chip or software that is not known refuses its rows by name. `threads`: 0, one per core;
// any number of them predicts the same. Without `terms` a simulated time has its total and interval alone, in less time.
std::vector<CasePrediction> PredictCases(std::vector<CaseRow> rows, Engine engine = Engine::kClosed,
                                         int threads = 0, bool terms = true);

// Reads the file; throws InputError (missing columns, malformed cells).
std::vector<CaseRow> LoadCases(const std::string& path);

}  // namespace orrery
