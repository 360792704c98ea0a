// SPDX-License-Identifier: Apache-2.0
// Candidates as rows of one table.
#pragma once

#include <string>
#include <vector>

#include "model/program/common/job.h"

namespace orrery::report {

// Columns in which all rows are alike and plain (no pipeline, no ZeRO, ...) are left out.
std::string RankedTable(const Job& job, const std::vector<Candidate>& candidates);

}  // namespace orrery::report
