// SPDX-License-Identifier: Apache-2.0
// What `plan run` prints: a heading, a line per step, a summary. Rank 0 only.
#pragma once

#include <cstdio>
#include <string>

#include "runtime/program/run/record.h"

namespace orrery::cli {

// At once, to stdout or stderr. Whoever reads may be gone, or be ended itself and read no more (mpirun): that neither ends a
// run nor holds up one that is to stop.
void Say(std::FILE* to, const std::string& text);

std::string RunHeading(const RunJob& job, const std::string& host, int64_t arena_bytes,
                       double peak_flops_per_s);
std::string StepLine(const RunJob& job, const launch::StepRecord& record, double peak_flops_per_s);
// `stopped_at_once`: before its first step.
std::string RunSummary(const RunJob& job, const RunRecord& record, double peak_flops_per_s,
                       bool stopped_at_once);

}  // namespace orrery::cli
