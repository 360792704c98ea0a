// SPDX-License-Identifier: Apache-2.0
// Ends training after a step that all ranks agree on, when any of them was asked to.
#pragma once

#include <chrono>
#include <string>

#include "runtime/train/train_rank.h"

namespace orrery::launch {

// One word of every rank goes up a tree and the largest comes down again after each step: two
// messages per rank. Put it behind the hooks that are to see the last step.
class StopHook : public StepHook {
 public:
  // `time_limit_s`: of the process, from `begin` on; 0: none.
  StopHook(comm::Endpoint* endpoint, double deadline_s, double time_limit_s,
           std::chrono::steady_clock::time_point begin)
      : endpoint_(endpoint), deadline_s_(deadline_s), limit_s_(time_limit_s), begin_(begin) {}

  void BeforeMemory() override;
  void BeforeTraining(exec::Executor* executor) override;
  void AfterStep(exec::Executor* executor, const StepRecord& record) override;
  bool Stops() const override { return why_ != 0; }
  // "SIGTERM", "the time limit"; empty: nobody asked. The same on all ranks.
  std::string why() const;
  bool at_once() const { return at_once_; }  // before the first step

 private:
  void Agree(int64_t mine);

  comm::Endpoint* endpoint_;
  double deadline_s_, limit_s_;
  std::chrono::steady_clock::time_point begin_;
  int64_t why_ = 0;  // a signal's number, or kTimeUp
  bool at_once_ = false;
};

}  // namespace orrery::launch
