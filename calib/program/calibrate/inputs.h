// SPDX-License-Identifier: Apache-2.0
// The files that a fit is given: CSVs of published runs, sheets of logged runs, logs with a sheet.
#pragma once

#include <string>
#include <vector>

#include "calib/import/kernel_csv.h"
#include "calib/program/calibrate/run_sheet.h"

namespace orrery {

struct FitInputs {
  std::vector<CaseRow> rows;       // to be fitted, logged ones included
  std::vector<CaseRow> predicted;  // to be compared only
  std::vector<LoggedRun> runs;
  std::vector<measured::KernelSample> kernels;
};

// X.yaml: a sheet. X with X.yaml beside it: that sheet. A CSV of timed kernels, by its columns kind
// and seconds; else a CSV of `plan validate`.
// Throws InputError.
FitInputs LoadInputs(const std::vector<std::string>& files);

// What each log gave, and its garbled lines by name; empty: there is no log.
std::string RenderLogs(const std::vector<LoggedRun>& runs);

}  // namespace orrery
