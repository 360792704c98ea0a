// SPDX-License-Identifier: Apache-2.0
// plan run --supervise: the same run again after a failure, from the newest snapshot.
#pragma once

#include "model/program/common/answer.h"
#include "runtime/program/run/run_job.h"

namespace orrery::cli {

// Starts the run as a child, again and again: until it ends by itself, is asked to end (kStoppedCode),
// refuses its input, or has failed --max-restarts times in a row behind the same snapshot. Every
// failure and what is done about it is said on standard error. Ranks are as many as the hostfile has
// room for at that moment, at most those of `job`; on fewer, the planner picks the layout. Under mpirun its hosts
// are asked before each start and while a run goes on (hosts.h): those that do not answer are lost, named and left
// out (where no other host answers at all, those of which something else says so: AnyHost); one that answers again is
// taken at the next start. What is left stands in SAVE/hosts. --json is of all lives (lives.h), whatever the exit code.
Answer Supervise(const RunFlags& flags, const RunJob& job, const CommandLine& line);

}  // namespace orrery::cli
