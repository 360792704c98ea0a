// SPDX-License-Identifier: Apache-2.0
// One rank's last step as Chrome trace events, in the shape of the simulated trace
// (model/report/trace_json.h): a process per rank, a thread per stream, an event per op.
#pragma once

#include <string>

#include "runtime/exec/executor.h"

namespace orrery::exec {

// Events separated by ",\n". Times are microseconds since `origin_ns` on this rank's clock.
std::string TraceEvents(const Executor& executor, int64_t origin_ns);

// Beginning of the last step on this rank's clock.
int64_t StepBegin(const Executor& executor);

}  // namespace orrery::exec
