// SPDX-License-Identifier: Apache-2.0
// Which scalars a step gives.
#include "runtime/program/run/event_hook.h"

#include "runtime/program/run/record.h"

namespace orrery::cli {

void EventHook::BeforeTraining(exec::Executor*) {
  if (job_.tensorboard.empty() || endpoint_->rank() != 0) return;
  file_ = std::make_unique<EventFile>(job_.tensorboard, endpoint_->host());
}

void EventHook::AfterStep(exec::Executor*, const launch::StepRecord& record) {
  if (file_ == nullptr) return;
  const exec::StepResult& result = record.result;
  const auto units = static_cast<double>(job_.facts.tokens);
  file_->Write(record.step, {{"loss", result.loss},
                             {"gradient_norm", result.gradient_norm},
                             {job_.facts.has_tokens ? "tokens_per_second" : "samples_per_second",
                              units / result.seconds},
                             {"mfu", Mfu(job_, result.seconds, peak_flops_per_s_)},
                             {"step_time_s", result.seconds}});
}

}  // namespace orrery::cli
