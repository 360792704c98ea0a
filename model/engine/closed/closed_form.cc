// SPDX-License-Identifier: Apache-2.0
// Step and micro-step of a layout.
#include "model/engine/closed/closed_form.h"

#include <algorithm>

#include "model/engine/closed/fold.h"

namespace orrery {

StepTime ClosedForm::Evaluate(const LayerTable& table, const PlanOutline& outline,
                              const DataMessages& data, const StageMessages& stages,
                              Window window) const {
  if (window == Window::kStep && table.holds_nics > 0 && data.dp > 1) {
    LayerTable alone = table;
    alone.holds_nics = 0;
    StepTime time = Evaluate(alone, outline, data, stages, window);
    time.contention = std::max(0.0, StepSeconds(table, outline, data, stages) - time.total);
    time.total = time.Total();
    return WithInterval(time);
  }
  closed::Fold fold(*this, table, outline, data, stages,
                    window == Window::kStep ? outline.micro_batches : 1.0);
  StepTime time;
  if (window == Window::kStep) {
    time = fold.WholeStep();
  } else if (window == Window::kMicrostep && !timer_waits && !host_waits) {
    time.host = time.total = fold.IssueTime();
  } else {
    time = fold.MicroStep();
  }
  return WithInterval(time);
}

double ClosedForm::StepSeconds(const LayerTable& table, const PlanOutline& outline,
                               const DataMessages& data, const StageMessages& stages) const {
  return closed::Fold(*this, table, outline, data, stages, outline.micro_batches)
      .WholeStep(crowding > 1)
      .total;
}

StepTime ClosedForm::WithInterval(StepTime time) const {
  time.low = time.total * residuals.low;
  time.high = time.total * residuals.high;
  return time;
}

}  // namespace orrery
