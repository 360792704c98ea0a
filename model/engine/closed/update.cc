// SPDX-License-Identifier: Apache-2.0
// Once per step: gradients that are reduced, weights that are gathered for the next step, the update.
#include <algorithm>

#include "model/engine/closed/fold.h"

namespace orrery::closed {

// Of the stage that the breakdown is of.
double Fold::TrainedHere() const {
  const double rows = table_.TrainedOfEnds(table_.embedding_parameters);
  return here_.layers * table_.TrainedOfLayer() +
         (here_.first || (here_.last && table_.tied) ? rows : 0.0) +
         (here_.last ? table_.TrainedOfEnds(table_.head_parameters) : 0.0);
}

Fold::Fullest Fold::FullestTrained() const {
  const double p = table_.TrainedOfLayer();
  const double rows = table_.TrainedOfEnds(table_.embedding_parameters);
  const double head = table_.TrainedOfEnds(table_.head_parameters);
  if (outline_.stages == 1) return {table_.layers * p + rows + head, table_.layers};
  const bool together = outline_.order.in_a_v;  // both ends on the first stage
  const auto stage = [&](double layers, double ends) { return Fullest{layers * p + ends, layers}; };
  return std::max({stage(outline_.first_layers, rows + (together ? head : 0.0)),
                   stage(outline_.last_layers, together ? 0.0 : head + (table_.tied ? rows : 0.0)),
                   stage(outline_.middle_layers, 0)},
                  [](const Fullest& a, const Fullest& b) { return a.parameters < b.parameters; });
}

// Behind the update: each rank casts its shard of the master copy by magnitudes that ranks have reduced. Delayed scales are there
// already, and their magnitudes are found on the way.
void Fold::AddCodes(double layers, StepTime* time) const {
  const double shard = table_.coded_parameters / outline_.shards;
  if (shard <= 0) return;
  time->compute += layers * form_.code_cast.Of(shard * (kMasterBytes + kCodeBytes));
  if (form_.scans_codes) time->compute += layers * form_.code_amax.Of(shard * kMasterBytes);
  if (outline_.shards > 1) time->data += form_.control;
}

// What is longer than the passes beside it. With interleaved chunks the passes of all but the last micro-batches of
// a round are still to come when the first chunk has its gradients (or until the last one wants its weights); one
// chunk in v has its own pass only.
double Fold::Beyond(double message, double pass) const {
  const double chunks = outline_.chunks;
  const double round = chunks > 1 ? std::min<double>(M_, outline_.stages) : 1.0;
  const double beside = pass * (round * (chunks - 1.0) + 1.0) / chunks;
  return std::max(std::max(0.0, message - beside), (message - pass) / chunks);
}

double Fold::Reduction(double parameters) const {
  const double bytes = parameters * outline_.gradient_bytes;
  switch (outline_.reduction) {
    case PlanOutline::Reduction::kNone:
      return 0;
    case PlanOutline::Reduction::kAllReduce:
      return data_->all_reduce.InBuckets(bytes);
    case PlanOutline::Reduction::kReduceScatter:
      return data_->reduce_scatter.InBuckets(bytes) +
             (outline_.reduces_outer ? data_->outer_all_reduce.InBuckets(bytes / data_->dp) : 0.0);
  }
  return 0;
}

// Kernels of a layer's pass beside which messages of a step travel. Where tensor-parallel ranks are on several nodes,
// the messages inside of layers hold the same NICs, and nothing else gets through meanwhile.
double Fold::BesideLayer(const PassTime& pass, double busy) const {
  return table_.tensor_on_nics ? std::max(0.0, busy - pass.tensor - pass.tensor_hidden) : busy;
}

// Beside the last backward passes, what is longer than they are; behind them the embedding's gradients, which are
// ready at their very end, and the share that the framework waits for.
double Fold::ExposedReduction(double reduction, double share, double last, double pass) const {
  if (!outline_.reduction_overlaps) return reduction;
  last = std::min(reduction, last);
  const double beside = (1 - share) * (reduction - last);
  return reduction - beside + std::min(beside, Beyond(beside, pass));
}

// Seconds by which the last backward passes of so many layers take longer, where gradients are reduced once per step
// beside gathers: behind the first layer of a pass each waits for its weights, which share the links. The stage before
// waits for it.
double Fold::HeldBack(double layers, double passes) const {
  if (!fetches_ || !outline_.gather_overlaps || !outline_.reduction_overlaps) return 0;
  if (outline_.order.fills_bubble) return 0;  // gradients of weights are ready at other times
  const AwaitedShares& awaited = outline_.whole_replicas ? form_.awaited_replicas : form_.awaited;
  // What replicas of all shards add up travels on other links.
  const double bytes = table_.TrainedOfLayer() * outline_.gradient_bytes;
  const double reduction = (1 - awaited.reductions) * data_->reduce_scatter.InBuckets(bytes);
  const double kernels = BesideLayer(table_.layer.backward, backward_);
  const double later = gather_.seconds + reduction - std::max(kernels, gather_.seconds);
  return std::max(0.0, layers - passes) * std::max(0.0, later);
}

void Fold::AddUpdate(StepTime* time) const {
  const auto [parameters, fullest_layers] = FullestTrained();
  const double gradients = parameters * outline_.gradient_bytes;
  const AwaitedShares& awaited = outline_.whole_replicas ? form_.awaited_replicas : form_.awaited;
  const double reduction = Reduction(parameters);
  const double last = Reduction(table_.TrainedOfEnds(table_.embedding_parameters));
  // Gathers of the same pass are on the same links, and come first.
  const double gathers = fetches_ && outline_.gather_overlaps ? gather_.seconds : 0.0;
  const double free = std::max(0.0, BesideLayer(table_.layer.backward, backward_) - gathers);
  const double pass = stage_.layers * free + HeldBack(stage_.layers, outline_.chunks);
  double exposed = ExposedReduction(reduction, awaited.reductions, last, pass);
  if (outline_.stages > 1) {  // a stage with less to reduce waits for the one with most
    const double own =
        ExposedReduction(Reduction(TrainedHere()), awaited.reductions,
                         here_.first || (here_.last && table_.tied) ? last : 0.0, pass);
    const double waits = std::max(0.0, exposed - own);
    time->bubble += waits;
    time->data -= waits;
    time->data_hidden += waits;
  }
  if (outline_.stages == 1) exposed += HeldBack(stage_.layers, outline_.chunks);
  double all = reduction;
  if (outline_.scatters_gradients && outline_.reduces_outer) {
    const double outer = data_->outer_all_reduce.InBuckets(gradients / data_->dp);
    exposed += outer;
    all += outer;
  }
  double gather = 0, awaited_gather = 0;
  if (outline_.gathers_at_end && sharded_) {
    const double coded = fullest_layers * table_.coded_parameters;
    gather = data_->all_gather.InBuckets((parameters - coded) * outline_.weight_bytes +
                                         coded * kCodeBytes);
    awaited_gather = outline_.end_gather_overlaps
                         ? awaited.gathers * gather +
                               Beyond((1 - awaited.gathers) * gather,
                                      stage_.layers * BesideLayer(table_.layer.forward, forward_))
                         : gather;
  }
  time->optimizer =
      (form_.update * parameters + table_.matrix_update * stage_.layers) / outline_.shards;
  double slowest = 1;
  for (int s = 0; outline_.slowdown != nullptr && s < outline_.stages; ++s)
    slowest = std::max(slowest, SlowdownOf(s));
  time->optimizer *= slowest;
  if (outline_.states_on_host > 0) awaited_gather = UpdateOnHost(parameters, awaited_gather, time);
  exposed += awaited_gather;
  all += gather;
  // A stage that waits for its first pass waits for the rest of that gather.
  const double filling = std::min({fill_, gather - awaited_gather, time->bubble});
  if (filling > 0) time->bubble -= filling, exposed += filling;
  time->data += exposed;
  time->data_hidden += all - exposed;
  if (outline_.stages > 1) time->data_hidden -= HeldBack(here_.layers, outline_.chunks);
  if (outline_.ties_stages) {  // the stages between the first and the last one wait
    (here_.first || here_.last ? time->pipeline : time->bubble) += stages_.tied.InBuckets(
        table_.embedding_parameters / outline_.shards * outline_.gradient_bytes);
  }
  // The norm of the gradient and the loss are known to all ranks before the update.
  time->data += (form_.clips ? 2 : 1) * form_.control;
  if (outline_.norm_messages) time->data += form_.control;
  const double kept = gradients / (outline_.scatters_gradients ? outline_.shards : 1.0);
  time->compute += form_.fill.Of(kept);
  time->compute += here_.layers * WeightCasts();
  AddCodes(fullest_layers, time);
  if (form_.clips) time->optimizer += form_.norm.Of(gradients / outline_.shards);
}

}  // namespace orrery::closed
