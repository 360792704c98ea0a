// SPDX-License-Identifier: Apache-2.0
// Snapshots in the training loop: resumes before it, saves every so many steps and at its end.
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "runtime/train/snapshot/snapshot.h"
#include "runtime/train/train_rank.h"

namespace orrery::snapshot {

struct HookOptions {
  std::string save;    // folder; empty: nothing is saved
  int64_t every = 0;   // steps; 0: only at the end
  std::string resume;  // folder; empty: from the beginning
  uint64_t seed = 1;
  std::string data;              // name of the source
  int64_t samples_per_step = 0;  // all ranks
  double deadline_s = 120;
  int64_t steps = 0;  // of the whole run: one that was stopped before its first step saves nothing
  std::function<void(const std::string&)> note;      // rank 0: what somebody should know
  std::function<void(const std::string&)> progress;  // rank 0: what went well
  Conditions conditions = {};
};

class SnapshotHook : public launch::StepHook {
 public:
  SnapshotHook(HookOptions options, comm::Endpoint* endpoint, train::DataSource* data)
      : options_(std::move(options)),
        endpoint_(endpoint),
        data_(data),
        saver_(
            {options_.save, options_.seed, options_.data, options_.deadline_s, options_.conditions},
            endpoint) {}
  void BeforeTraining(exec::Executor* executor) override;
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override;
  void Secure(exec::Executor* executor) override;

 private:
  void Begin(exec::Executor* executor);
  void Advance(bool to_the_end);

  HookOptions options_;
  comm::Endpoint* endpoint_;
  train::DataSource* data_;
  Saver saver_;
  std::chrono::steady_clock::time_point begun_;
  double waited_s_ = 0;  // of training, for the snapshot under way
  bool told_ = false;    // that it is whole
  int64_t resumed_step_ = 0, resumed_samples_ = 0, saved_step_ = -1;
};

}  // namespace orrery::snapshot
