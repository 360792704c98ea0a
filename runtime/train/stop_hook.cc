// SPDX-License-Identifier: Apache-2.0
// Agreement on the last step.
#include "runtime/train/stop_hook.h"

#include "runtime/comm/gather.h"
#include "runtime/launch/stop_request.h"

namespace orrery::launch {
namespace {

constexpr int64_t kTimeUp = 1000;  // no signal has this number

}  // namespace

void StopHook::Agree(int64_t mine) {
  why_ = comm::LargestOf(endpoint_, mine, deadline_s_);
  if (Stops()) StopIsUnderWay();
}

// Of the time limit a step is made whatever it is: a job that is started again and again gets on.
void StopHook::BeforeMemory() {
  Agree(SignalSeen());
  at_once_ = Stops();
}
void StopHook::BeforeTraining(exec::Executor*) { BeforeMemory(); }

void StopHook::AfterStep(exec::Executor*, const StepRecord&) {
  int64_t mine = SignalSeen();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  if (limit_s_ > 0 && passed.count() >= limit_s_) mine = kTimeUp;
  Agree(mine);
}

std::string StopHook::why() const {
  if (why_ == 0) return "";
  return why_ == kTimeUp ? "the time limit" : SignalName(static_cast<int>(why_));
}

}  // namespace orrery::launch
