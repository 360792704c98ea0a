// SPDX-License-Identifier: Apache-2.0
// Changes the learning rate from step to step.
#pragma once

#include <memory>
#include <vector>

#include "runtime/train/lr_schedule.h"
#include "runtime/train/train_rank.h"

namespace orrery::launch {

// Optimizer ops get copies of their plan's whose learning rate is that of the step that comes. Put it
// behind the hook that resumes: the step's number decides.
class LrHook : public StepHook {
 public:
  explicit LrHook(const train::LrSchedule& schedule) : schedule_(schedule) {}
  void BeforeTraining(exec::Executor* executor) override;
  void AfterStep(exec::Executor* executor, const StepRecord& record) override;

 private:
  struct Rate {
    std::unique_ptr<ir::Op> op;
    double of_plan;
  };
  void Set(int64_t step);

  train::LrSchedule schedule_;
  std::vector<Rate> rates_;
};

}  // namespace orrery::launch
