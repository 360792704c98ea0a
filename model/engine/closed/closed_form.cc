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

// What messages add to kernels: seconds, and those of them that are left where the host is later than all of it.
struct Exposed {
  double seconds = 0, beside_host = 0;

  void Add(double count, const Exposed& other) {
    seconds += count * other.seconds;
    beside_host += count * other.beside_host;
  }
};

// Kernels wait for all of it.
Exposed Alone(const Beside& messages) { return {messages.seconds, messages.seconds}; }

// Kernels beside messages that slow them down, see the header.
Exposed Cover(double kernels, const Beside& messages, bool overlaps) {
  if (!overlaps) return Alone(messages);
  const double through = messages.seconds - messages.lost;  // kernels that run meanwhile
  if (through <= kernels) return {messages.lost, messages.lost};
  return {messages.seconds - kernels, through > 0 ? kernels / through * messages.lost : 0.0};
}

// What is folded over: one stage with its share of the layers.
struct Stage {
  double layers = 0;
  bool first = true, last = true;
};

// Share of its work by which messages may hold the busiest stage up before the schedule is walked pass by pass.
constexpr double kHeldUp = 0.005;

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
      most = std::max(most, work.host());
    }
    return most;
  }

 private:
  // Kernels and messages inside of layers, gathers and scatters that they wait for, and what the host issues.
  struct Pass {
    double kernels = 0, host = 0;
    Exposed shards;
    double device() const { return kernels + shards.seconds; }
  };
  // One micro-batch on one stage: forward, head and backward passes in this order, then the last scatters.
  struct Work {
    Pass forward, head, backward;
    Exposed last;
    double kernels() const { return forward.kernels + head.kernels + backward.kernels; }
    double host() const { return forward.host + head.host + backward.host; }
    double device() const {
      return forward.device() + head.device() + backward.device() + last.seconds;
    }
  };
  // Seconds that a stage spends on a micro-batch, and those of them that are gathers and scatters.
  struct Turn {
    double seconds = 0, shards = 0;
    double forward = 0;  // seconds up to the head
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
    const double transform = HeadUnit() - HeadTable() - table_.final_norm_parameters;
    const double rest = table_.embedding_parameters - table_.table_parameters;
    if (outline_.gathers_weights) {
      gather_ = Gather(table_.layer_parameters);
      gather_table_ = Gather(table_.table_parameters);
      gather_rest_ = Gather(rest);
      gather_ends_ = Gather(table_.final_norm_parameters) + Gather(transform);
      gather_head_ = gather_ends_ + Gather(HeadTable());
    }
    if (outline_.scatters_gradients) {
      scatter_ = Scatter(table_.layer_parameters);
      scatter_embedding_ = Scatter(table_.table_parameters) + Scatter(rest);
      scatter_head_ =
          Scatter(table_.final_norm_parameters) + Scatter(transform) + Scatter(HeadTable());
    }
  }

  // The head's table, which is the embedding's where they are tied; what else it reads are units of their own.
  double HeadTable() const {
    return table_.tied ? table_.table_parameters
                       : std::min(table_.table_parameters, table_.head_parameters);
  }
  double HeadUnit() const {
    return table_.head_parameters + (table_.tied ? table_.table_parameters : 0.0);
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

  // A pass of a chunk gathers its first unit when the pass before has ended, and its second one right behind; from
  // then on each layer runs beside the gather of the next one. Gradients are scattered beside the layer behind
  // their own; a pass ends when its last sum has been added up. So each chunk shows its first gather and its
  // last scatter, in every micro-batch.
  void ExposeShards(const Stage& stage, Work* work) const {
    if (!sharded_ || !outline_.scatters_gradients) return;
    const bool gathers = outline_.gather_overlaps, scatters = outline_.scatter_overlaps;
    const auto beside = [&](double kernels, const Beside& gather, const Beside& scatter) {
      if (gathers && scatters) return Cover(kernels, gather + scatter, true);
      Exposed exposed = Cover(kernels, gather, gathers);
      exposed.Add(1, Cover(kernels, scatter, scatters));
      return exposed;
    };
    const double v = outline_.chunks, layers = std::max(stage.layers / v, 1.0);
    const double first = stage.first ? 1 : 0, last = stage.last ? 1 : 0;
    Exposed& forward = work->forward.shards;
    forward.Add(v - first, Alone(gather_));
    forward.Add(v * (layers - 1), beside(forward_, gather_, {}));
    if (stage.first) {
      forward.Add(1, Alone(gather_table_));
      forward.Add(1, beside(table_.embedding.forward.busy(), gather_rest_ + gather_, {}));
    }
    Exposed& backward = work->backward.shards;
    const double ends = std::min(layers - 1, 1.0), middle = std::max(layers - 2, 0.0);
    backward.Add(v - last, Alone(gather_));
    backward.Add(v * ends, beside(backward_, gather_, {}));
    backward.Add(v * middle, beside(backward_, gather_, scatter_));
    backward.Add(v * ends, beside(backward_, {}, scatter_));
    if (stage.last) {
      Exposed& head = work->head.shards;
      head.Add(1, Alone(gather_head_));
      head.Add(1, beside(work->head.kernels, gather_ends_ + gather_, {}));
      head.Add(1, Alone(scatter_head_));
    }
    work->last.Add(v - first, Alone(scatter_));
    if (!stage.first) return;
    work->last.Add(1, beside(table_.embedding.backward.busy() + embedding_extra_, {}, scatter_));
    work->last.Add(1, Alone(scatter_embedding_));
  }

  Work WorkOf(const Stage& stage) const {
    const LayerTime& layer = table_.layer;
    Work work;
    work.forward.kernels = stage.layers * forward_;
    work.backward.kernels = stage.layers * backward_;
    work.forward.host = stage.layers * layer.forward.host;
    work.backward.host = stage.layers * layer.backward.host;
    if (stage.first) {
      const LayerTime& t = table_.embedding;
      work.forward.kernels += t.forward.busy();
      work.backward.kernels += t.backward.busy() + embedding_extra_;
      work.forward.host += t.forward.host;
      work.backward.host += t.backward.host;
    }
    if (stage.last) {
      const LayerTime& t = table_.head;
      work.head.kernels = t.forward.busy() + t.backward.busy() + head_extra_;
      work.head.host = t.forward.host + t.backward.host;
    }
    ExposeShards(stage, &work);
    return work;
  }

  // The device works on what the host has issued: it ends no earlier than if the host issues the first passes and the
  // device then runs the others, whatever their number.
  static Turn Later(const Turn& a, const Turn& b) { return b.seconds > a.seconds ? b : a; }
  static Turn OnDevice(const Work& w) {
    return {w.device(), w.forward.shards.seconds + w.head.shards.seconds +
                            w.backward.shards.seconds + w.last.seconds};
  }
  static Turn OnHost(const Work& w) {
    return {w.host(), w.forward.shards.beside_host + w.head.shards.beside_host +
                          w.backward.shards.beside_host + w.last.beside_host};
  }
  static Turn BehindHost(const Work& w) {
    Turn turn = OnDevice(w), longest = turn;
    for (const Pass* pass : {&w.forward, &w.head, &w.backward}) {
      turn.seconds += pass->host - pass->device();
      turn.shards += pass->shards.beside_host - pass->shards.seconds;
      longest = Later(longest, turn);
    }
    return longest;
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

  StepTime Passes() {
    StepTime time;
    Work work;
    Turn busiest{-1}, sum;
    double issuing = 0;  // of a host that never waits
    const auto consider = [&](const Stage& stage, const Work& candidate, const Turn& turn) {
      if (turn.seconds > busiest.seconds) busiest = turn, stage_ = stage, work = candidate;
    };
    if (outline_.stages == 1) {
      const Stage all{table_.layers, true, true};
      const Work candidate = WorkOf(all);
      consider(all, candidate, Together(candidate));
    } else {
      const double others = outline_.stages - 2;
      const double mean =
          others > 0 ? (table_.layers - outline_.first_layers - outline_.last_layers) / others : 0;
      for (const Stage& stage : Stages()) {
        const bool middle = !stage.first && !stage.last;
        if (middle && others == 0) continue;
        const Work candidate = WorkOf(stage);
        const Turn turn = Together(candidate);
        const Turn part =
            middle && mean != stage.layers ? Together(WorkOf({mean, false, false})) : turn;
        sum.seconds += (middle ? others : 1.0) * part.seconds;
        sum.forward += (middle ? others : 1.0) * part.forward;
        if (!form_.host_waits) issuing = std::max(issuing, candidate.host());
        consider(stage, candidate, turn);
      }
    }
    AddKernels(&time);
    time.data = M_ * busiest.shards;
    time.data_hidden = std::max(0.0, M_ * MessagesOf(stage_) - time.data);
    time.host = M_ * (busiest.seconds - work.kernels() - busiest.shards) + HostOnce(work);
    if (outline_.stages > 1) {
      const double held_up = AddPipeline(sum, busiest, work, &time);
      const bool host_bound = issuing > busiest.seconds;
      if ((held_up > kHeldUp * M_ * busiest.seconds || host_bound) && CanWalk())
        WalkPasses(work, &time);
    }
    return time;
  }

  double MessagesOf(const Stage& stage) const {
    double all = stage.layers * (2 * gather_.seconds + scatter_.seconds);
    if (stage.first)
      all += gather_table_.seconds + gather_rest_.seconds + scatter_embedding_.seconds;
    if (stage.last) all += gather_head_.seconds + gather_ends_.seconds + scatter_head_.seconds;
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
  double AddPipeline(const Turn& all, const Turn& longest, const Work& work, StepTime* time) const {
    const double p = outline_.stages, v = outline_.chunks;
    const double sum = all.seconds, busiest = longest.seconds;
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
    double rounds = 0;
    const auto add_rounds = [&](double seconds, double messages) {
      if (seconds <= 0 || messages <= 0) return;
      rounds += seconds;
      const double part = std::min(1.0, 2.0 * hop / messages);
      own += part * seconds;
      others += (1 - part) * seconds;
    };
    const double handed = HandingOver(longest, work, inside, between);
    add_rounds((M_ - 1) * std::max(0.0, handed - busiest), 2.0 * hop);
    if (v > 1) {
      const double lap = std::max(all.forward, sum - all.forward) + v * (way + slowest);
      const double period = std::max(lap / p, v * slowest);
      add_rounds((M_ - 1) * std::max(0.0, period - std::max(busiest, handed)), 2.0 * slowest);
    } else if (outline_.waits_for_round) {
      const auto [seconds, messages] =
          LongestRound(sum, std::max(busiest, handed), inside, between);
      add_rounds(seconds, messages);
    } else {
      add_rounds((M_ - 1) * std::max(0.0, slowest - busiest), 2.0 * slowest);
    }
    time->pipeline = own;
    time->bubble = (sum - busiest) * share + std::max(0.0, others);
    return rounds;
  }

  // What a host that waits lets through: it posts the receive of a pass when the pass before it starts, so that a pass
  // starts no earlier than a transfer after that. Seconds of the busiest stage per micro-batch.
  double HandingOver(const Turn& turn, const Work& work, double inside, double between) const {
    if (!form_.host_waits) return turn.seconds;
    const double v = outline_.chunks;
    const double forward = turn.forward / v, backward = (turn.seconds - turn.forward) / v;
    const double host_forward = work.forward.host / v;
    const double host_backward = (work.head.host + work.backward.host) / v;
    const double slowest = stages_.hops_between > 0 ? between : inside;
    // Transfers that follow a forward pass, from the stage behind, and a backward pass, from the stage before.
    const auto of = [&](double behind, double before) {
      return v * (std::max(forward, host_forward + behind) +
                  std::max(backward, host_backward + before));
    };
    if (v == 1 && outline_.stages == 2)
      return std::max(of(slowest, 0), host_forward + host_backward + slowest);
    if (stages_.hops_between == 0 || stages_.on_node == 1) return of(slowest, slowest);
    return std::max(of(inside, between), of(between, inside));
  }

  // A step of GPipe has no steady state of which a round could stand for the others.
  bool CanWalk() const {
    return outline_.schedule != PipelineSchedule::kGpipe || M_ <= 4 * outline_.stages;
  }

  PassSeconds PassesOf(const Stage& stage) const {
    const Work work = WorkOf(stage);
    const double v = outline_.chunks;
    PassSeconds passes;
    const LayerTime& embedding = table_.embedding;
    const LayerTime& head = table_.head;
    const auto less = [](double all, bool here, double part) { return all - (here ? part : 0.0); };
    passes.device = {less(work.forward.device(), stage.first, embedding.forward.busy()) / v,
                     less(work.backward.device() + work.last.seconds + work.head.shards.seconds,
                          stage.first, embedding.backward.busy() + embedding_extra_) /
                         v,
                     0};
    passes.host = {less(work.forward.host, stage.first, embedding.forward.host) / v,
                   less(work.backward.host, stage.first, embedding.backward.host) / v, 0};
    if (outline_.fills_bubble) {
      passes.device[2] = stage.layers * table_.layer.weight_gradient;
      passes.device[1] -= passes.device[2];
    }
    return passes;
  }

  // Pass by pass, see schedule_time.h.
  void WalkPasses(const Work& work, StepTime* time) const {
    PipelineTimes times;
    times.schedule = outline_.schedule;
    times.stages = outline_.stages;
    times.chunks = outline_.chunks;
    times.micro_batches = static_cast<int>(M_);
    const std::array<Stage, 3> stages = Stages();
    times.first = PassesOf(stages[0]);
    times.last = PassesOf(stages[1]);
    if (outline_.stages > 2) times.middle = PassesOf(stages[2]);
    const LayerTime& embedding = table_.embedding;
    const std::size_t behind = outline_.fills_bubble ? 2 : 1;
    times.embedding.device[0] = embedding.forward.busy();
    times.embedding.device[behind] = embedding.backward.busy() + embedding_extra_;
    times.embedding.host[0] = embedding.forward.host;
    times.embedding.host[behind] = embedding.backward.host;
    times.head.device[1] = table_.head.forward.busy() + table_.head.backward.busy() + head_extra_;
    times.head.host[1] = table_.head.forward.host + table_.head.backward.host;
    times.host_waits = form_.host_waits;
    times.on_node = static_cast<int>(stages_.on_node);
    times.inside = stages_.inside.Time(table_.boundary_bytes);
    times.between = stages_.between.Time(table_.boundary_bytes);
    times.watched = stage_.first ? 0 : stage_.last ? outline_.stages - 1 : 1;
    const ScheduleTime& walked = form_.clock.Time(times);
    time->pipeline = walked.pipeline;
    time->bubble = walked.bubble;
    time->host = walked.host;
    time->data =
        walked.seconds - walked.pipeline - walked.bubble - walked.host - M_ * work.kernels();
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

  // Kernels of a layer's pass beside which messages of a step travel. Where tensor-parallel ranks are on several nodes,
  // the messages inside of layers hold the same NICs, and nothing else gets through meanwhile.
  double BesideLayer(const PassTime& pass, double busy) const {
    return table_.tensor_on_nics ? std::max(0.0, busy - pass.tensor - pass.tensor_hidden) : busy;
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
                         stage_.layers * BesideLayer(table_.layer.backward, backward_));
    double all = reduction;
    if (outline_.scatters_gradients && outline_.reduces_outer) {
      const double outer = data_.outer_all_reduce.InBuckets(gradients / data_.dp);
      exposed += outer;
      all += outer;
    }
    if (outline_.gathers_at_end && sharded_) {
      const double gather = data_.all_gather.InBuckets(parameters * outline_.weight_bytes);
      exposed += outline_.end_gather_overlaps
                     ? std::max(awaited.gathers * gather,
                                Beyond(gather,
                                       stage_.layers * BesideLayer(table_.layer.forward, forward_)))
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
    time->optimizer = form_.update * parameters / outline_.shards;
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
  Beside gather_, gather_table_, gather_rest_;
  Beside gather_head_, gather_ends_;  // of the head: before it, beside it
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
