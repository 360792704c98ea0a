// SPDX-License-Identifier: Apache-2.0
// Predictions of runs that the fit had not seen: calib/profiles/left_out.csv, written by `plan calibrate` next to the
// profiles and read for calib/ACCURACY.md.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>

#include "model/twin/kinship.h"

namespace orrery {

// A row predicted without the other rows of its model, or of its source. Inside: the measured time lies in the 80 %
// interval that the remaining rows give; absent where they give none.
struct LeftOutRow {
  double by_model = 0;  // predicted over measured
  std::optional<bool> inside_by_model;
  std::optional<double> by_source;
  std::optional<bool> inside_by_source;
  // Of step times: which run it was (model/twin/nearest.h).
  double measured = 0;  // seconds
  std::optional<RunIdentity> run;
};

// By what was predicted, kStepTimeRow or kMemoryRow, and the name of the run.
using LeftOutRows = std::map<std::pair<std::string, std::string>, LeftOutRow>;
inline constexpr const char* kStepTimeRow = "step_time";
inline constexpr const char* kMemoryRow = "memory";

std::string LeftOutText(const LeftOutRows& rows);
// Empty where there is no such file. Throws InputError where it cannot be read as one.
LeftOutRows ReadLeftOut(const std::string& path);
// Of the profiles that are in use.
std::string LeftOutPath();

}  // namespace orrery
