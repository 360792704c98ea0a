// SPDX-License-Identifier: Apache-2.0
// What `plan run` prints: a heading, a line per step, a summary. Rank 0 only.
#pragma once

#include <string>

#include "runtime/program/run/record.h"

namespace orrery::cli {

std::string RunHeading(const RunJob& job, const std::string& host, int64_t arena_bytes,
                       double peak_flops_per_s);
std::string StepLine(const RunJob& job, const launch::StepRecord& record, double peak_flops_per_s);
std::string RunSummary(const RunJob& job, const std::vector<RankPart>& parts,
                       double peak_flops_per_s);

}  // namespace orrery::cli
