// SPDX-License-Identifier: Apache-2.0
// `plan run --profile`: what the steps' time went into, by phase and by kind of op.
//
// Kernels and loads run one after another on a rank. Communication is in flight beside them; what
// of it no kernel covers is exposed, counted once, for the operation that began first. The rest of
// a step is the executor's own. Means over steps (the first one left out) and ranks.
#pragma once

#include <array>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "runtime/train/train_rank.h"

namespace orrery::cli {

struct OpTimes {  // seconds of a step
  double kernels = 0, in_flight = 0, exposed = 0;
  void Add(const OpTimes& other, double weight = 1);
};

struct StepProfile {
  int64_t ranks = 0, steps = 0;
  double seconds = 0;                                        // of a step
  std::map<std::pair<ir::Phase, ir::OpClass>, OpTimes> ops;  // mean step

  OpTimes total() const;
};

class ProfileHook : public launch::StepHook {
 public:
  // Gathers only where `wanted`; `result` is rank 0's.
  ProfileHook(bool wanted, comm::Endpoint* endpoint, double deadline_s, StepProfile* result)
      : wanted_(wanted), endpoint_(endpoint), deadline_s_(deadline_s), result_(result) {}
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override;
  void AfterTraining(exec::Executor* executor) override;

 private:
  bool wanted_;
  comm::Endpoint* endpoint_;
  double deadline_s_;
  StepProfile* result_;
  StepProfile sum_;    // over steps
  bool first_ = true;  // sum_ holds the first step alone
};

// Adds one step's spans to `profile`.
void AddStep(const exec::Executor& executor, double seconds, StepProfile* profile);

std::string ProfileText(const StepProfile& profile);
nlohmann::ordered_json ProfileJson(const StepProfile& profile);

}  // namespace orrery::cli
