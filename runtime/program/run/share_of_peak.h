// SPDX-License-Identifier: Apache-2.0
// The MFU of a step line.
#pragma once

#include <string>

#include "model/report/short_number.h"

namespace orrery::cli {

// "41.2 %". "-" where the peak is not known, or is below what the step did: a core's peak is measured, and is too low
// where other programs had the cores meanwhile.
inline std::string ShareOfPeak(double mfu) {
  return mfu > 0 && mfu <= 1 ? report::Percent(mfu) : "-";
}

}  // namespace orrery::cli
