// SPDX-License-Identifier: Apache-2.0
// Trains: one rank's loop over steps, with what happens before and after each of them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "runtime/exec/executor.h"

namespace orrery::launch {

// What one rank knows of one step.
struct StepRecord {
  int64_t step = 0;
  exec::StepResult result;
  int64_t switches = 0;  // involuntary context switches of this rank's thread (ru_nivcsw)
};

// Something that wants to see every step on every rank: snapshots, logs, traces. Errors are thrown.
class StepHook {
 public:
  virtual ~StepHook() = default;
  // Before the rank takes memory and makes its weights, which may last: a hook that Stops() then ends it here.
  virtual void BeforeMemory() {}
  virtual void BeforeTraining(exec::Executor* executor) { (void)executor; }
  virtual void AfterStep(exec::Executor* executor, const StepRecord& record) {
    (void)executor, (void)record;
  }
  // Asked after each step, when all hooks have seen it; the same on all ranks. True: it was the last.
  virtual bool Stops() const { return false; }
  // All steps are done. First of all hooks those that make them safe: a stop leaves little time, and what others gather may fail.
  virtual void Secure(exec::Executor* executor) { (void)executor; }
  virtual void AfterTraining(exec::Executor* executor) { (void)executor; }
};

struct TrainOptions {
  exec::ExecuteOptions execute;
  int64_t steps = 1;  // the last one's number
  // Of a rank that ends because another one has failed, and why that one did as far as is known.
  std::function<void(const std::string&)> stopped_by_peer = {};
};

// Runs steps until `options.steps` are done. What goes wrong is reported once for all ranks through
// Endpoint::Abort, as "rank 3 on node7: cause". False: this or another rank has failed.
bool TrainRank(const ir::Plan& plan, comm::Endpoint* endpoint, train::DataSource* data,
               const TrainOptions& options, const std::vector<StepHook*>& hooks);

}  // namespace orrery::launch
