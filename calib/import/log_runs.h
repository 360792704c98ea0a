// SPDX-License-Identifier: Apache-2.0
// Runs that stand behind one another in one log: restarts, and jobs that append to the same file.
#pragma once

#include <cstddef>
#include <vector>

#include "calib/import/log_facts.h"
#include "calib/import/training_log.h"

namespace orrery::measured {

struct LoggedRun {
  std::size_t first = 0, end = 0;  // of log.steps
  SourcePtr text;                  // what it printed, on the lines that it has in the log
  LogFacts facts;                  // of this text
};

// One at least; a log without steps is one run. Another one begins where a program prints that it begins, where steps count
// back, and where one is counted again, unless so many are that unnamed ranks print them. What starts of a run printed that
// took no step before the next start is no run's.
std::vector<LoggedRun> RunsOf(const TrainingLog& log);

}  // namespace orrery::measured
