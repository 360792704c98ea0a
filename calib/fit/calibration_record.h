// SPDX-License-Identifier: Apache-2.0
// What a calibrated profile says of its calibration: when, with which releases, from which logs.
//
//   calibration:
//     site: megatron@my-cluster
//     topology: ./my-cluster.yaml       # relative to the profile, like the logs; or a name of the catalogue
//     date: 2026-03-01
//     device: "NVIDIA H100 80GB HBM3"
//     driver: 550.54.15
//     nccl: 2.20.5
//     release: "Megatron-Core 0.8.0"
//     logs: ["../logs/step.log"]
//     runs: ["what,case,...", "step_time,step.log,..."]   # of these logs, as calib/profiles/left_out.csv has them
#pragma once

#include <string>
#include <vector>

#include "calib/fit/fit.h"
#include "calib/import/log_facts.h"
#include "model/base/diagnostics.h"

namespace orrery {

struct CalibrationRecord {
  std::string site, topology;  // topology: as `plan predict --topology` takes it
  std::string date, device, driver, nccl, release;  // "": not said; several stand between commas
  std::vector<std::string> logs;
  std::vector<std::string>
      runs;  // lines, the first the header: the answer's kin (model/twin/nearest.h)

  // Adds what a log says; what the record has already stays.
  void Add(const measured::LogFacts& facts);
};

// Lines for `runs`: the training runs of a fit with the errors of predictions, log(predicted / measured).
std::vector<std::string> RunLines(const Evidence& evidence, const std::vector<double>& errors);

// Paths come back as seen from the working folder. Throws InputError: no profile that names its logs.
CalibrationRecord ReadCalibrationRecord(const std::string& profile);

// The profile's text with this record in the place of an older one, above its constants. `profile`: where
// the text will stand.
std::string WithRecord(const std::string& text, const CalibrationRecord& record,
                       const std::string& profile);

}  // namespace orrery
