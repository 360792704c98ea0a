// SPDX-License-Identifier: Apache-2.0
// Watches a run: prints rank 0's steps, keeps every rank's, gathers them at the end.
#pragma once

#include <string>
#include <vector>

#include "runtime/exec/trace_events.h"
#include "runtime/program/run/record.h"

namespace orrery::cli {

// What rank 0 prints with and ends up with.
struct Observer {
  bool quiet = false;
  std::string trace_file;
  int64_t trace_steps = 1;  // the last ones
  double peak_flops_per_s = 0;
  std::vector<RankPart> parts;  // by rank, after the run
};

class RankObserver : public launch::StepHook {
 public:
  // Rank 0 alone touches `observer` but for what says how to trace.
  RankObserver(const RunJob& job, comm::Endpoint* endpoint, Observer* observer);
  void BeforeTraining(exec::Executor* executor) override;
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override;
  void AfterTraining(exec::Executor* executor) override;

 private:
  void GatherTrace(const exec::Executor& executor);

  const RunJob& job_;
  comm::Endpoint* endpoint_;
  Observer* observer_;
  RankPart part_;
  std::vector<exec::TracedStep> traced_;
};

}  // namespace orrery::cli
