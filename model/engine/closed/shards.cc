// SPDX-License-Identifier: Apache-2.0
// Sharded weights and gradients in the passes: what gathers and scatters take, and how much of them kernels hide.
#include <algorithm>
#include <span>
#include <vector>

#include "model/engine/closed/fold.h"

namespace orrery::closed {
namespace {

// Seconds of a pass up to the first collective of ranks that share sequences.
double UpToSequences(std::span<const PassPart> parts) {
  double seconds = 0;
  for (const PassPart& part : parts) {
    seconds += part.kernels;
    if (part.of_sequences) break;
    seconds += part.message;
  }
  return seconds;
}

// Kernels, then a message of the pass, and so on, beside others of the data axes: those slow kernels down, messages they do
// not. Where both share a communicator the first one of the pass waits: for all of them, or for the tail of a gradient. The
// pass ends behind all of them. `holds_nics`: share of the messages of ranks of a layer in which nothing of the others
// gets through.
Exposed CoverParts(double first, std::span<const PassPart> parts, const Beside& messages,
                   bool one_communicator, double holds_nics) {
  double copies = messages.copies, left = messages.seconds + messages.tail_alone();
  double tail = messages.tail;
  const double rate = left > 0 ? 1 - messages.Lost() / left : 1;  // of kernels
  Exposed exposed;
  const auto wait = [&] {
    exposed.seconds += copies + left;
    exposed.copies += copies;
    exposed.tails += std::min(tail, left);
    copies = left = tail = 0;
  };
  const auto run = [&](double kernels) {
    const double free = std::min(copies, kernels);
    copies -= free, kernels -= free;
    const double slowed = rate > 0 ? std::min(left, kernels / rate) : left;
    left -= slowed;
    exposed.seconds += (1 - rate) * slowed;
    exposed.beside_host += (1 - rate) * slowed;
    exposed.slowed += (1 - rate) * slowed;
    exposed.tails += (1 - rate) * std::min(tail, slowed);
    tail -= std::min(tail, free + std::max(slowed, kernels));
  };
  const auto pass = [&](double seconds) {
    const double free = std::min(copies, seconds);
    copies -= free;
    left -= std::min(left, seconds - free);
    tail -= std::min(tail, seconds);
  };
  run(first);
  for (const PassPart& part : parts) {
    run(part.kernels);
    if (part.of_sequences && one_communicator) wait();
    if (part.of_layer && tail > 0) {
      exposed.seconds += tail;
      exposed.tails += tail;
      pass(tail);
    }
    const double held = part.of_layer ? holds_nics * part.message : 0.0;
    copies -= std::min(copies, held);
    pass(part.message - held);
  }
  wait();
  return exposed;
}

}  // namespace

Exposed Fold::Shown(double first, std::span<const PassPart> parts, const Beside& gather,
                    const Beside& scatter) const {
  const bool gathers = outline_.gather_overlaps, scatters = ScattersHide();
  const auto cover = [&](const Beside& messages) {
    return CoverParts(first, parts, messages, one_communicator_,
                      data_->shards_on_nics ? table_.holds_nics : 0.0);
  };
  if (gathers && scatters) return cover(Combined(gather, scatter));
  Exposed exposed = gathers ? cover(gather) : Alone(gather);
  exposed.Add(1, scatters ? cover(scatter) : Alone(scatter));
  return exposed;
}

double Fold::ExtraKernels(double parameters) const {
  if (!scatters_) return 0;
  // The whole gradient is cleared, its shard added to the sum of those before.
  return form_.fill.Of(parameters * outline_.gradient_bytes) +
         AddedOnDevice() * form_.add.Of(3.0 * parameters / data_->dp * outline_.gradient_bytes);
}

void Fold::PriceLayer() {
  sharded_ = data_->dp > 1;
  fetches_ = outline_.gathers_weights && (sharded_ || outline_.weights_on_host);
  scatters_ = (outline_.scatters_gradients && sharded_) || outline_.gradients_on_host;
  inside_ = stages_.inside.Time(table_.boundary_bytes);
  between_ = stages_.between.Time(table_.boundary_bytes);
  const auto adding = [&](const LayerTime& t) { return outline_.accumulates ? t.accumulate : 0.0; };
  extra_ = ExtraKernels(table_.TrainedOfLayer() - table_.coded_parameters);
  if (table_.coded_parameters > 0) extra_ += ExtraKernels(table_.coded_parameters);
  if (fetches_) {
    gathered_forward_ = table_.layer.gathered_forward;
    gathered_backward_ = table_.layer.gathered_backward;
  } else if (outline_.gathers_weights) {
    gathered_forward_.host = table_.layer.hooks_forward;
    gathered_backward_.host = table_.layer.hooks_backward;
  }
  forward_ = table_.layer.forward.busy() + gathered_forward_.device;
  backward_ =
      table_.layer.backward.busy() + adding(table_.layer) + extra_ + gathered_backward_.device;
  one_communicator_ = table_.sequence_ranks > 1 && data_->dp == table_.sequence_ranks;
  const double more_forward = gathered_forward_.device;
  const double more_backward = backward_ - table_.layer.backward.busy();
  if (one_communicator_) {
    hides_backward_ = more_backward;
    for (const LayerShare& kind : table_.kinds)
      hides_backward_ += kind.share * UpToSequences(kind.backward);
  }
  if (outline_.order.fills_bubble)
    put_off_ = table_.layer.weight_gradient + adding(table_.layer) + extra_;
  embedding_extra_ =
      ExtraKernels(table_.TrainedOfEnds(table_.embedding_parameters)) + adding(table_.embedding);
  head_extra_ = ExtraKernels(table_.TrainedOfEnds(HeadUnit())) + adding(table_.head);
  units_of_layer_ = LayerScatters();
  if (!table_.frozen) {
    units_of_embedding_ =
        (table_.table_parameters > 0) + (table_.embedding_parameters > table_.table_parameters);
    units_of_head_ = HeadUnits() - (table_.tied && HeadTable() > 0 ? 1 : 0);
  }
  if (!scatters_ && !fetches_) return;
  const double transform = HeadTransform();
  const double rest = table_.embedding_parameters - table_.table_parameters;
  if (fetches_) {
    gather_ = Gather(table_.layer_parameters - table_.packed_parameters - table_.coded_parameters) +
              Gather(table_.adapter_parameters) + Fetch(table_.coded_parameters * kCodeBytes);
    if (table_.packed_parameters > 0)
      gather_ = gather_ + Fetch(table_.packed_parameters * table_.code_bytes);
    gather_table_ = Gather(table_.table_parameters);
    gather_rest_ = Gather(rest);
    gather_ends_ = Gather(table_.final_norm_parameters) + Gather(transform);
    gather_head_ = gather_ends_ +
                   (HeadTable() == table_.table_parameters ? gather_table_ : Gather(HeadTable()));
    if (outline_.frees_head) gather_again_ = Gather(HeadTable());
  }
  if (scatters_) PriceScatters(transform, rest);
  for (const LayerShare& kind : table_.kinds) {
    const auto beside = [&](const Beside& gather, const Beside& scatter) {
      return Shown(more_backward, kind.backward, gather, scatter);
    };
    beside_forward_.Add(kind.share, Shown(more_forward, kind.forward, gather_, {}));
    if (outline_.order.fills_bubble) {
      std::vector<PassPart> left = kind.backward;
      for (PassPart& part : left) {
        part.kernels -= part.put_off;
        if (part.message_put_off) part.message = 0, part.of_sequences = part.of_layer = false;
      }
      beside_gradients_.Add(kind.share, Shown(gathered_backward_.device, left, gather_, {}));
      beside_first_ = beside_gradients_;
      continue;
    }
    beside_backward_.Add(kind.share, beside(gather_, scatter_));
    beside_first_.Add(kind.share, beside(gather_, {}));
    beside_ends_.Add(kind.share, beside(gather_, {}));
    beside_ends_.Add(kind.share, beside({}, scatter_));
  }
  beside_weights_ = Shown(put_off_, {}, scatter_);
}

void Fold::PriceScatters(double transform, double rest) {
  scatter_ =
      Behind(table_.layer_tail, ScatterToHost(table_.TrainedOfLayer() - table_.coded_parameters) +
                                    ScatterToHost(table_.coded_parameters));
  if (table_.frozen) return;
  const bool twice = table_.tied && !outline_.ties_stages;  // the table's, in each backward pass
  scatter_embedding_ = EndScatter(table_.table_parameters, twice) +
                       Behind(table_.embedding_tail, EndScatter(rest, false));
  scatter_head_ = Behind(table_.head_tail, EndScatter(table_.final_norm_parameters, false)) +
                  EndScatter(transform, false) + EndScatter(HeadTable(), false);
  if (!outline_.scatter_overlaps) return;
  down_embedding_ = ToHost(table_.embedding_parameters);
  down_head_ = ToHost(HeadUnit());
}

// Of a gather beside a pass of a layer and the gather of the next one: what it adds.
Exposed Fold::BesideNext(double kernels, const Beside& gather) const {
  Exposed more = Shown(kernels, gather_ + gather, {});
  more.Add(-1, Shown(kernels, gather_, {}));
  return more;
}

// Between the layers of two stacks: the encoder's norm and the decoder's embedding. The next stack's first layer is gathered beside
// that embedding, or beside the last layer of a backward pass; the last sums of that one are scattered in front of the next.
void Fold::BetweenStacks(double times, double ends, double embedding, Work* work) const {
  if (!table_.two_stacks) return;
  Exposed &forward = work->forward.shards, &backward = work->backward.shards;
  const Beside norm = Gather(table_.final_norm_parameters);
  forward.Add(1, Alone(gather_table_ + (outline_.gathers_weights ? norm : Beside{})));
  forward.Add(times, Shown(embedding, gather_, {}));
  if (fetches_) backward.Add(1, BesideNext(backward_, norm));
  if (outline_.order.fills_bubble) {
    backward.Add(times, Alone(gather_));
    work->last.Add(times, Alone(scatter_));
  } else {
    backward.Add(times * (1 - ends), Alone(gather_));
    backward.Add(-times * ends, beside_ends_);
    backward.Add(times * ends, beside_first_);
    backward.Add(times * ends, beside_backward_);
    backward.Add(times, Alone(scatter_));
  }
  if (scatters_ && !table_.frozen) {
    backward.Add(1, Alone(EndScatter(table_.table_parameters, false)));
    backward.Add(1, Alone(EndScatter(table_.final_norm_parameters, false)));
  }
}

// A pass of a chunk gathers its first unit when the pass before has ended, and its second one right behind; from
// then on each layer runs beside the gather of the next one. Gradients are scattered beside the layer behind
// their own; a pass ends when its last sum has been added up. So each chunk shows its first gather and its
// last scatter, in every micro-batch.
void Fold::ExposeShards(const Stage& stage, Work* work) const {
  if (!fetches_ && !scatters_) return;
  const double v = std::min(stage.used * (table_.two_stacks ? 2 : 1), stage.layers);  // with layers
  const double layers = v > 0 ? stage.layers / v : 0;
  const double first = stage.first ? 1 : 0, last = stage.last ? 1 : 0;
  // Between two stacks, of which each has an embedding: layers that begin one behind another.
  const double inside = std::max(0.0, v - stage.used);
  const double embedding = table_.embedding.forward.busy() / (table_.two_stacks ? 2 : 1);
  Exposed& forward = work->forward.shards;
  forward.Add(std::max(0.0, v - inside - first), Alone(gather_));
  forward.Add(stage.layers - v, beside_forward_);
  if (stage.first) {
    forward.Add(1, Alone(gather_table_));
    forward.Add(1, Shown(embedding, gather_rest_ + (v > 0 ? gather_ : Beside{}), {}));
  }
  work->forward.front = forward.seconds - std::max(0.0, stage.layers - v) * beside_forward_.seconds;
  Exposed& backward = work->backward.shards;
  const double ends = std::clamp(layers - 1, 0.0, 1.0), middle = std::max(layers - 2, 0.0);
  backward.Add(std::max(0.0, v - inside - last), Alone(gather_));
  work->backward.front = backward.seconds;
  if (outline_.order.fills_bubble) {
    backward.Add(stage.layers - v, beside_gradients_);
    work->weight.shards.Add(stage.layers - v, beside_weights_);
  } else {
    backward.Add(v * ends, beside_ends_);
    backward.Add(v * middle, beside_backward_);
  }
  BetweenStacks(inside, ends, embedding, work);
  if (stage.last) ExposeHead(stage, work);
  if (table_.relative_parameters > 0) {  // whose gradients are ready behind all layers
    const Beside relative = fetches_ ? Gather(table_.relative_parameters) : Beside{};
    forward.Add(1, BesideNext(forward_, relative));
    backward.Add(1, BesideNext(backward_, relative));
  }
  ExposeLastScatters(stage, std::max(0.0, v - inside - first), work);
}

void Fold::ExposeHead(const Stage& stage, Work* work) const {
  Exposed& head = work->head.shards;
  head.Add(1, Alone(gather_head_));
  work->head.front = head.seconds;
  // Where the table is gathered again, that is asked for behind the loss, and nothing is gathered earlier.
  double kernels = work->head.kernels;
  if (outline_.frees_head) {
    kernels -= table_.head.forward.busy() + table_.loss_gradient;
    head.Add(1, Alone(gather_again_));
  }
  const Beside gather = ReadBackward(stage) > 0 ? gather_ : Beside{};
  head.Add(1, Shown(kernels, gather_ends_ + gather, {}));
  head.Add(1, Alone(scatter_head_));
  // Its gradients go to the host beside the last layer.
  work->backward.shards.Add(1, Cover(backward_, {0, 0, down_head_}, true));
}

// Of `chunks` that end with a layer, and of the embedding.
void Fold::ExposeLastScatters(const Stage& stage, double chunks, Work* work) const {
  Beside scatter = scatter_;
  // Of one rank nothing is reduced: the last layer's sum has come back, and the layer's behind it goes to the host.
  if (!sharded_ && outline_.scatter_overlaps) scatter.copies = ToHost(table_.TrainedOfLayer());
  work->last.Add(chunks, Alone(scatter));
  if (table_.relative_parameters > 0 && scatters_ && !table_.frozen)
    work->last.Add(1, Alone(EndScatter(table_.relative_parameters, false)));
  if (!stage.first) return;
  work->last.Add(1, Shown(table_.embedding.backward.busy() + embedding_extra_, {},
                          stage.layers > 0 ? scatter : Beside{}));
  work->last.Add(1, Alone(scatter_embedding_));
}

double Fold::Of(const Stage& stage, double Beside::*part) const {
  double all = stage.layers * (2 * gather_.*part + scatter_.*part);
  if (stage.first) all += gather_table_.*part + gather_rest_.*part + scatter_embedding_.*part;
  if (stage.last)
    all += gather_head_.*part + gather_ends_.*part + gather_again_.*part + scatter_head_.*part;
  if (part == &Beside::copies)
    all += (stage.first ? down_embedding_ : 0.0) + (stage.last ? down_head_ : 0.0);
  return all;
}

}  // namespace orrery::closed
