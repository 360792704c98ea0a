// SPDX-License-Identifier: Apache-2.0
// The fold itself.
#include "model/engine/closed/closed_form.h"

#include <algorithm>
#include <cmath>

namespace orrery {
namespace {

// Messages beside kernels: how long they take, and what they cost the kernels meanwhile.
struct Beside {
  double seconds = 0, lost = 0;

  Beside operator+(const Beside& other) const {
    return {seconds + other.seconds, lost + other.lost};
  }
};

// Kernels beside messages that slow them down, see the header: seconds beyond those of the kernels alone.
double Exposed(double kernels, const Beside& messages, bool overlaps) {
  if (!overlaps) return messages.seconds;
  if (messages.seconds - messages.lost > kernels) return messages.seconds - kernels;
  return messages.lost;
}

// What is folded over: one stage with its share of the layers.
struct Stage {
  double layers = 0;
  bool first = true, last = true;
};

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
    PriceLayer();
  }

  StepTime WholeStep() {
    StepTime time = Passes();
    AddUpdate(&time);
    time.fixed = form_.fixed;
    return Crowded(time);
  }
  StepTime MicroStep() { return Crowded(Passes()); }

  // What the host issues for one micro-batch on the stage where that takes longest.
  double IssueTime() const {
    double most = 0;
    for (const Stage& stage : Stages()) {
      const Work work = WorkOf(stage);
      most = std::max(most, work.host_forward + work.host_head + work.host_backward);
    }
    return most;
  }

 private:
  // One micro-batch on one stage: kernels and messages inside of layers, in this order, and what the host issues.
  struct Work {
    double forward = 0, head = 0, backward = 0;
    double host_forward = 0, host_head = 0, host_backward = 0;
    double shards = 0;  // exposed gathers and scatters
    double device() const { return forward + head + backward; }
  };

  double ExtraKernels(double parameters) const {
    if (!outline_.scatters_gradients || !sharded_) return 0;
    // The whole gradient is cleared, its shard added to the sum of those before.
    return form_.fill.Of(parameters * outline_.gradient_bytes) +
           form_.add.Of(3.0 * parameters / data_.dp * outline_.gradient_bytes);
  }

  void PriceLayer() {
    const auto adding = [&](const LayerTime& t) {
      return outline_.accumulates ? t.accumulate : 0.0;
    };
    extra_ = ExtraKernels(table_.layer_parameters);
    forward_ = table_.layer.forward.busy();
    backward_ = table_.layer.backward.busy() + adding(table_.layer) + extra_;
    embedding_extra_ = ExtraKernels(table_.embedding_parameters) + adding(table_.embedding);
    head_extra_ = ExtraKernels(HeadUnit()) + adding(table_.head);
    if (!sharded_) return;
    if (outline_.gathers_weights) {
      gather_ = Gather(table_.layer_parameters);
      gather_embedding_ = Gather(table_.embedding_parameters);
      gather_head_ = Gather(HeadUnit());
    }
    if (outline_.scatters_gradients) {
      scatter_ = Scatter(table_.layer_parameters);
      scatter_embedding_ = Scatter(table_.embedding_parameters);
      scatter_head_ = Scatter(HeadUnit());
    }
  }

  // Parameters that the head reads: a table that it shares with the embedding is gathered for it again.
  double HeadUnit() const {
    return table_.head_parameters + (table_.tied ? table_.embedding_parameters : 0.0);
  }
  static Beside Price(const PreparedMessage& message, double bytes) {
    const double seconds = message.Time(bytes);
    return {seconds, message.terms.Lost(bytes, seconds)};
  }
  Beside Gather(double parameters) const {
    return Price(data_.layer_gather, parameters * outline_.weight_bytes);
  }
  Beside Scatter(double parameters) const {
    return Price(data_.layer_scatter, parameters * outline_.gradient_bytes);
  }

  std::array<Stage, 3> Stages() const {
    if (outline_.stages == 1) {
      const Stage all{table_.layers, true, true};
      return {all, all, all};
    }
    return {Stage{outline_.first_layers, true, false}, Stage{outline_.last_layers, false, true},
            Stage{outline_.middle_layers, false, false}};
  }

  // Gathers and scatters that show, of one micro-batch in the middle of a step.
  double ShardsOf(const Stage& stage) const {
    if (!sharded_ || !outline_.scatters_gradients) return 0;
    const auto in_forward = [&](double kernels, const Beside& gathers) {
      return Exposed(kernels, gathers, outline_.gather_overlaps);
    };
    const auto in_backward = [&](double kernels, const Beside& gathers, const Beside& scatters) {
      if (!outline_.scatter_overlaps)
        return scatters.seconds + Exposed(kernels, gathers, outline_.gather_overlaps);
      if (!outline_.gather_overlaps) return gathers.seconds + Exposed(kernels, scatters, true);
      return Exposed(kernels, gathers + scatters, true);
    };
    const double L = std::max(stage.layers, 1.0);
    double shown = 0;
    // Forward: beside each layer the weights of the next one, beside the last one those of the head.
    shown += (L - 1) * in_forward(forward_, gather_);
    shown += in_forward(forward_, stage.last ? gather_head_ : gather_);
    if (stage.last) {
      const double head = table_.head.forward.busy() + table_.head.backward.busy() + head_extra_;
      shown += in_forward(head, gather_);
    }
    // Backward: beside each layer the gradients of the one before it in this pass.
    shown += in_backward(backward_, gather_, stage.last ? scatter_head_ : scatter_);
    shown += std::max(0.0, L - 2) * in_backward(backward_, gather_, scatter_);
    if (L > 1) shown += in_backward(backward_, stage.first ? gather_embedding_ : gather_, scatter_);
    if (stage.first) {
      shown += in_backward(table_.embedding.backward.busy() + embedding_extra_, {}, scatter_);
      shown += in_backward(table_.embedding.forward.busy(), gather_, scatter_embedding_);
    }
    return shown;
  }

  // First gathers and last scatters of a step have nothing beside them.
  double ShardsAtEnds(const Stage& stage) const {
    if (!sharded_ || !outline_.scatters_gradients) return 0;
    const auto alone = [&](double kernels, const Beside& messages, bool overlaps) {
      return messages.seconds - Exposed(kernels, messages, overlaps);
    };
    if (!stage.first)
      return alone(forward_, gather_, outline_.gather_overlaps) +
             alone(backward_, scatter_, outline_.scatter_overlaps);
    return alone(backward_, gather_embedding_, outline_.gather_overlaps) +
           alone(table_.embedding.forward.busy(), scatter_embedding_, outline_.scatter_overlaps);
  }

  Work WorkOf(const Stage& stage) const {
    const LayerTime& layer = table_.layer;
    Work work;
    work.forward = stage.layers * forward_;
    work.backward = stage.layers * backward_;
    work.host_forward = stage.layers * layer.forward.host;
    work.host_backward = stage.layers * layer.backward.host;
    if (stage.first) {
      const LayerTime& t = table_.embedding;
      work.forward += t.forward.busy();
      work.backward += t.backward.busy() + embedding_extra_;
      work.host_forward += t.forward.host;
      work.host_backward += t.backward.host;
    }
    if (stage.last) {
      const LayerTime& t = table_.head;
      work.head = t.forward.busy() + t.backward.busy() + head_extra_;
      work.host_head = t.forward.host + t.backward.host;
    }
    work.shards = ShardsOf(stage);
    return work;
  }

  // Device and host side by side, of one micro-batch of many. The device works on what the host has issued; the host
  // runs ahead of it, without end or up to its next wait: for a micro-batch to load and, between stages, for what the
  // neighbour sends.
  double Together(const Work& w) const {
    const double device = w.device() + w.shards;
    const double host = w.host_forward + w.host_head + w.host_backward;
    const double tail = w.backward + w.shards;
    if (!form_.host_waits) return std::max(device, host);
    if (outline_.stages > 1) {
      return std::max(w.forward, w.host_forward) +
             std::max({w.head + tail, w.host_head + tail, w.host_head + w.host_backward});
    }
    return std::max(
        {device, w.host_forward + w.head + tail, w.host_forward + w.host_head + tail, host});
  }

  // A host that never waits is ahead or behind once per step, not once per micro-batch.
  double HostOnce(const Work& w) const {
    if (form_.host_waits || outline_.stages > 1) return 0;
    const double device = w.device() + w.shards;
    const double host = w.host_forward + w.host_head + w.host_backward;
    const double tail = w.backward + w.shards;
    const double once = std::max(
        {device, host, w.host_forward + w.head + tail, w.host_forward + w.host_head + tail});
    return once - std::max(device, host);
  }

  StepTime Passes() {
    StepTime time;
    double sum = 0, busiest = -1;
    Work work;
    if (outline_.stages == 1) {
      stage_ = {table_.layers, true, true};
      work = WorkOf(stage_);
      sum = busiest = Together(work);
    } else {
      const double between = table_.layers - outline_.first_layers - outline_.last_layers;
      for (const Stage& stage : Stages()) {
        const bool middle = !stage.first && !stage.last;
        if (middle && outline_.stages == 2) continue;
        const Work candidate = WorkOf(stage);
        const double one = Together(candidate);
        sum += middle ? between * Together(WorkOf({1, false, false})) : one;
        if (one > busiest) busiest = one, stage_ = stage, work = candidate;
      }
    }
    AddKernels(&time);
    time.data = M_ * work.shards + ShardsAtEnds(stage_);
    time.data_hidden = M_ * MessagesOf(stage_) - time.data;
    time.host = M_ * (busiest - work.device() - work.shards) + HostOnce(work);
    if (outline_.stages > 1) AddPipeline(sum, busiest, &time);
    return time;
  }

  double MessagesOf(const Stage& stage) const {
    double all = stage.layers * (2 * gather_.seconds + scatter_.seconds);
    if (stage.first) all += gather_embedding_.seconds + scatter_embedding_.seconds;
    if (stage.last) all += 2 * gather_head_.seconds + scatter_head_.seconds;
    return all;
  }

  void AddKernels(StepTime* time) const {
    const auto add = [&](double count, const LayerTime& t, double extra) {
      time->compute += M_ * count * (t.forward.device + t.backward.device + extra);
      time->tensor += M_ * count * (t.forward.tensor + t.backward.tensor);
      time->tensor_hidden += M_ * count * (t.forward.tensor_hidden + t.backward.tensor_hidden);
    };
    const double adding = outline_.accumulates ? table_.layer.accumulate : 0.0;
    add(stage_.layers, table_.layer, extra_ + adding);
    if (stage_.first) add(1, table_.embedding, embedding_extra_);
    if (stage_.last) add(1, table_.head, head_extra_);
  }

  // The first micro-batch travels through all stages before the busiest one has work, and back behind its last work.
  // After that transfers show only where a stage runs out of micro-batches. With one forward, one backward at most p - i
  // of them are between stage i and the last one: so many take no less than one takes for its way there and back
  // (maximum cycle ratio of the marked graph). Interleaved chunks keep more under way: there a lap of all stages
  // counts, and what a single hop lets through. Of all that the busiest stage sees its own messages as transfers, the
  // others' as a bubble.
  void AddPipeline(double sum, double busiest, StepTime* time) const {
    const double p = outline_.stages, v = outline_.chunks;
    double share = 1.0 / v;
    if (outline_.fills_bubble)
      share = std::max(0.1, 1.0 - 2.0 * table_.layer.weight_gradient / (forward_ + backward_));
    const double inside = stages_.inside.Time(table_.boundary_bytes);
    const double between = stages_.between.Time(table_.boundary_bytes);
    const double way = stages_.hops_inside * inside + stages_.hops_between * between;
    const double slowest =
        stages_.hops_between > 0 ? between : inside;  // from the last stage to the first, too
    // The hop next to the busiest stage.
    const double hop = stages_.on_node > 1 ? inside : between;
    double own = 2.0 * hop + (v - 1) * (p + 2) * hop;
    double others = 2.0 * (way - hop) + (v - 1) * (2.0 * (way + slowest) - (p + 2) * hop);
    const auto add_rounds = [&](double seconds, double messages) {
      if (seconds <= 0 || messages <= 0) return;
      const double part = std::min(1.0, 2.0 * hop / messages);
      own += part * seconds;
      others += (1 - part) * seconds;
    };
    if (v > 1) {
      const double lap = sum * forward_ / (forward_ + backward_) + v * (way + slowest);
      const double period = std::max(lap / p, v * slowest);
      add_rounds((M_ - 1) * std::max(0.0, period - busiest), 2.0 * slowest);
    } else if (outline_.waits_for_round) {
      const auto [seconds, messages] = LongestRound(sum, busiest, inside, between);
      add_rounds(seconds, messages);
    } else {
      add_rounds((M_ - 1) * std::max(0.0, slowest - busiest), 2.0 * slowest);
    }
    time->pipeline = own;
    time->bubble = (sum - busiest) * share + std::max(0.0, others);
  }

  // Over the stages i from which a way back is longest for its micro-batches: the first one, and those before the first
  // and the last hop between nodes. Seconds of a step beyond what the busiest stage takes, messages of one way.
  std::pair<double, double> LongestRound(double sum, double busiest, double inside,
                                         double between) const {
    const double p = outline_.stages, on_node = stages_.on_node;
    const double mean = sum / p;
    std::pair<double, double> longest{0, 0};
    const auto consider = [&](double i) {
      if (i < 0 || i > p - 2) return;
      const double crossing = std::floor((p - 1) / on_node) - std::floor(i / on_node);
      const double messages = 2.0 * (crossing * between + (p - 1 - i - crossing) * inside);
      const double stages = i == 0 ? sum : (p - i) * mean + (busiest - mean);
      const double rounds = std::floor((M_ - 1) / (p - i));
      const double seconds = rounds * std::max(0.0, stages + messages - (p - i) * busiest);
      if (seconds > longest.first) longest = {seconds, messages};
    };
    consider(0);
    consider(on_node - 1);
    consider(std::floor((p - 1) / on_node) * on_node - 1);
    // A hop lets one message through at a time.
    const double slowest = stages_.hops_between > 0 ? between : inside;
    const double stream = (M_ - 1) * std::max(0.0, slowest - busiest);
    if (stream > longest.first) longest = {stream, 2.0 * slowest};
    return longest;
  }

  double FullestParameters() const {
    const double p = table_.layer_parameters;
    const double rows = table_.embedding_parameters;
    if (outline_.stages == 1) return table_.layers * p + rows + table_.head_parameters;
    const double first = outline_.first_layers * p + rows;
    const double last =
        outline_.last_layers * p + table_.head_parameters + (table_.tied ? rows : 0.0);
    return std::max({first, last, outline_.middle_layers * p});
  }

  // What is longer than the passes beside it. With interleaved chunks the passes of all but the last micro-batches of
  // a round are still to come when the first chunk has its gradients (or until the last one wants its weights); one
  // chunk in v has its own pass only.
  double Beyond(double message, double pass) const {
    const double chunks = outline_.chunks;
    const double round = chunks > 1 ? std::min<double>(M_, outline_.stages) : 1.0;
    const double beside = pass * (round * (chunks - 1.0) + 1.0) / chunks;
    return std::max({0.0, message - beside, (message - pass) / chunks});
  }

  double Reduction(double parameters) const {
    const double bytes = parameters * outline_.gradient_bytes;
    switch (outline_.reduction) {
      case PlanOutline::Reduction::kNone:
        return 0;
      case PlanOutline::Reduction::kAllReduce:
        return data_.all_reduce.InBuckets(bytes);
      case PlanOutline::Reduction::kReduceScatter:
        return data_.reduce_scatter.InBuckets(bytes) +
               (outline_.reduces_outer ? data_.outer_all_reduce.InBuckets(bytes / data_.dp) : 0.0);
    }
    return 0;
  }

  // Beside the last backward passes: the share that the framework waits for, the embedding's gradients, which are
  // ready at their very end, and what is longer.
  double ExposedReduction(double reduction, double share, double last, double pass) const {
    if (!outline_.reduction_overlaps) return reduction;
    last = std::min(reduction, last);
    return std::min(reduction,
                    std::max(last + share * (reduction - last), Beyond(reduction, pass)));
  }

  void AddUpdate(StepTime* time) const {
    const double parameters = FullestParameters();
    const double gradients = parameters * outline_.gradient_bytes;
    const AwaitedShares& awaited = outline_.whole_replicas ? form_.awaited_replicas : form_.awaited;
    const double reduction = Reduction(parameters);
    double exposed =
        ExposedReduction(reduction, awaited.reductions, Reduction(table_.embedding_parameters),
                         stage_.layers * backward_);
    double all = reduction;
    if (outline_.scatters_gradients && outline_.reduces_outer) {
      const double outer = data_.outer_all_reduce.InBuckets(gradients / data_.dp);
      exposed += outer;
      all += outer;
    }
    if (outline_.gathers_at_end && sharded_) {
      const double gather = data_.all_gather.InBuckets(parameters * outline_.weight_bytes);
      exposed += outline_.end_gather_overlaps
                     ? std::max(awaited.gathers * gather, Beyond(gather, stage_.layers * forward_))
                     : gather;
      all += gather;
    }
    time->data += exposed;
    time->data_hidden += all - exposed;
    if (outline_.ties_stages)
      time->pipeline += stages_.tied.InBuckets(table_.embedding_parameters / outline_.shards *
                                               outline_.gradient_bytes);
    // The norm of the gradient and the loss are known to all ranks before the update.
    time->data += (form_.clips ? 2 : 1) * form_.control;
    if (outline_.norm_messages) time->data += form_.control;
    const double kept = gradients / (outline_.scatters_gradients ? outline_.shards : 1.0);
    time->compute += form_.fill.Of(kept);
    time->optimizer =
        (form_.update * parameters + table_.matrix_update * stage_.layers) / outline_.shards;
    if (form_.clips) time->optimizer += form_.norm.Of(gradients / outline_.shards);
  }

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
  bool sharded_ = false;
  Stage stage_;  // the busiest
  // Of one layer: kernels and messages inside of it; kernels that sharding adds; gathers and scatters.
  double forward_ = 0, backward_ = 0, extra_ = 0, embedding_extra_ = 0, head_extra_ = 0;
  Beside gather_, gather_embedding_, gather_head_;
  Beside scatter_, scatter_embedding_, scatter_head_;
};

}  // namespace

StepTime ClosedForm::Evaluate(const LayerTable& table, const PlanOutline& outline,
                              const DataMessages& data, const StageMessages& stages,
                              Window window) const {
  Fold fold(*this, table, outline, data, stages,
            window == Window::kStep ? outline.micro_batches : 1.0);
  StepTime time;
  if (window == Window::kStep) {
    time = fold.WholeStep();
  } else if (window == Window::kMicrostep && !timer_waits && !host_waits) {
    time.host = time.total = fold.IssueTime();
  } else {
    time = fold.MicroStep();
  }
  time.low = time.total * residuals.low;
  time.high = time.total * residuals.high;
  return time;
}

}  // namespace orrery
