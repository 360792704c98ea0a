// SPDX-License-Identifier: Apache-2.0
// Watches a run: prints rank 0's steps, keeps every rank's, gathers them at the end.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runtime/comm/gather.h"
#include "runtime/exec/trace_events.h"
#include "runtime/program/run/profile.h"
#include "runtime/program/run/record.h"

namespace orrery::cli {

// What rank 0 prints with and ends up with.
struct Observer {
  bool quiet = false;
  std::string trace_file;
  int64_t trace_steps = 1;  // the last ones
  bool wants_timeline = false;
  nlohmann::ordered_json timeline;  // after the run, of the last step; null: not wanted
  double peak_flops_per_s = 0;
  RunRecord record;  // after the run
};

class RankObserver : public launch::StepHook {
 public:
  // Rank 0 alone touches `observer` but for what says how to trace.
  RankObserver(const RunJob& job, comm::Endpoint* endpoint, Observer* observer);
  void BeforeTraining(exec::Executor* executor) override;
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override;
  void AfterTraining(exec::Executor* executor) override;

 private:
  // `begin_ns` of rank 0, on this rank's clock. Rank 0 gets the offsets, too.
  int64_t Origin(int64_t begin_ns, std::vector<comm::ClockOffset>* clocks);
  void GatherRecord();
  void GatherTrace(const exec::Executor& executor);
  void GatherTimeline(const exec::Executor& executor);

  const RunJob& job_;
  comm::Endpoint* endpoint_;
  Observer* observer_;
  RankPart part_;
  StepLog<launch::StepRecord> steps_;
  std::vector<exec::TracedStep> traced_;
  StepProfile traced_profile_;  // over the same steps
  exec::TracedStep last_;       // where its timeline is wanted
};

}  // namespace orrery::cli
