// SPDX-License-Identifier: Apache-2.0
// When snapshots are read and written.
#include "runtime/train/snapshot/hook.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <system_error>

#include "runtime/train/snapshot/snapshot.h"

namespace orrery::snapshot {
namespace {

using Clock = std::chrono::steady_clock;

double Since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

void SnapshotHook::BeforeTraining(exec::Executor* executor) {
  const bool first = endpoint_->rank() == 0;
  if (!options_.save.empty() && first) MakeFolder(options_.save);  // better now than an hour later
  if (options_.resume.empty()) return;
  const Resumed resumed = Resume(executor, endpoint_,
                                 {options_.resume, options_.seed, options_.data,
                                  options_.deadline_s, options_.note, options_.conditions});
  resumed_step_ = resumed.step;
  resumed_samples_ = resumed.samples;
  data_->Resume(resumed.step, resumed.samples);
  std::error_code ignored;
  const bool same = options_.resume == options_.save ||
                    std::filesystem::equivalent(options_.resume, options_.save, ignored);
  if (same) {
    saved_step_ = resumed.step;
    saver_.set_refused(resumed.refused);
    if (first && !resumed.refused.empty() && options_.note)
      options_.note(
          fmt::format("{}: what is not used stays, and is none of the {} snapshots that are kept",
                      options_.save, kKept));
  }
  if (first && options_.progress) {
    options_.progress(fmt::format("resumed behind step {} from {}/{}", resumed.step,
                                  options_.resume, StepFolder(resumed.step)));
  }
}

void SnapshotHook::AfterStep(exec::Executor* executor, const launch::StepRecord& record) {
  const bool due =
      !options_.save.empty() && options_.every > 0 && record.step % options_.every == 0;
  Advance(due);
  if (due) Begin(executor);
}

void SnapshotHook::Secure(exec::Executor* executor) {
  Advance(true);
  const bool stopped_at_once =
      executor->steps_done() == resumed_step_ && resumed_step_ < options_.steps;
  if (options_.save.empty() || saved_step_ == executor->steps_done() || stopped_at_once) return;
  Begin(executor);
  Advance(true);
}

void SnapshotHook::Begin(exec::Executor* executor) {
  begun_ = Clock::now();
  told_ = false;
  const int64_t step = executor->steps_done();
  saver_.Begin(executor, resumed_samples_ + (step - resumed_step_) * options_.samples_per_step);
  saved_step_ = step;
  waited_s_ = Since(begun_);
}

void SnapshotHook::Advance(bool to_the_end) {
  if (!saver_.busy()) return;
  const auto begin = Clock::now();
  to_the_end ? saver_.Finish() : saver_.Poll();
  waited_s_ += Since(begin);
  if (told_ || !saver_.whole() || endpoint_->rank() != 0 || !options_.progress) return;
  told_ = true;
  options_.progress(fmt::format("saved {}/{} in {:.0f} ms, for which training waited {:.1f} ms",
                                options_.save, StepFolder(saver_.step()), 1e3 * Since(begun_),
                                1e3 * waited_s_));
}

}  // namespace orrery::snapshot
