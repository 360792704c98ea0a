// SPDX-License-Identifier: Apache-2.0
// Lower bounds of a step, in seconds, without what it takes once (ClosedForm::fixed). M: micro-batches, p: stages. Where the
// products of some layers are not cast in 8 or 4 bits, they take all layers for the quickest kind (LayerTable::least).
#pragma once

#include <algorithm>
#include <array>

#include "model/engine/closed/closed_form.h"
#include "model/plan/lower/outline.h"
#include "model/plan/lower/strategy.h"
#include "model/price/layer_table.h"

namespace orrery {

// Busy seconds of a micro-batch in all layers, on the device or on the host, whichever is more.
double WorkOf(const LayerTable& table);

// Of all strategies that share layer table, schedule and split of the layers:
//   max(max over stages i of B(i) + M t(i), M sum / p)
// t(i): a micro-batch on stage i without gathers; B(i): the first chunks of the stages before; sum: WorkOf(). The first
// micro-batch's tensor passes the stages before, and so does the last gradient.
double TimeBound(const LayerTable& table, const Strategy& strategy, const PipelineLayers& layers,
                 double micro_batches);

// The same where kernels of each stage take `slowdown` times as long, messages as long as ever: max over stages of M t(i).
double TimeBound(const LayerTable& table, const Strategy& strategy, const PipelineLayers& layers,
                 double micro_batches, const std::vector<double>& slowdown);

// Of interleaved schedules and those in a V, by the way of a micro-batch through all virtual stages, there and back, with its
// transfers: W = sum of their passes without weight gradients + 2 H.
//   interleaved: W + (M - p) (F + B of the last stage without its last chunk) + (M - 1) (f + b of that chunk), M >= p
//   in a V: W + (M - 1) b of the last chunk + the weight gradients of the first one
// The last stage has run (v - 1) p + 1 forward passes when the first micro-batch turns there, and as many backward passes are
// left when the last one does. H: seconds of all transfers of one way. 0: another schedule, or layers of several kinds.
double JourneyBound(const LayerTable& table, const Strategy& strategy, const PipelineLayers& layers,
                    double micro_batches, const StageMessages& messages);

// TimeBound() of layouts that gather weights or scatter gradients in the passes: the largest of `forms` at what the passes of a
// layer take longer for it. Chunks of a stage that hold layers, all but one, gather for their first alone and scatter for their last.
struct StageBounds {
  struct Form {
    double least = 0, forward = 0, backward = 0;  // + forward x more of a forward pass + ...
  };
  std::array<Form, 4> forms{};  // first, last and fullest other stage; mean of all

  double chunks = 0;  // more than one, of all micro-batches

  // Seconds; `ends`: of the gathers in front of a chunk's passes and the scatters behind them.
  double At(double forward, double backward, double ends) const {
    double most = 0;
    for (const Form& form : forms)
      most = std::max(most, form.least + form.forward * forward + form.backward * backward);
    return most + chunks * ends;
  }
};
// At least what the gathers in front of a chunk's two passes and the scatter behind the second add, but for the chunk with
// the embedding or the head. `ahead`: a gather may go beside the last layer of the pass before it, and the scatter there.
inline double EndsOfChunk(const LayerTime& layer, double gather, double scatter, bool ahead,
                          bool in_a_v) {
  if (!ahead) return 2 * gather + scatter;
  if (in_a_v)
    return scatter;  // the first stage has the head in one chunk, the embedding in the other
  return std::max(0.0, gather - layer.forward.busy()) +
         std::max(scatter, gather - layer.backward.busy());
}
StageBounds BoundsOf(const LayerTable& table, const Strategy& strategy,
                     const PipelineLayers& layers, double micro_batches);

// Of a micro-batch on a stage, the least of its kernels and messages: a layer, which is not recomputed where some are; the ends
// of the model. `slowdown`: of the stage's kernels.
struct StageCost {
  double layer = 0, embedding = 0, head = 0;
};
StageCost CostOnStage(const LayerTable& table, const Strategy& strategy, double slowdown);

// Of any layout.
double LeastTime(const LayerTable& table, const Strategy& strategy, double micro_batches);
// The same with `slowdown` of each stage, of any split of the layers, whole ones or not.
double LeastTime(const LayerTable& table, const Strategy& strategy, double micro_batches,
                 const std::vector<double>& slowdown);

}  // namespace orrery
