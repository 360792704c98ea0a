// SPDX-License-Identifier: Apache-2.0
// Steps of many layouts in closed form, one after the other, for searches over millions of them.
//
// Layouts that differ in sharding alone have the passes in common where those hold no messages of the data axes;
// layouts that differ in the pipeline alone have the prices of a layer in common. Both are computed once.
#pragma once

#include <memory>
#include <optional>

#include "model/engine/closed/closed_form.h"

namespace orrery {

// The totals are those of ClosedForm::StepSeconds, to the last bit. Tables and messages must outlive the sweep over them.
class StepSweep {
 public:
  explicit StepSweep(const ClosedForm& form);
  ~StepSweep();
  StepSweep(StepSweep&&) noexcept;

  // Passes of such an outline are always walked, whatever the prices. Reads layers, stages, chunks, micro-batches, order and
  // slowdown.
  static bool SurelyWalks(const PlanOutline& outline);
  // Its passes are few enough to be walked: else formulas stand for them, which do not tell stages apart. Reads the same.
  static bool CanWalk(const PlanOutline& outline);
  // Passes hold no messages of the data axes, and wait for none: they are those of all other shardings.
  static bool PassesAlike(const LayerTable& table, const PlanOutline& outline);
  // At least what a step that is walked takes beyond its passes, whatever those take. The outline needs layers and sharding.
  double LeastOnce(const LayerTable& table, const PlanOutline& outline,
                   const DataMessages& data) const;
  // Before anything else: what follows sends these messages between stages. What was kept is forgotten.
  void Start(const StageMessages& stages);
  // What follows differs in more than sharding: in schedule, chunks, layers or micro-batches.
  void NextPipeline();
  // Seconds of a step where formulas do. Where passes have to be walked: none, and a lower bound of the step in `least`, for
  // about a hundredth of the time. Until the next pipeline it is always the same object that holds the outline.
  std::optional<double> ByFormula(const LayerTable& table, const PlanOutline& outline,
                                  const DataMessages& data, double* least);
  // Seconds of a step, walked where it has to be. Right behind it SecondsAgain() answers for layouts with the same table and
  // pipeline, as far as neither has messages of the data axes in its passes, without another walk.
  double Seconds(const LayerTable& table, const PlanOutline& outline, const DataMessages& data);
  double SecondsAgain(const PlanOutline& outline, const DataMessages& data);
  // The same; none where the passes alone show that they are more than `most`: then SecondsAgain() is a lower bound.
  std::optional<double> Seconds(const LayerTable& table, const PlanOutline& outline,
                                const DataMessages& data, double most);

 private:
  struct Kept;
  const ClosedForm& form_;
  std::unique_ptr<Kept> kept_;
};

}  // namespace orrery
