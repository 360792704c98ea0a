// SPDX-License-Identifier: Apache-2.0
// Gradients that are reduced once per step: what the last backward passes do not hide.
#include <algorithm>
#include <limits>

#include "model/engine/closed/fold.h"

namespace orrery::closed {

// What is longer than the passes beside it. With interleaved chunks the passes of all but the last micro-batches of
// a round are still to come when the first chunk has its gradients (or until the last one wants its weights), and no less than
// a lap of a micro-batch through all stages; one chunk in v has its own pass only.
double Fold::Beyond(double message, double pass, double lap) const {
  const double chunks = outline_.chunks;
  const double round = chunks > 1 ? std::min<double>(M_, outline_.stages) * pass / chunks : 0.0;
  const double beside = std::max(round, lap) * (chunks - 1.0) + pass / chunks;
  return std::max(std::max(0.0, message - beside), (message - pass) / chunks);
}

double Fold::Reduction(double parameters) const {
  const double bytes = parameters * outline_.gradient_bytes;
  switch (outline_.reduction) {
    case PlanOutline::Reduction::kNone:
      return 0;
    case PlanOutline::Reduction::kAllReduce:
      return data_->all_reduce.InBuckets(bytes, outline_.gradient_bytes);
    case PlanOutline::Reduction::kReduceScatter:
      return data_->reduce_scatter.InBuckets(bytes, outline_.gradient_bytes) +
             (outline_.reduces_outer
                  ? data_->outer_all_reduce.InBuckets(bytes / data_->dp, outline_.gradient_bytes)
                  : 0.0);
    case PlanOutline::Reduction::kBetweenGroups:
      return data_->outer_all_reduce.InBuckets(bytes / data_->dp, outline_.gradient_bytes);
  }
  return 0;
}

// Where what sharding groups have added up goes to the host: unit by unit. From the second micro-batch on, the queue that brings a
// unit down also scatters the next one and adds what came back to it, in front of its sum.
double Fold::ReductionToHost(double parameters) const {
  if (parameters <= 0) return 0;
  const double between = M_ > 1 ? Scatter(parameters).seconds + ToHost(parameters) : 0.0;
  return Reduction(parameters) + between;
}

// Of a layer's pass, what messages of a step travel beside. Where tensor-parallel ranks are on several nodes, the messages
// inside of layers hold the same NICs for a part of their time, and nothing else gets through meanwhile.
double Fold::BesideLayer(const PassTime& pass, double busy) const {
  return std::max(0.0, busy - table_.holds_nics * (pass.tensor + pass.tensor_hidden));
}

// Beside the last backward passes, what is longer than they are; behind them the gradients of the last layer and the
// embedding, which are ready at their very end, and the share that the framework waits for. Those of the head are ready in
// front of all layers, the first layer's behind it.
double Fold::ExposedReduction(const ReducedParts& parts, double share, double pass, double layers,
                              double late) const {
  if (!outline_.reduction_overlaps) return parts.all;
  const double last = std::min(parts.all, parts.last);
  const double beside = (1 - share) * (parts.all - last);
  const double head = std::min(beside, (1 - share) * parts.head);
  const double first = pass / std::max(1.0, layers);
  const bool far_ahead = outline_.stages > 1 && !form_.host_waits;  // the host
  double beyond = 0;
  if (outline_.reduction_behind && !far_ahead) {
    const double left = LeftWhenIssued(pass, late);
    beyond = std::max(beside - left, beside - head - std::min(left, pass - first));
  } else {
    beyond = Beyond(beside, pass, lap_backward_);
    if (outline_.chunks == 1) beyond = std::max(beyond, beside - head - (pass - first));
  }
  return parts.all - beside + std::clamp(beyond, 0.0, beside);
}

// Of the only stage, the last micro-batch's passes. A host that is ahead then loses its lead before it delays anything. `late`:
// seconds for which the first forward pass has waited for weights, while the host went on.
Turn Fold::LastTurn(double late) const {
  const double lead =
      form_.host_waits ? 0.0 : (M_ - 1) * std::max(0.0, work_.device() - work_.host());
  if (M_ > 1) return BehindHost(work_, lead);
  Work work = work_;
  work.forward.copies += late;
  return BehindHost(work, lead);
}

// Of the last backward pass, what is left when the host issues the reductions: without a reducer, behind all passes.
double Fold::LeftWhenIssued(double pass, double late) const {
  if (!outline_.reduction_behind) return pass;
  if (outline_.stages > 1) {
    const double issues = stage_.layers * table_.layer.backward.host / outline_.chunks +
                          (stage_.first ? table_.embedding.backward.host : 0.0);
    return std::max(0.0, pass / outline_.chunks - issues);
  }
  return std::clamp(LastTurn(late).seconds - work_.host(), 0.0, pass);
}

// Seconds by which the last backward passes of so many layers take longer, where gradients are reduced once per step
// beside gathers: behind the first layer of a pass each waits for its weights, which share the links. The stage before
// waits for it.
double Fold::HeldBack(double layers, double passes) const {
  if (!outline_.reduction_overlaps) return 0;
  if (outline_.reduction == PlanOutline::Reduction::kNone ||
      outline_.reduction == PlanOutline::Reduction::kBetweenGroups)
    return 0;
  if (!one_communicator_ && (!fetches_ || !outline_.gather_overlaps)) return 0;
  if (outline_.order.fills_bubble) return 0;  // gradients of weights are ready at other times
  // What replicas of all shards add up travels on other links.
  const double bytes = table_.TrainedOfLayer() * outline_.gradient_bytes;
  const PreparedMessage& message = outline_.reduction == PlanOutline::Reduction::kAllReduce
                                       ? data_->all_reduce
                                       : data_->reduce_scatter;
  const double reduction =
      (1 - Awaited().reductions) * message.InBuckets(bytes, outline_.gradient_bytes);
  const double kernels =
      one_communicator_ ? hides_backward_ : BesideLayer(table_.layer.backward, backward_);
  const double later = gather_.seconds + reduction - std::max(kernels, gather_.seconds);
  return std::max(0.0, layers - passes) * std::max(0.0, later);
}

// Where stages are folded: the first one's passes end last; it waits for the one with most to reduce.
Fold::Reduced Fold::ReducedByFormulas(double parameters, double late) const {
  // Between stages a host that waits begins with each pass.
  const double issued = outline_.stages > 1 && form_.host_waits ? table_.layer.backward.host : 0.0;
  const double on_device = backward_ + (fetches_ ? beside_backward_.seconds : 0.0);
  const double layer_pass = std::max(issued, on_device);
  double held = HeldBack(stage_.layers, outline_.chunks);
  const double kernels = stage_.layers * layer_pass + held;
  const bool alone = outline_.stages == 1 && outline_.reduction_overlaps;
  const double pass = Rate() * (alone ? std::max(kernels, LastTurn(late).backward) : kernels);
  if (alone && pass > 0) held *= LeftWhenIssued(pass, late) / pass;
  // While the head runs it gets ahead, and the layers behind the head are late by so much less.
  const double behind_host = stage_.layers / outline_.chunks * (layer_pass - on_device);
  const double behind_head = pass - Rate() * std::clamp(behind_host, 0.0, head_lead_);
  const double share = Awaited().reductions;
  const double layer = table_.TrainedOfLayer();
  const double rows = table_.TrainedOfEnds(table_.embedding_parameters);
  const double head = table_.TrainedOfEnds(HeadUnit());
  const auto exposed = [&](double trained, const Stage& stage) {
    const double ready =
        stage.last ? (stage.first && table_.tied ? head - HeadTable() : head) : 0.0;
    const double ends = stage.first ? rows : 0.0;
    const double beside = stage.last ? behind_head : pass;
    if (outline_.gradients_on_host &&
        outline_.reduction == PlanOutline::Reduction::kBetweenGroups) {
      const double last = Reduction(layer) + Reduction(ends);  // behind scatters that a pass shows
      const double head_sum = ReductionToHost(ready);
      // Copies of the table's sums come behind all layers, in the queue's turn: nothing is added up beside them.
      const double behind = stage.first ? (M_ > 1 ? 2 : 1) * ToHost(table_.table_parameters) : 0.0;
      return ExposedReduction(
          {(stage.layers - 1) * ReductionToHost(layer) + head_sum + last, last, head_sum}, share,
          std::max(0.0, beside - behind), stage.layers, late);
    }
    const double all = Reduction(trained), each = all / std::max(1.0, trained);
    return ExposedReduction({all, each * (layer + ends), each * ready}, share, beside, stage.layers,
                            late);
  };
  Reduced reduced;
  if (outline_.stages == 1) {
    reduced.own = reduced.exposed = exposed(parameters, stage_);
  } else {
    // The last gradient leaves a stage for those before it: it reduces meanwhile.
    const auto of = [&](const Stage& stage) { return exposed(TrainedOn(stage), stage); };
    const auto [first, last, middle] = Stages();
    const double way = WayOfStages() / (outline_.stages - 1);
    const double entry =
        outline_.chunk_layers.entry > 0 ? outline_.chunk_layers.entry / table_.layers : 1.0;
    const auto layers = [&](const Stage& stage) { return stage.layers * entry * layer_pass + way; };
    const double behind_first = layers(first) + table_.embedding.backward.busy();
    reduced.exposed = of(first);
    if (outline_.stages > 2) reduced.exposed = std::max(reduced.exposed, of(middle) - behind_first);
    const double behind_all = behind_first + (outline_.stages - 2) * layers(middle);
    reduced.exposed = std::max(reduced.exposed, of(last) - behind_all);
    reduced.own = of(here_);
  }
  if (outline_.stages == 1) {
    if (outline_.reduction_in_line)
      reduced.in_pass =
          reduced.exposed * (1 - std::min(1.0, (layer + rows) / std::max(1.0, parameters)));
    reduced.own = reduced.exposed += held;
    reduced.in_pass += held;
  }
  return reduced;
}

double Fold::TrainedOfChunk(int place) const {
  const bool first = place == 0, last = place + 1 == static_cast<int>(outline_.layout->size());
  const bool again = table_.tied && !outline_.order.in_a_v;  // a copy of the table
  const double rows = table_.TrainedOfEnds(table_.embedding_parameters);
  return (*outline_.layout)[static_cast<std::size_t>(place)] * table_.TrainedOfLayer() +
         (first || (last && again) ? rows : 0.0) +
         (last ? table_.TrainedOfEnds(table_.head_parameters) : 0.0);
}

// Of a chunk: the head's parameters, whose gradients are ready in front of all layers, and its seconds in the backward pass.
std::pair<double, double> Fold::HeadOf(int place) const {
  if (place + 1 != static_cast<int>(outline_.layout->size())) return {0, 0};
  const bool again = table_.tied && !outline_.order.in_a_v;
  const double trained = table_.TrainedOfEnds(table_.head_parameters) +
                         (again ? table_.TrainedOfEnds(table_.embedding_parameters) : 0.0);
  const double kernels = table_.head.forward.busy() + table_.head.backward.busy() + head_extra_;
  return {trained, outline_.order.fills_bubble ? 0.0 : kernels};
}

// Seconds of reductions that a second of a backward pass has room for. Gathers of the same pass come first on the links of
// reductions inside a sharding group: a layer takes both one after the other, or the reductions of both levels. What groups
// reduce between them has a stream of its own.
double Fold::Rate() const {
  if (outline_.order.fills_bubble) return 1;  // beside gradients of weights nothing else travels
  const double room = BesideLayer(table_.layer.backward, backward_) / std::max(1e-30, backward_);
  if (!fetches_ || !outline_.gather_overlaps ||
      outline_.reduction == PlanOutline::Reduction::kBetweenGroups)
    return room;
  const double bytes = table_.TrainedOfLayer() * outline_.gradient_bytes;
  const double beside = 1 - Awaited().reductions;
  const double inner = beside * data_->reduce_scatter.InBuckets(bytes, outline_.gradient_bytes);
  const double all = beside * Reduction(table_.TrainedOfLayer());
  return all > 0 ? room * all / std::max(all, inner + gather_.seconds) : room;
}

// When a stage has reduced its gradients, in seconds behind the end of all passes. Chunk by chunk: the first layer's
// gradients are there when the last micro-batch's pass has left it (the head's before), the last one's (and the embedding's) when that pass
// ends; the share that the framework waits for follows all passes.
Fold::Reducing Fold::ReducingOf(int stage) const {
  const With messages(*this, stage);
  struct Chunk {
    int place;
    ScheduleClock::Interval pass;
    double trained;
  };
  const int kind = outline_.order.fills_bubble ? PassCall::kWeightGrad : PassCall::kBackward;
  static thread_local std::vector<Chunk> chunks;  // keeps its memory
  chunks.clear();
  double trained = 0, end = -std::numeric_limits<double>::infinity();
  for (int c = 0; c < outline_.chunks; ++c) {
    const int place = VirtualStage(outline_.order.in_a_v, outline_.stages, stage, c);
    chunks.push_back({place, form_.clock.LastPass(place, kind), TrainedOfChunk(place)});
    trained += chunks.back().trained;
    end = std::max(end, chunks.back().pass.to);
  }
  const double reduction = Reduction(trained), each = reduction / std::max(1.0, trained);
  Reducing reducing{end, end + reduction};
  // Behind its own passes a stage waits for its reduction, whatever else travels.
  const auto book_tail = [&] {
    if (parts_ && stage == watched_)
      reducing.beside = form_.clock.IdleBetween(end, std::min(reducing.to, 0.0)).pipeline;
    return reducing;
  };
  if (!outline_.reduction_overlaps) return book_tail();
  std::ranges::sort(chunks, {}, [](const Chunk& chunk) { return chunk.pass.from; });
  const double rate = Rate(), beside = (1 - Awaited().reductions) * each;
  const auto travel = [&](double from, double seconds) {
    const double room = rate * std::max(0.0, end - from);  // while kernels run
    const double to = seconds < room ? from + seconds / rate : std::max(from, end) + seconds - room;
    // A stage that waits for a tensor which nobody has sent waits for the message that is under way.
    if (parts_ && stage == watched_ && from < end) {
      const ScheduleTime idle = form_.clock.IdleBetween(from, std::min(to, end));
      reducing.pipeline += idle.pipeline;
      reducing.bubble += idle.bubble;
    }
    return to;
  };
  double now = outline_.reduction_behind ? form_.clock.Issued(stage)
                                         : -std::numeric_limits<double>::infinity();
  for (const auto& [place, pass, of_chunk] : chunks) {
    const double layers = (*outline_.layout)[static_cast<std::size_t>(place)];
    const double rows = place == 0 ? table_.TrainedOfEnds(table_.embedding_parameters) : 0.0;
    const auto [head, in_head] = HeadOf(place);
    const double from = pass.from + std::min(in_head, pass.to - pass.from);
    const double last = std::min(of_chunk - head, table_.TrainedOfLayer() + rows);
    if (head > 0) now = travel(std::max(now, from), beside * head);
    now = std::max(now, from + (pass.to - from) / std::max(1.0, layers));
    now = travel(now, beside * (of_chunk - head - last));
    now = travel(std::max(now, pass.to), beside * last);
  }
  reducing.to = std::max(now, end) + (reduction - beside * trained);
  return book_tail();
}

// The stages between the ends reduce beside what the ends have to send each other behind their own reductions.
Fold::Reduced Fold::ReducedBehindWalk() const {
  const double tied = TiedStages();
  Reduced reduced;
  for (int stage = 0; stage < outline_.stages; ++stage) {
    // Stages between the first and the last one end before the first and have no more to reduce.
    const bool end = stage == 0 || stage + 1 == outline_.stages;
    if (!end && stage != watched_ && !outline_.order.fills_bubble && data_->of_stage.empty() &&
        outline_.middle_layers <= outline_.first_layers)
      continue;
    const Reducing reducing = ReducingOf(stage);
    reduced.exposed = std::max(reduced.exposed, reducing.to - (end ? 0.0 : tied));
    if (stage != watched_) continue;
    reduced.own = reducing.to - reducing.from;
    reduced.pipeline = reducing.pipeline;
    reduced.bubble = reducing.bubble;
    reduced.beside = reducing.beside;
  }
  return reduced;
}

// At least what a walk will find. The first stage's passes end last, for all others hand it their gradients; where
// gradients of weights are put off it may be any stage.
double Fold::LeastReduced() const {
  const double layer = table_.TrainedOfLayer();
  const double rows = table_.TrainedOfEnds(table_.embedding_parameters);
  const double beside = outline_.reduction_overlaps ? 1 - Awaited().reductions : 0.0;
  if (!outline_.order.fills_bubble) {
    const double trained = outline_.first_layers * layer + rows;
    const double last = std::min(1, outline_.layout->front()) * layer + rows;  // of its first chunk
    return Reduction(trained) * (1 - beside * (1 - last / std::max(1.0, trained)));
  }
  const std::vector<int>& layout = *outline_.layout;
  double fewest = table_.layers;
  for (int stage = 0; stage < outline_.stages; ++stage) {
    double layers = 0;
    for (int c = 0; c < outline_.chunks; ++c)
      layers += layout[static_cast<std::size_t>(
          VirtualStage(outline_.order.in_a_v, outline_.stages, stage, c))];
    fewest = std::min(fewest, layers);
  }
  return (1 - beside) * Reduction(fewest * layer);
}

}  // namespace orrery::closed
