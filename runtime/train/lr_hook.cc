// SPDX-License-Identifier: Apache-2.0
// Ops with a learning rate of their own.
#include "runtime/train/lr_hook.h"

namespace orrery::launch {

void LrHook::BeforeTraining(exec::Executor* executor) {
  if (schedule_.shape == train::LrShape::kConstant && schedule_.warmup == 0) return;
  for (exec::Task& task : executor->mutable_image()->tasks) {
    const double rate = task.op->attrs.Get(ir::Attr::kLr);
    if (rate == 0) continue;  // no optimizer op, or nothing to change
    rates_.push_back({std::make_unique<ir::Op>(*task.op), rate});
    task.op = rates_.back().op.get();
  }
  Set(executor->steps_done() + 1);
}

void LrHook::AfterStep(exec::Executor*, const StepRecord& record) { Set(record.step + 1); }

void LrHook::Set(int64_t step) {
  for (const Rate& rate : rates_)
    rate.op->attrs.Set(ir::Attr::kLr, rate.of_plan * schedule_.At(step));
}

}  // namespace orrery::launch
