// SPDX-License-Identifier: Apache-2.0
// Agreement on the last step.
#include "runtime/train/stop_hook.h"

#include <csignal>

#include "runtime/comm/gather.h"
#include "runtime/launch/stop_request.h"

namespace orrery::launch {
namespace {

constexpr int64_t kTimeUp = 1000;  // no signal has this number

}  // namespace

void StopHook::AfterStep(exec::Executor*, const StepRecord&) {
  int64_t mine = SignalSeen();
  const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - begin_;
  if (limit_s_ > 0 && passed.count() >= limit_s_) mine = kTimeUp;
  why_ = comm::LargestOf(endpoint_, mine, deadline_s_);
}

std::string StopHook::why() const {
  if (why_ == 0) return "";
  return why_ == kTimeUp ? "the time limit" : why_ == SIGTERM ? "SIGTERM" : "SIGUSR1";
}

}  // namespace orrery::launch
