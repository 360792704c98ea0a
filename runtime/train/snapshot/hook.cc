// SPDX-License-Identifier: Apache-2.0
// When snapshots are read and written.
#include "runtime/train/snapshot/hook.h"

#include <fmt/format.h>

#include <chrono>

#include "runtime/train/snapshot/snapshot.h"

namespace orrery::snapshot {

void SnapshotHook::BeforeTraining(exec::Executor* executor) {
  const bool first = endpoint_->rank() == 0;
  if (!options_.save.empty() && first) MakeFolder(options_.save);  // better now than an hour later
  if (options_.resume.empty()) return;
  const Resumed resumed =
      Resume(executor, endpoint_,
             {options_.resume, options_.seed, options_.data, options_.deadline_s, options_.note});
  resumed_step_ = saved_step_ = resumed.step;
  resumed_samples_ = resumed.samples;
  data_->Resume(resumed.step, resumed.samples);
  if (options_.resume != options_.save) saved_step_ = -1;
  if (first && options_.progress) {
    options_.progress(fmt::format("resumed behind step {} from {}/{}", resumed.step,
                                  options_.resume, StepFolder(resumed.step)));
  }
}

void SnapshotHook::AfterStep(exec::Executor* executor, const launch::StepRecord& record) {
  if (options_.every > 0 && record.step % options_.every == 0) SaveNow(executor);
}

void SnapshotHook::AfterTraining(exec::Executor* executor) {
  if (saved_step_ != executor->steps_done()) SaveNow(executor);
}

void SnapshotHook::SaveNow(exec::Executor* executor) {
  if (options_.save.empty()) return;
  using Clock = std::chrono::steady_clock;
  const auto begin = Clock::now();
  const int64_t step = executor->steps_done();
  const int64_t samples = resumed_samples_ + (step - resumed_step_) * options_.samples_per_step;
  Save(executor, endpoint_,
       {options_.save, options_.seed, options_.data, samples, options_.deadline_s});
  saved_step_ = step;
  if (endpoint_->rank() != 0 || !options_.progress) return;
  options_.progress(
      fmt::format("saved {}/{} in {:.0f} ms", options_.save, StepFolder(step),
                  std::chrono::duration<double, std::milli>(Clock::now() - begin).count()));
}

}  // namespace orrery::snapshot
