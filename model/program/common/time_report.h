// SPDX-License-Identifier: Apache-2.0
// Step time in text: interval, throughput, model FLOPs utilisation, breakdown with bars.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/program/common/job.h"

namespace orrery::report {

// "537 ms (456 to 644)": prediction and 80 % interval, in the same unit; "537 ms" without one.
std::string TimeWithInterval(const StepTime& time);

// Every part unknown: NaN.
StepTime UnknownTime();

// The breakdown: seconds, share of `total` and bar of every part above zero, largest first; and what
// communication is hidden behind compute.
std::string BreakdownTable(const Breakdown& time, double total);
nlohmann::ordered_json TimeJson(const Breakdown& time);

}  // namespace orrery::report
