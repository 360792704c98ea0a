// SPDX-License-Identifier: Apache-2.0
// The loop over steps, and the one place where a rank's errors end up.
#include "runtime/train/train_rank.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <thread>

namespace orrery::launch {
namespace {

// Seen by all ranks alike, so that one of them is enough to report it.
struct LossError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

int64_t InvoluntarySwitches() {
  rusage usage{};
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_nivcsw;
}

void Loop(const ir::Plan& plan, comm::Endpoint* endpoint, train::DataSource* data,
          const TrainOptions& options, const std::vector<StepHook*>& hooks) {
  const auto stops = [&] {
    return std::any_of(hooks.begin(), hooks.end(), [](StepHook* hook) { return hook->Stops(); });
  };
  for (StepHook* hook : hooks) hook->BeforeMemory();
  if (stops()) return;
  exec::Executor executor(plan, endpoint, data, options.execute);
  for (StepHook* hook : hooks) hook->BeforeTraining(&executor);
  while (!stops() && executor.steps_done() < options.steps) {
    data->Prefetch(executor.steps_done() + 1);
    const int64_t switches = InvoluntarySwitches();
    StepRecord record;
    record.result = executor.Step();
    record.step = executor.steps_done();
    record.switches = InvoluntarySwitches() - switches;
    if (!std::isfinite(record.result.loss)) {
      throw LossError(
          fmt::format("the loss of step {} is {}; a lower learning rate or another "
                      "precision may help",
                      record.step, record.result.loss));
    }
    for (StepHook* hook : hooks) hook->AfterStep(&executor, record);
  }
  for (StepHook* hook : hooks) hook->Secure(&executor);
  for (StepHook* hook : hooks) hook->AfterTraining(&executor);
}

// Until the rank that reports has ended the job.
void AwaitAbort(comm::Endpoint* endpoint, double deadline_s) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(deadline_s);
  try {
    while (Clock::now() < until) {
      endpoint->Idle();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  } catch (const comm::CommError&) {
  }
}

}  // namespace

bool TrainRank(const ir::Plan& plan, comm::Endpoint* endpoint, train::DataSource* data,
               const TrainOptions& options, const std::vector<StepHook*>& hooks) {
  const auto report = [&](const std::string& why) {
    endpoint->Abort(fmt::format("rank {} on {}: {}", endpoint->rank(), endpoint->host(), why));
    return false;
  };
  try {
    Loop(plan, endpoint, data, options, hooks);
    return true;
  } catch (const LossError& error) {
    if (endpoint->rank() == 0) return report(error.what());
    AwaitAbort(endpoint, options.execute.deadline_s);
    return false;
  } catch (const comm::CommError& error) {
    if (!error.peer_failed) return report(error.what());
    if (options.stopped_by_peer) options.stopped_by_peer(error.what());
    return false;
  } catch (const std::bad_alloc&) {
    return report("out of memory: the plan's arena does not fit here");
  } catch (const std::exception& error) {
    return report(error.what());
  }
}

}  // namespace orrery::launch
