// SPDX-License-Identifier: Apache-2.0
// Facts of the framework's release that the step time of a job rests on, in words.
#pragma once

#include <vector>

#include "model/program/common/job.h"

namespace orrery::cli {

// The job has its framework, precision, attention and GPU.
std::vector<report::ReleaseFact> ReleaseFacts(const report::Job& job);

}  // namespace orrery::cli
