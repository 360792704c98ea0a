// SPDX-License-Identifier: Apache-2.0
// The fold of one layout's prices over its outline; formulas: closed_form.h.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "model/engine/closed/closed_form.h"

namespace orrery::closed {

// Messages beside kernels: how long they take, and what they cost the kernels meanwhile. In front of them copies from the
// host, which cost kernels nothing.
struct Beside {
  double seconds = 0, lost = 0, copies = 0;

  Beside operator+(const Beside& other) const {
    return {seconds + other.seconds, lost + other.lost, copies + other.copies};
  }
};

// A gather with its copy, and what is scattered meanwhile: the copy is on another link.
inline Beside Combined(const Beside& gather, const Beside& scatter) {
  return {gather.seconds + scatter.seconds, gather.lost + scatter.lost,
          std::max(0.0, gather.copies - scatter.seconds)};
}

// What messages add to kernels: seconds, and those of them that are left where the host is later than all of it. Of both
// what copies from the host take.
struct Exposed {
  double seconds = 0, beside_host = 0, copies = 0;

  void Add(double count, const Exposed& other) {
    seconds += count * other.seconds;
    beside_host += count * other.beside_host;
    copies += count * other.copies;
  }
};

// Kernels wait for all of it.
inline Exposed Alone(const Beside& messages) {
  const double all = messages.seconds + messages.copies;
  return {all, all, messages.copies};
}

// Kernels beside messages that slow them down, see the header.
inline Exposed Cover(double kernels, const Beside& messages, bool overlaps) {
  if (!overlaps) return Alone(messages);
  const double all = messages.seconds + messages.copies;
  const double through = all - messages.lost;  // kernels that run meanwhile
  if (through <= kernels) return {messages.lost, messages.lost};
  const double exposed = all - kernels;
  return {exposed, through > 0 ? kernels / through * messages.lost : 0.0,
          std::max(0.0, exposed - messages.seconds)};
}

// What is folded over: one stage with its share of the layers.
struct Stage {
  double layers = 0;
  bool first = true, last = true;
  double chunks = 1;
  double slowdown = 1;  // of its kernels
  int index = -1;       // where stages differ in speed
};

// Share of its work by which messages may hold the busiest stage up before the schedule is walked pass by pass.
constexpr double kHeldUp = 0.02;
constexpr double kRounding = 1e-9;
constexpr double kMasterBytes = 4, kCodeBytes = 1;  // of a weight held in 8 bits

class Fold {
 public:
  Fold(const ClosedForm& form, const LayerTable& table, const PlanOutline& outline,
       const DataMessages& data, const StageMessages& stages, double micro_batches)
      : form_(form),
        table_(table),
        outline_(outline),
        data_(data),
        stages_(stages),
        M_(micro_batches) {
    sharded_ = data.dp > 1;
    fetches_ = outline.gathers_weights && (sharded_ || outline.weights_on_host);
    scatters_ = outline.scatters_gradients && sharded_;
    PriceLayer();
  }

  // `parts`: of what the busiest stage waits for; else all of it is said to be messages.
  StepTime WholeStep(bool parts = true) {
    Work work;
    StepTime time = Passes(&work);
    if (walks_) WalkPasses(work, parts, &time);
    return Finished(time);
  }
  // See ClosedForm::ByFormula.
  std::optional<StepTime> ByFormula(double* least) {
    Work work;
    StepTime time = Passes(&work);
    if (!walks_) return Finished(time);
    *least = Finished(Least(work, time)).total * (1 - kRounding);
    return std::nullopt;
  }
  StepTime MicroStep() {
    Work work;
    StepTime time = Passes(&work);
    if (walks_) WalkPasses(work, true, &time);
    return Crowded(time);
  }

  // What the host issues for one micro-batch on the stage where that takes longest.
  double IssueTime() const {
    double most = 0;
    for (const Stage& stage : Stages()) {
      const Work work = WorkOf(stage);
      most = std::max(most, work.host());
    }
    return most;
  }

 private:
  // Kernels and messages inside of layers, gathers and scatters that they wait for, and what the host issues.
  struct Pass {
    double kernels = 0, host = 0;
    double copies = 0;  // that kernels wait for: activations on their way from or to the host
    Exposed shards;
    double device() const { return kernels + shards.seconds + copies; }
  };
  // One micro-batch on one stage: forward, head and backward passes in this order, then the last scatters. Where the
  // schedule puts gradients of weights off they are a pass of their own, and are scattered there.
  struct Work {
    Pass forward, head, backward, weight;
    Exposed last;
    double kernels() const {
      return forward.kernels + head.kernels + backward.kernels + weight.kernels;
    }
    double host() const { return forward.host + head.host + backward.host + weight.host; }
    double copies() const { return forward.copies + backward.copies; }
    // Of the gathers and scatters, what copies of weights take.
    double fetched() const {
      return forward.shards.copies + head.shards.copies + backward.shards.copies +
             weight.shards.copies;
    }
    double device() const {
      return forward.device() + head.device() + backward.device() + weight.device() + last.seconds;
    }
  };
  // Seconds that a stage spends on a micro-batch, and those of them that are gathers and scatters.
  struct Turn {
    double seconds = 0, shards = 0;
    double forward = 0;  // seconds up to the head
  };

  double ExtraKernels(double parameters) const {
    if (!scatters_) return 0;
    // The whole gradient is cleared, its shard added to the sum of those before.
    return form_.fill.Of(parameters * outline_.gradient_bytes) +
           form_.add.Of(3.0 * parameters / data_.dp * outline_.gradient_bytes);
  }

  // Of one layer, once per step: weights that stay are cast when the first micro-batch needs them.
  double WeightCasts() const { return fetches_ ? 0.0 : table_.layer.weight_casts; }

  // Of the embedding's and the head's gathered weights, which nothing casts.
  double Hooks(const PassTime& gathered) const {
    return outline_.gathers_weights ? gathered.host : 0.0;
  }

  // What the host issues for so many sharded units: to gather their weights, to clear and scatter their gradients.
  double IssueGathers(double units) const {
    return outline_.gathers_weights && sharded_ ? units * form_.issue_message : 0.0;
  }
  double IssueScatters(double units) const {
    return outline_.scatters_gradients && sharded_
               ? units * (form_.issue_message + form_.issue_fill)
               : 0.0;
  }
  double IssueEndScatters(double units) const { return table_.frozen ? 0.0 : IssueScatters(units); }

  void PriceLayer() {
    const auto adding = [&](const LayerTime& t) {
      return outline_.accumulates ? t.accumulate : 0.0;
    };
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
    if (outline_.order.fills_bubble)
      put_off_ = table_.layer.weight_gradient + adding(table_.layer) + extra_;
    embedding_extra_ =
        ExtraKernels(table_.TrainedOfEnds(table_.embedding_parameters)) + adding(table_.embedding);
    head_extra_ = ExtraKernels(table_.TrainedOfEnds(HeadUnit())) + adding(table_.head);
    if (!scatters_ && !fetches_) return;
    const double transform = HeadTransform();
    const double rest = table_.embedding_parameters - table_.table_parameters;
    if (fetches_) {
      gather_ =
          Gather(table_.layer_parameters - table_.packed_parameters - table_.coded_parameters) +
          Gather(table_.adapter_parameters) + Fetch(table_.coded_parameters * kCodeBytes);
      if (table_.packed_parameters > 0)
        gather_ = gather_ + Fetch(table_.packed_parameters * table_.code_bytes);
      gather_table_ = Gather(table_.table_parameters);
      gather_rest_ = Gather(rest);
      gather_ends_ = Gather(table_.final_norm_parameters) + Gather(transform);
      gather_head_ = gather_ends_ +
                     (HeadTable() == table_.table_parameters ? gather_table_ : Gather(HeadTable()));
    }
    if (scatters_) {
      scatter_ = Scatter(table_.TrainedOfLayer() - table_.coded_parameters) +
                 Scatter(table_.coded_parameters);
      if (!table_.frozen) {
        const Beside table = Scatter(table_.table_parameters);
        scatter_embedding_ = table + Scatter(rest);
        scatter_head_ = Scatter(table_.final_norm_parameters) + Scatter(transform) +
                        (HeadTable() == table_.table_parameters ? table : Scatter(HeadTable()));
      }
    }
    for (const LayerShare& kind : table_.kinds) {
      const double backward = backward_ + kind.backward;
      beside_forward_.Add(kind.share, Shown(forward_ + kind.forward, gather_, {}));
      beside_backward_.Add(kind.share, Shown(backward, gather_, scatter_));
      beside_ends_.Add(kind.share, Shown(backward, gather_, {}));
      beside_ends_.Add(kind.share, Shown(backward, {}, scatter_));
      beside_gradients_.Add(kind.share, Shown(backward - put_off_, gather_, {}));
    }
    beside_weights_ = Shown(put_off_, {}, scatter_);
  }

  // The head's table, which is the embedding's where they are tied; what else it reads are units of their own.
  double HeadTable() const {
    return table_.tied ? table_.table_parameters
                       : std::min(table_.table_parameters, table_.head_parameters);
  }
  double HeadUnit() const {
    return table_.head_parameters + (table_.tied ? table_.table_parameters : 0.0);
  }
  double HeadTransform() const { return HeadUnit() - HeadTable() - table_.final_norm_parameters; }
  double HeadUnits() const {
    return (HeadTable() > 0) + (table_.final_norm_parameters > 0) + (HeadTransform() > 0);
  }
  double LayerGathers() const {  // packed weights and adapters travel apart
    return (table_.layer_parameters > table_.packed_parameters + table_.coded_parameters) +
           (table_.adapter_parameters > 0) + (table_.packed_parameters > 0) +
           (table_.coded_parameters > 0);
  }
  double LayerScatters() const {
    return (table_.TrainedOfLayer() > table_.coded_parameters) + (table_.coded_parameters > 0);
  }
  static Beside Price(const PreparedMessage& message, double bytes) {
    if (bytes <= 0) return {};
    const double seconds = message.Time(bytes);
    return {seconds, message.terms.Lost(bytes, seconds)};
  }
  Beside Gather(double parameters) const { return Fetch(parameters * outline_.weight_bytes); }
  // The rank's shard from the host, the whole from the other ranks.
  Beside Fetch(double bytes) const {
    Beside fetch = sharded_ ? Price(data_.layer_gather, bytes) : Beside{};
    if (outline_.weights_on_host) fetch.copies = bytes / outline_.shards * form_.host.copy;
    return fetch;
  }
  Beside Scatter(double parameters) const {
    return Price(data_.layer_scatter, parameters * outline_.gradient_bytes);
  }

  std::array<Stage, 3> Stages() const {
    if (outline_.stages == 1) {
      const Stage all{table_.layers, true, true};
      return {all, all, all};
    }
    const double v = outline_.chunks;
    const bool together = outline_.order.in_a_v;  // both ends on the first stage
    return {Stage{outline_.first_layers, true, together, v},
            Stage{outline_.last_layers, false, !together, v},
            Stage{outline_.middle_layers, false, false, v}};
  }

  // A pass of a chunk gathers its first unit when the pass before has ended, and its second one right behind; from
  // then on each layer runs beside the gather of the next one. Gradients are scattered beside the layer behind
  // their own; a pass ends when its last sum has been added up. So each chunk shows its first gather and its
  // last scatter, in every micro-batch.
  void ExposeShards(const Stage& stage, Work* work) const {
    if (!fetches_ && !scatters_) return;
    const double v = stage.chunks * (table_.two_stacks ? 2 : 1);
    const double layers = std::max(stage.layers / v, 1.0);
    const double first = stage.first ? 1 : 0, last = stage.last ? 1 : 0;
    Exposed& forward = work->forward.shards;
    forward.Add(v - first, Alone(gather_));
    forward.Add(v * (layers - 1), beside_forward_);
    if (stage.first) {
      forward.Add(1, Alone(gather_table_));
      forward.Add(1, Shown(table_.embedding.forward.busy(), gather_rest_ + gather_, {}));
    }
    Exposed& backward = work->backward.shards;
    const double ends = std::min(layers - 1, 1.0), middle = std::max(layers - 2, 0.0);
    backward.Add(v - last, Alone(gather_));
    if (outline_.order.fills_bubble) {
      backward.Add(v * (layers - 1), beside_gradients_);
      work->weight.shards.Add(v * (layers - 1), beside_weights_);
    } else {
      backward.Add(v * ends, beside_ends_);
      backward.Add(v * middle, beside_backward_);
    }
    if (stage.last) {
      Exposed& head = work->head.shards;
      head.Add(1, Alone(gather_head_));
      head.Add(1, Shown(work->head.kernels, gather_ends_ + gather_, {}));
      head.Add(1, Alone(scatter_head_));
    }
    work->last.Add(v - first, Alone(scatter_));
    if (table_.two_stacks) {  // the encoder's norm and the decoder's embedding
      const Beside norm = Gather(table_.final_norm_parameters);
      forward.Add(1, Alone(gather_table_ + (outline_.gathers_weights ? norm : Beside{})));
      if (!table_.frozen) {
        work->last.Add(
            1, Alone(Scatter(table_.table_parameters) + Scatter(table_.final_norm_parameters)));
      }
    }
    if (!stage.first) return;
    work->last.Add(1, Shown(table_.embedding.backward.busy() + embedding_extra_, {}, scatter_));
    work->last.Add(1, Alone(scatter_embedding_));
  }

  // Of gathers and scatters beside kernels.
  Exposed Shown(double kernels, const Beside& gather, const Beside& scatter) const {
    const bool gathers = outline_.gather_overlaps, scatters = outline_.scatter_overlaps;
    if (gathers && scatters) return Cover(kernels, Combined(gather, scatter), true);
    Exposed exposed = Cover(kernels, gather, gathers);
    exposed.Add(1, Cover(kernels, scatter, scatters));
    return exposed;
  }

  Work WorkOf(const Stage& stage) const {
    const LayerTime& layer = table_.layer;
    Work work;
    work.forward.kernels = stage.layers * forward_;
    work.backward.kernels = stage.layers * (backward_ - put_off_);
    work.weight.kernels = stage.layers * put_off_;
    work.forward.host =
        stage.layers * (layer.forward.host + gathered_forward_.host + IssueGathers(LayerGathers()));
    work.backward.host =
        stage.layers * (layer.backward.host + gathered_backward_.host +
                        IssueGathers(LayerGathers()) + IssueScatters(LayerScatters()));
    if (stage.first) {
      const LayerTime& t = table_.embedding;
      Pass& gradients = outline_.order.fills_bubble ? work.weight : work.backward;
      work.forward.kernels += t.forward.busy();
      gradients.kernels += t.backward.busy() + embedding_extra_;
      const double units =
          (table_.table_parameters > 0) + (table_.embedding_parameters > table_.table_parameters);
      work.forward.host += t.forward.host + Hooks(t.gathered_forward) + IssueGathers(units);
      gradients.host += t.backward.host + Hooks(t.gathered_backward) + IssueEndScatters(units);
    }
    if (stage.last) {
      const LayerTime& t = table_.head;
      work.head.kernels = t.forward.busy() + t.backward.busy() + head_extra_;
      work.head.host = t.forward.host + t.backward.host + Hooks(t.gathered_forward) +
                       Hooks(t.gathered_backward) + IssueGathers(HeadUnits()) +
                       IssueEndScatters(HeadUnits());
    }
    if (stage.slowdown != 1) SlowDown(stage, &work);
    ExposeShards(stage, &work);
    if (outline_.moves_activations) AwaitActivations(stage, &work);
    return work;
  }

  // Kernels alone: messages inside of layers take no longer.
  void SlowDown(const Stage& stage, Work* work) const {
    const auto slow = [&](double* kernels, double messages) {
      *kernels = stage.slowdown * (*kernels - messages) + messages;
    };
    const auto messages = [](const PassTime& pass) { return pass.tensor + pass.context; };
    const LayerTable& t = table_;
    double forward = stage.layers * messages(t.layer.forward);
    double backward = stage.layers * messages(t.layer.backward);
    if (stage.first) forward += messages(t.embedding.forward);
    if (stage.first && !outline_.order.fills_bubble) backward += messages(t.embedding.backward);
    slow(&work->forward.kernels, forward);
    slow(&work->backward.kernels, std::min(backward, work->backward.kernels));
    slow(&work->weight.kernels, 0);
    if (stage.last) slow(&work->head.kernels, messages(t.head.forward) + messages(t.head.backward));
  }

  // Each on its own, where they differ in speed.
  std::vector<Stage> StagesBySpeed() const {
    std::vector<Stage> all;
    for (int s = 0; s < outline_.stages; ++s) {
      double layers = 0;
      for (std::size_t chunk = static_cast<std::size_t>(s); chunk < outline_.layout->size();
           chunk += static_cast<std::size_t>(outline_.stages))
        layers += (*outline_.layout)[chunk];
      all.push_back(
          {layers, s == 0, s + 1 == outline_.stages, double(outline_.chunks), SlowdownOf(s), s});
    }
    return all;
  }
  double SlowdownOf(int stage) const {
    return outline_.slowdown == nullptr ? 1.0
                                        : (*outline_.slowdown)[static_cast<std::size_t>(stage)];
  }

  // The device works on what the host has issued: it ends no earlier than if the host issues the first passes and the
  // device then runs the others, whatever their number.
  static Turn Later(const Turn& a, const Turn& b) { return b.seconds > a.seconds ? b : a; }
  static Turn OnDevice(const Work& w) {
    return {w.device(), w.forward.shards.seconds + w.head.shards.seconds +
                            w.backward.shards.seconds + w.weight.shards.seconds + w.last.seconds};
  }
  static Turn OnHost(const Work& w) {
    return {w.host(), w.forward.shards.beside_host + w.head.shards.beside_host +
                          w.backward.shards.beside_host + w.weight.shards.beside_host +
                          w.last.beside_host};
  }
  // A host that is ahead when a pass begins lets the device run until it has lost its lead; messages of that share of
  // the pass are exposed as without a host.
  static Turn BehindHost(const Work& w) {
    Turn turn;
    double issued = 0;
    const auto run = [&](const Pass& pass) {
      const double lead = turn.seconds - issued;
      turn.seconds += pass.device();
      issued += pass.host;
      double ahead = 1;
      if (issued > turn.seconds) {
        ahead = lead / (pass.host - pass.device());
        turn.seconds = issued;
      }
      turn.shards += ahead * pass.shards.seconds + (1 - ahead) * pass.shards.beside_host;
    };
    run(w.forward), run(w.head), run(w.backward), run(w.weight);
    turn.seconds += w.last.seconds;
    turn.shards += w.last.seconds;
    return turn;
  }

  // Device and host side by side, of one micro-batch of many. The host runs ahead, without end or up to its next wait:
  // for a micro-batch to load and, between stages, for what the neighbour sends.
  Turn Together(const Work& w) const {
    Turn turn;
    if (!form_.host_waits) {
      turn = outline_.stages > 1 ? OnDevice(w) : Later(OnDevice(w), OnHost(w));
      turn.forward = w.forward.device();
      return turn;
    }
    if (outline_.stages == 1) return BehindHost(w);
    const bool late = w.forward.host > w.forward.device();
    Work rest = w;
    rest.forward = {};
    turn = BehindHost(rest);
    turn.forward = late ? w.forward.host : w.forward.device();
    turn.seconds += turn.forward;
    turn.shards += late ? w.forward.shards.beside_host : w.forward.shards.seconds;
    return turn;
  }

  // A host that never waits is ahead or behind once per step, not once per micro-batch.
  double HostOnce(const Work& w) const {
    if (form_.host_waits || outline_.stages > 1) return 0;
    return BehindHost(w).seconds - std::max(w.device(), w.host());
  }

  // All micro-batches by formulas, and the work of the busiest stage.
  StepTime Passes(Work* of_busiest) {
    StepTime time;
    Work& work = *of_busiest;
    Turn busiest{-1}, sum;
    double issuing = 0;  // of a host that never waits
    const auto consider = [&](const Stage& stage, const Work& candidate, const Turn& turn) {
      if (turn.seconds > busiest.seconds) busiest = turn, stage_ = stage, work = candidate;
    };
    if (outline_.stages == 1) {
      const Stage all{table_.layers, true, true, 1, SlowdownOf(0), 0};
      const Work candidate = WorkOf(all);
      consider(all, candidate, Together(candidate));
    } else if (outline_.slowdown != nullptr) {
      for (const Stage& stage : StagesBySpeed()) {
        const Work candidate = WorkOf(stage);
        const Turn turn = Together(candidate);
        sum.seconds += turn.seconds;
        sum.forward += turn.forward;
        if (!form_.host_waits) issuing = std::max(issuing, candidate.host());
        consider(stage, candidate, turn);
      }
    } else {
      const double others = outline_.stages - 2;
      const double mean =
          others > 0 ? (table_.layers - outline_.first_layers - outline_.last_layers) / others : 0;
      const std::array<Stage, 3> stages = Stages();
      for (const Stage& stage : stages) {
        const bool middle =
            &stage == &stages.back();  // in a V the last stage has no end of the model
        if (middle && others == 0) continue;
        const Work candidate = WorkOf(stage);
        const Turn turn = Together(candidate);
        const Turn part = middle && mean != stage.layers
                              ? Together(WorkOf({mean, false, false, stage.chunks}))
                              : turn;
        sum.seconds += (middle ? others : 1.0) * part.seconds;
        sum.forward += (middle ? others : 1.0) * part.forward;
        if (!form_.host_waits) issuing = std::max(issuing, candidate.host());
        consider(stage, candidate, turn);
      }
    }
    here_ = stage_;
    AddKernels(here_, &time);
    const double fetched = M_ * work.fetched();
    time.data = std::max(0.0, M_ * busiest.shards - fetched);
    time.data_hidden = std::max(0.0, M_ * MessagesOf(stage_) - time.data);
    const double left = M_ * (busiest.seconds - work.kernels() - busiest.shards);
    time.offload = std::clamp(M_ * work.copies(), 0.0, std::max(0.0, left));
    if (outline_.moves_activations)
      time.offload_hidden = std::max(0.0, M_ * CopiesOf(stage_) - time.offload);
    time.host = left - time.offload + HostOnce(work);
    const double shown = M_ * busiest.shards - time.data;
    time.offload += shown;
    time.offload_hidden += std::max(0.0, M_ * FetchesOf(stage_) - shown);
    if (outline_.stages > 1) {
      const double held_up = AddPipeline(sum, busiest, work, &time);
      const bool host_bound = issuing > busiest.seconds;
      walks_ = (held_up > kHeldUp * M_ * busiest.seconds || host_bound || Uneven()) && CanWalk();
    }
    return time;
  }

  StepTime Finished(StepTime time) const {
    AddUpdate(&time);
    time.fixed = form_.fixed;
    return Crowded(time);
  }

  double MessagesOf(const Stage& stage) const { return Of(stage, &Beside::seconds); }
  double FetchesOf(const Stage& stage) const { return Of(stage, &Beside::copies); }
  double Of(const Stage& stage, double Beside::*part) const {
    double all = stage.layers * (2 * gather_.*part + scatter_.*part);
    if (stage.first) all += gather_table_.*part + gather_rest_.*part + scatter_embedding_.*part;
    if (stage.last) all += gather_head_.*part + gather_ends_.*part + scatter_head_.*part;
    return all;
  }

  void AddKernels(const Stage& stage, StepTime* time) const {
    const auto add = [&](double count, const LayerTime& t, double extra) {
      time->compute += M_ * count * stage.slowdown * (t.forward.device + t.backward.device + extra);
      time->tensor += M_ * count * (t.forward.tensor + t.backward.tensor);
      time->context += M_ * count * (t.forward.context + t.backward.context);
      time->tensor_hidden += M_ * count * (t.forward.tensor_hidden + t.backward.tensor_hidden);
      time->context_hidden += M_ * count * (t.forward.context_hidden + t.backward.context_hidden);
    };
    const double adding = outline_.accumulates ? table_.layer.accumulate : 0.0;
    add(stage.layers, table_.layer,
        extra_ + adding + gathered_forward_.device + gathered_backward_.device);
    if (stage.first) add(1, table_.embedding, embedding_extra_);
    if (stage.last) add(1, table_.head, head_extra_);
  }

  // pipeline.cc: seconds by which messages hold the busiest stage up; whether the passes are few enough to be walked.
  double AddPipeline(const Turn& all, const Turn& longest, const Work& work, StepTime* time) const;
  double HandingOver(const Turn& turn, const Work& work, double inside, double between) const;
  std::pair<double, double> LongestRound(double sum, double pass, double busiest, double inside,
                                         double between) const;
  double SlowestChunks(const Turn& longest) const;
  bool CanWalk() const;
  bool Uneven() const;
  PassSeconds PassOf(const Stage& chunk) const;
  void WatchHeaviest(Work* work, StepTime* time);
  void WalkPasses(Work work, bool parts, StepTime* time);
  StepTime Least(const Work& work, StepTime time) const;

  // update.cc: gradients that are reduced, weights that are gathered for the next step, the update.
  struct Fullest {
    double parameters = 0, layers = 0;
  };
  Fullest FullestTrained() const;
  double TrainedHere() const;
  void AddCodes(double layers, StepTime* time) const;
  // offload.cc
  std::vector<double> UnitsOfFullest() const;
  double UpdateOnHost(double kernels, double gathers, StepTime* time) const;
  void AwaitActivations(const Stage& stage, Work* work) const;
  double CopiesOf(const Stage& stage) const;

  double Beyond(double message, double pass) const;
  double Reduction(double parameters) const;
  double BesideLayer(const PassTime& pass, double busy) const;
  double ExposedReduction(double reduction, double share, double last, double pass) const;
  void AddUpdate(StepTime* time) const;

  // Ranks that share cores: what one of them waits for in a bubble, others use.
  StepTime Crowded(StepTime time) const {
    if (form_.crowding > 1) {
      const double kernels = time.compute + time.optimizer;
      time.compute += std::max(0.0, (form_.crowding - 1) * kernels - time.bubble);
    }
    time.total = time.Total();
    return time;
  }

  const ClosedForm& form_;
  const LayerTable& table_;
  const PlanOutline& outline_;
  const DataMessages& data_;
  const StageMessages& stages_;
  const double M_;
  bool sharded_ = false, fetches_ = false, scatters_ = false, walks_ = false;
  Stage stage_, here_;                             // the busiest; that of the breakdown
  double fill_ = 0;                                // what it waits for its first pass
  PassTime gathered_forward_, gathered_backward_;  // of one layer's gathered weights: casts, hooks
  // Of one layer: kernels and messages inside of it; of the backward pass, those that the schedule puts off; kernels that
  // sharding adds; gathers and scatters.
  double forward_ = 0, backward_ = 0, put_off_ = 0, extra_ = 0, embedding_extra_ = 0,
         head_extra_ = 0;
  Beside gather_, gather_table_, gather_rest_;
  Beside gather_head_, gather_ends_;  // of the head: before it, beside it
  Beside scatter_, scatter_embedding_, scatter_head_;
  // Beside one layer: of its forward pass, of its backward pass, of those of a chunk's first and last layer.
  Exposed beside_forward_, beside_backward_, beside_ends_;
  // Where gradients of weights are put off: beside the rest of its backward pass, and beside them.
  Exposed beside_gradients_, beside_weights_;
};

}  // namespace orrery::closed
