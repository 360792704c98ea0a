// SPDX-License-Identifier: Apache-2.0
// `plan calibrate --update`: further logs for an earlier calibration of a site.
#pragma once

#include <string>
#include <vector>

#include "calib/fit/calibration_record.h"

namespace orrery {

// Fits the logs of `profile` again, without and with `files`; prints what moved, whether the new runs agree
// with the old ones, and the errors of rows that neither fit saw; writes `output`, or `profile` where that
// is empty. `said`: date and releases by flag. Throws InputError.
void UpdateCalibration(const std::string& profile, const std::vector<std::string>& files,
                       const CalibrationRecord& said, const std::string& output);

}  // namespace orrery
