// SPDX-License-Identifier: Apache-2.0
// Where the time of a run's steps goes: the terms of model/price/breakdown.h, and with `plan run --profile` also phases
// and kinds of op.
//
// Kernels and loads run one after another on a rank. Communication is in flight at the same time; what of it no kernel
// covers is exposed, counted once, for the operation that began first. A measured message holds the wait for its
// partners, so that the bubble is part of the exposed transfers between stages. Loads are fixed costs; what is left of
// a step is the executor's own: host. Means over steps (the first one left out) and ranks.
#pragma once

#include <array>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "model/price/breakdown.h"
#include "runtime/train/train_rank.h"

namespace orrery::cli {

struct OpTimes {  // seconds of a step
  double kernels = 0, in_flight = 0, exposed = 0;
  void Add(const OpTimes& other, double weight = 1);
};

struct StepProfile {
  int64_t ranks = 0, steps = 0;
  double seconds = 0;                                        // of a step
  Breakdown breakdown;                                       // adds up to it
  std::map<std::pair<ir::Phase, ir::OpClass>, OpTimes> ops;  // mean step

  OpTimes total() const;
};

class ProfileHook : public launch::StepHook {
 public:
  // Gathers only where `wanted`; `result` is rank 0's.
  ProfileHook(bool wanted, const ir::Plan& plan, comm::Endpoint* endpoint, double deadline_s,
              StepProfile* result)
      : wanted_(wanted),
        plan_(plan),
        endpoint_(endpoint),
        deadline_s_(deadline_s),
        result_(result) {}
  void AfterStep(exec::Executor* executor, const launch::StepRecord& record) override;
  void AfterTraining(exec::Executor* executor) override;

 private:
  bool wanted_;
  const ir::Plan& plan_;
  comm::Endpoint* endpoint_;
  double deadline_s_;
  StepProfile* result_;
  StepProfile sum_;    // over steps
  bool first_ = true;  // sum_ holds the first step alone
};

// Adds one step's spans to `profile`.
void AddStep(const ir::Plan& plan, const exec::Executor& executor, double seconds,
             StepProfile* profile);

// Of all ranks, a step's mean: at rank 0; every rank calls it.
void GatherProfile(const StepProfile& own, comm::Endpoint* endpoint, double deadline_s,
                   StepProfile* mean);

std::string ProfileText(const StepProfile& profile);
nlohmann::ordered_json ProfileJson(const StepProfile& profile);

}  // namespace orrery::cli
