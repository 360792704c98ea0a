// SPDX-License-Identifier: Apache-2.0
// The files that a fit is given: CSVs of published runs, sheets of logged runs, logs with a sheet.
#pragma once

#include <string>
#include <vector>

#include "calib/fit/log_measure.h"
#include "calib/import/kernel_csv.h"

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

// Reads a sheet and all its logs: which log, which model, cluster and layout each run was.
//
//   description: text                   # of the whole sheet
//   runs:
//     - name: bert-large-8
//       log: bert-large-8.txt           # beside this file; any format of calib/import; default: the
//                                         sheet's own name without .yaml
//       window: microstep               # step (default), or microstep: forward and backward of one micro-batch;
//                                         # sustained: microstep of software whose timer does not wait for the
//                                         # device, taken where it has to: the steps at the end of its log
//       steps: 1..80                    # of the log; default: all but the first
//       use: predict                    # fit (default), or predict: kept out of the fit, compared with it
//       job: {model: bert-large, nodes: 1}        # keys are the flags of `plan predict`, `_` for `-`
//       layout: {zero: 1, micro_batch: 32}        # likewise
//
// Throws InputError with everything that is wrong.
std::vector<LoggedRun> ReadRunSheet(const std::string& path);

}  // namespace orrery
