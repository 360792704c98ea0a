// SPDX-License-Identifier: Apache-2.0
// `plan run --tensorboard`: rank 0's steps as scalars of an event file.
#pragma once

#include <memory>

#include "runtime/program/run/event_file.h"
#include "runtime/program/run/run_job.h"
#include "runtime/train/train_rank.h"

namespace orrery::cli {

class EventHook : public launch::StepHook {
 public:
  EventHook(const RunJob& job, const comm::Endpoint* endpoint, double peak_flops_per_s)
      : job_(job), endpoint_(endpoint), peak_flops_per_s_(peak_flops_per_s) {}
  void BeforeTraining(exec::Executor* executor) override;
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override;

 private:
  const RunJob& job_;
  const comm::Endpoint* endpoint_;
  double peak_flops_per_s_;
  std::unique_ptr<EventFile> file_;  // null: another rank, or not asked for
};

}  // namespace orrery::cli
