// SPDX-License-Identifier: Apache-2.0
// Once per step: the update, the weights gathered for the next step, and what stages wait for meanwhile.
#include <algorithm>

#include "model/engine/closed/fold.h"

namespace orrery::closed {

double Fold::TrainedOn(const Stage& stage) const {
  const double rows = table_.TrainedOfEnds(table_.embedding_parameters);
  return stage.layers * table_.TrainedOfLayer() +
         (stage.first || (stage.last && table_.tied) ? rows : 0.0) +
         (stage.last ? table_.TrainedOfEnds(table_.head_parameters) : 0.0);
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
  time->optimizer += layers * form_.code_cast.Of(shard * (kMasterBytes + kCodeBytes));
  if (form_.scans_codes) time->optimizer += layers * form_.code_amax.Of(shard * kMasterBytes);
  if (outline_.shards > 1) time->data += data_->norm_of_shards;
}

// While the device waits for messages in a pass, once per step, the host goes on. `forward`: in the first micro-batch;
// `backward`: in the last one. Beside a host that is late no longer, kernels wait for messages of their pass again.
Fold::HostGain Fold::HostAhead(double forward, double backward) const {
  if (outline_.stages > 1 || forward + backward <= 0) return {};
  if (!form_.host_waits) {
    const double gap = M_ * std::max(0.0, work_.host() - work_.device());
    const double last = std::max(0.0, work_.backward.host - work_.backward.device());
    return {std::min(gap, std::min(forward, gap) + std::min(backward, last)), 0};
  }
  const Turn plain = BehindHost(work_);
  HostGain gain;
  const auto add = [&](double in_forward, double in_backward) {
    Work longer = work_;
    longer.forward.copies += in_forward;
    longer.backward.copies += in_backward;
    const Turn turn = BehindHost(longer);
    gain.seconds += std::max(0.0, plain.seconds + in_forward + in_backward - turn.seconds);
    gain.shown += std::max(0.0, turn.shards - plain.shards);
  };
  if (M_ > 1) {
    add(forward, 0), add(0, backward);
  } else {
    add(forward, backward);
  }
  return gain;
}

// Seconds in which the first and the last stage add up the gradients of a table that both hold.
double Fold::Tied(const PreparedMessage& message) const {
  if (!outline_.ties_stages) return 0;
  return message.InBuckets(table_.embedding_parameters / outline_.shards * outline_.gradient_bytes,
                           outline_.gradient_bytes);
}

// Of them, the watched rank's own; then it waits for other ranks. The stages between the first and the last one only wait.
double Fold::TiedOfWatched() const {
  if (!here_.first && !here_.last) return 0;
  return parts_ && !stages_.ways.empty() ? Tied(stages_.ways[watched_way_].tied) : TiedStages();
}

double Fold::KernelsOfUpdate(double parameters, double layers) const {
  double slowest = 1;
  for (int s = 0; outline_.slowdown != nullptr && s < outline_.stages; ++s)
    slowest = std::max(slowest, SlowdownOf(s));
  const double shard = 1 / static_cast<double>(outline_.shards);
  // Matrices are not cut: no rank does less than the largest one takes.
  const double matrices = layers > 0 ? layers * std::max(shard, table_.largest_matrix / layers) : 0;
  return slowest * (form_.update * parameters * shard + table_.matrix_update * matrices);
}

// Stages whose units on the host are others take longer or shorter. `parameters`: of the fullest, whose gathers take so long.
double Fold::UpdateThroughHost(double parameters, const NextGathers& gathers,
                               StepTime* time) const {
  const auto of = [&](const Stage& stage) {
    const double trained = TrainedOn(stage), share = trained / std::max(1.0, parameters);
    return UpdateOnHost(stage, KernelsOfUpdate(trained, stage.layers), gathers.all * share,
                        gathers.awaited * share);
  };
  const HostUpdate own = of(here_);
  double longest = own.seconds();
  if (outline_.stages > 1) {
    for (const Stage& stage : Stages()) longest = std::max(longest, of(stage).seconds());
  }
  time->optimizer = own.kernels;
  time->offload += own.offload;
  time->offload_hidden += own.hidden;
  time->bubble += longest - own.seconds();
  return own.gathers;
}

// A stage with less to reduce waits for the others; one whose passes end early reduces meanwhile. Seconds of reductions that the
// stage of the breakdown shows.
double Fold::BookReduced(const Reduced& reduced, StepTime* time) const {
  const double beside = std::min(reduced.beside, time->pipeline);
  time->pipeline -= beside;
  double waits = reduced.exposed - reduced.own + beside;
  if (waits < 0) {
    const double idle = std::min(-waits, time->bubble);
    time->bubble -= idle;
    time->pipeline += waits + idle;
    waits = 0;
  }
  const double of_bubble = std::min(reduced.bubble, time->bubble);
  const double of_pipeline = std::min(reduced.pipeline, time->pipeline);
  time->bubble += waits - of_bubble;
  time->pipeline -= of_pipeline;
  return reduced.own + of_bubble + of_pipeline;
}

void Fold::AddUpdate(StepTime* time) const {
  const bool bounds = walks_ && !walked_ && data_->fastest != nullptr;
  const With messages(*this, bounds ? *data_->fastest : *data_);
  const auto [parameters, fullest_layers] = FullestTrained();
  const NextGathers gathers = GathersAtEnd(parameters, fullest_layers);
  const Reduced reduced = walked_  ? ReducedBehindWalk()
                          : walks_ ? Reduced{LeastReduced(), 0}
                                   : ReducedByFormulas(parameters, gathers.late);
  double exposed = BookReduced(reduced, time);
  double all = With(*this, Watched()).fold().Reduction(parameters);
  double awaited_gather = gathers.awaited;
  const HostGain gain = HostAhead(gathers.late, reduced.in_pass);
  time->host -= std::min(time->host, gain.seconds);
  const double shown = std::min({gain.shown, time->host, time->data_hidden});
  time->host -= shown;
  time->data += shown;
  time->data_hidden -= shown;
  const double copied = std::min(time->offload, CopiesAhead(reduced.in_pass));
  time->offload -= copied;
  time->offload_hidden += copied;
  if (outline_.states_on_host > 0) {  // gathers beside the next step go when all updates have ended
    awaited_gather = UpdateThroughHost(parameters, gathers, time);
  } else {
    time->optimizer = KernelsOfUpdate(parameters, stage_.layers);
  }
  exposed += awaited_gather + WaitedBeside(gathers, time);
  all += gathers.all;
  time->bubble += gathers.waits;
  time->data += exposed;
  time->data_hidden += all - exposed;
  if (outline_.stages > 1) time->data_hidden -= HeldBack(here_.layers, outline_.chunks);
  const double tied = TiedOfWatched();
  time->pipeline += tied;
  time->bubble += TiedStages() - tied;
  AddSmall(parameters, time);
  time->compute += CastsOf(here_);
  AddCodes(fullest_layers, time);
}

// Seconds that kernels take to clear gradients, in front of all passes.
double Fold::Cleared() const {
  const double gradients = FullestTrained().parameters * outline_.gradient_bytes;
  const double kept = gradients / (outline_.scatters_gradients ? outline_.shards : 1.0);
  const double cleared = outline_.gradients_on_host ? 1 - outline_.states_on_host : 1.0;
  return cleared * form_.fill.Of(kept) + UnitsOf(stage_) * form_.fill.gap;  // the loss, too
}

// The norm of the gradient and the loss are known to all ranks before the update; gradients are cleared before the passes.
void Fold::AddSmall(double parameters, StepTime* time) const {
  const bool sharded = outline_.shards > 1;
  time->data += data_->loss;
  if (form_.clips) time->data += sharded ? data_->norm_of_shards : data_->norm;
  const double units = UnitsOf(stage_);  // the same with parts and without
  if (outline_.norm_messages) time->data += sharded ? data_->norm_of_tensors : data_->norm;
  time->compute += Cleared();
  if (form_.clips)
    time->optimizer += form_.norm.Of(parameters * outline_.gradient_bytes / outline_.shards) +
                       units * form_.norm.gap;
}

}  // namespace orrery::closed
