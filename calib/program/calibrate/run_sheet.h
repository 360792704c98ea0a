// SPDX-License-Identifier: Apache-2.0
// Runs whose logs a fit takes: which log, which model, cluster and layout it was.
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
#pragma once

#include <string>
#include <vector>

#include "calib/fit/log_measure.h"

namespace orrery {

// Reads a sheet and all its logs. Throws InputError with everything that is wrong.
std::vector<LoggedRun> ReadRunSheet(const std::string& path);

}  // namespace orrery
