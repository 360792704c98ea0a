// SPDX-License-Identifier: Apache-2.0
// One rank's last steps as Chrome trace events, in the shape of the simulated trace
// (model/program/simulate/trace_json.h): a process per rank, a thread per stream, an event per op.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/exec/executor.h"

namespace orrery::exec {

struct TracedStep {
  int64_t step = 0;
  std::vector<OpSpan> spans;  // by task
};

// Events separated by ",\n". Times are microseconds since `origin_ns` on this rank's clock. Of several
// steps, rank 0 marks each as `ProfilerStep#N`, the way of PyTorch's profiler. `term`: of the step's breakdown that an op
// belongs to.
std::string TraceEvents(const RankImage& image, const std::vector<TracedStep>& steps,
                        int64_t origin_ns, const std::function<std::string(const ir::Op&)>& term);

// Beginning of a step on this rank's clock.
int64_t StepBegin(const TracedStep& step);

}  // namespace orrery::exec
