// SPDX-License-Identifier: Apache-2.0
// Derives the outline from a layout, by the rules of the lowering.
#include "model/plan/lower/outline.h"

#include <algorithm>
#include <vector>

#include "model/plan/lower/balance.h"
#include "model/plan/lower/lower.h"
#include "model/plan/lower/overlap.h"

namespace orrery {

PlanOutline OutlineOf(const ModelSpec& model, const Workload& work, const Strategy& s) {
  PlanOutline outline;
  outline.stages = s.pp;
  outline.chunks = s.vpp;
  outline.micro_batches = static_cast<double>(MicroBatches(work, s));
  outline.accumulates = outline.micro_batches > 1;
  outline.schedule = s.schedule;
  outline.fills_bubble = s.vpp == 1 && s.schedule == PipelineSchedule::kZeroBubble;
  outline.waits_for_round = s.vpp == 1 && s.schedule == PipelineSchedule::k1F1B;
  std::vector<double> layers(static_cast<std::size_t>(s.pp), 0.0);
  const std::vector<LayerRange> chunks = BalanceLayers(model.layers + model.decoder_layers, s);
  for (std::size_t i = 0; i < chunks.size(); ++i)
    layers[i % static_cast<std::size_t>(s.pp)] += static_cast<double>(chunks[i].count);
  outline.first_layers = layers.front();
  outline.last_layers = layers.back();
  for (std::size_t i = 1; i + 1 < layers.size(); ++i)
    outline.middle_layers = std::max(outline.middle_layers, layers[i]);

  const bool replicas = s.data_parallel() * s.cp > 1;
  outline.gathers_weights = s.zero == 3;
  outline.scatters_gradients = s.zero >= 2;
  outline.gather_overlaps = s.overlap_param_gather;
  outline.scatter_overlaps = s.overlap_grad_reduce;
  if (replicas && s.zero < 2) {
    outline.reduction =
        s.zero == 0 ? PlanOutline::Reduction::kAllReduce : PlanOutline::Reduction::kReduceScatter;
  }
  outline.reduction_overlaps = s.overlap_grad_reduce && s.reduce_in_backward;
  outline.whole_replicas = HoldsWholeReplicas(s);
  outline.gathers_at_end = s.zero == 1 || s.zero == 2;
  outline.end_gather_overlaps = s.overlap_param_gather;
  outline.reduces_outer = s.zero > 0 && s.dp_outer > 1;
  outline.shards = s.zero > 0 ? s.dp * s.cp : 1;
  outline.ties_stages = s.pp > 1 && model.tied_embeddings && model.family != Family::kMlp;
  outline.norm_messages = work.optimizer == Optimizer::kLamb && (outline.shards > 1 || s.tp > 1);
  const bool half = work.precision == Precision::kFp16 || work.precision == Precision::kBf16;
  outline.weight_bytes = half ? 2 : 4;
  outline.gradient_bytes = half && !s.fp32_grads ? 2 : 4;
  return outline;
}

}  // namespace orrery
