// SPDX-License-Identifier: Apache-2.0
// What stages wait for each other: by formulas, and pass by pass where those are not exact.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "model/engine/closed/fold.h"

namespace orrery::closed {
namespace {

constexpr double kMostPasses = 4096;  // of all stages: more of them would slow a search
constexpr double kFewRounds = 2;      // of micro-batches, one for each stage

}  // namespace

// The first micro-batch travels through all stages before the busiest one has work, and back behind its last work.
// After that transfers show only where a stage runs out of micro-batches. With one forward, one backward at most p - i
// of them are between stage i and the last one: so many take no less than one takes for its way there and back
// (maximum cycle ratio of the marked graph). Interleaved chunks keep more under way: there a lap of all stages
// counts, and what a single hop lets through. Of all that the busiest stage sees its own messages as transfers, the
// others' as a bubble.
double Fold::AddPipeline(const Turn& all, const Turn& longest, const Work& work, StepTime* time) {
  const double p = outline_.stages, v = outline_.chunks;
  const double sum = all.seconds, busiest = longest.seconds;
  double share = 1.0 / v;
  double slowest_chunks = busiest;
  if (v > 1 && !outline_.order.in_a_v) {
    slowest_chunks = std::max(busiest, SlowestChunks(longest));
    // A pipeline fills and drains through the first chunk.
    share = outline_.chunk_layers.entry / table_.layers;
  }
  if (outline_.order.in_a_v) {
    share = forward_ / (2 * (forward_ + backward_));  // on the way to the last stage alone
  } else if (outline_.order.fills_bubble)
    share = std::max(0.1, 1.0 - 2.0 * table_.layer.weight_gradient / (forward_ + backward_));
  const double inside = inside_, between = between_;
  const double way = WayOfStages();
  const double slowest = SlowestHop();  // from the last stage to the first, too
  // The hop next to the busiest stage.
  const double hop = stages_.on_node > 1        ? inside
                     : stages_.hops_between > 0 ? between
                                                : SlowestHop();
  const bool looped = v > 1 && !outline_.order.in_a_v;
  double own = 2.0 * hop, others = 2.0 * (way - hop);
  if (looped) {
    lap_forward_ = all.forward / v + way + slowest;
    lap_backward_ = (sum - all.forward) / v + way + slowest;
    own += (v - 1) * (p + 2) * hop;
    others += (v - 1) * (2.0 * (way + slowest) - (p + 2) * hop);
  }
  double rounds = 0;
  const auto add_rounds = [&](double seconds, double messages) {
    if (seconds <= 0 || messages <= 0) return;
    rounds += seconds;
    const double part = std::min(1.0, 2.0 * hop / messages);
    own += part * seconds;
    others += (1 - part) * seconds;
  };
  const Turn other{all.seconds - longest.seconds, 0, all.forward - longest.forward};  // of two
  const double handed = HandingOver(longest, other, work, inside, between);
  const double uneven = (M_ - 1) * (slowest_chunks - busiest);
  others += uneven;
  add_rounds((M_ - 1) * std::max(0.0, handed - slowest_chunks), 2.0 * hop);
  if (looped) {
    const double lap = std::max(all.forward, sum - all.forward) + v * (way + slowest);
    const double period = std::max(lap / p, v * slowest);
    add_rounds((M_ - 1) * std::max(0.0, period - std::max(slowest_chunks, handed)), 2.0 * slowest);
  } else if (outline_.waits_for_round) {
    const auto [seconds, messages] =
        LongestRound(sum, busiest, std::max(busiest, handed), inside, between);
    add_rounds(seconds, messages);
  } else if (outline_.order.fills_bubble && !outline_.order.in_a_v) {
    // Weight gradients are no part of a round.
    const double part = 1.0 - table_.layer.weight_gradient / (forward_ + backward_);
    const auto [seconds, messages] =
        LongestRound(part * sum, part * busiest, busiest, inside, between);
    add_rounds(seconds, messages);
  } else {
    add_rounds((M_ - 1) * std::max(0.0, slowest - busiest), 2.0 * slowest);
  }
  time->pipeline = own;
  // On its way through all stages the first micro-batch of each chunk waits for the casts of theirs, and on its way back
  // the last one for their reductions.
  others += (table_.layers - stage_.layers) * WeightCasts() +
            HeldBack(table_.layers - stage_.layers, (p - 1) * v);
  time->data += HeldBack(stage_.layers, v);
  // Forward passes of the stages before it, each in its first chunk.
  const double before = stage_.first ? 0.0 : stage_.last ? 1.0 : outline_.fullest / (p - 1);
  fill_ = before * (((all.forward - longest.forward) * share) + way);
  saved_ = SavedOnTheWay();
  time->bubble = std::max(0.0, (sum - busiest) * share - saved_) + std::max(0.0, others);
  return rounds + uneven;
}

void Fold::PriceHops() {
  for (const PreparedMessage& kind : stages_.narrow)
    narrow_.push_back(kind.Time(table_.boundary_bytes));
}

double Fold::Hop(int stage) const {
  if (!stages_.through.empty() && stages_.through[static_cast<std::size_t>(stage)] > 0)
    return narrow_[static_cast<std::size_t>(stages_.through[static_cast<std::size_t>(stage)] - 1)];
  const auto node = [&](int of) { return std::floor(of / stages_.on_node); };
  return node(stage) == node((stage + 1) % outline_.stages) ? inside_ : between_;
}

double Fold::HopInto(int virtual_stage) const {
  if (virtual_stage == 0) return 0;
  const auto stage_of = [&](int place) {
    return ChunkAt(outline_.order.in_a_v, outline_.stages, place).stage;
  };
  const int from = stage_of(virtual_stage - 1), to = stage_of(virtual_stage);
  if (from == to) return 0;
  return Hop(to == (from + 1) % outline_.stages ? from : to);
}

double Fold::WayOfStages() const {
  double way = stages_.hops_inside * inside_ + stages_.hops_between * between_;
  for (int stage = 0; stage + 1 < static_cast<int>(stages_.through.size()); ++stage) {
    if (stages_.through[static_cast<std::size_t>(stage)] > 0) way += Hop(stage);
  }
  return way;
}

double Fold::SlowestHop() const {
  double slowest = stages_.hops_between > 0 ? between_ : inside_;
  for (const double hop : narrow_) slowest = std::max(slowest, hop);
  return slowest;
}

// The stages of a chunk run side by side, and p micro-batches of one chunk follow each other: a stage that is slower in
// one chunk cannot make up for it in the next one. Seconds of a micro-batch in all chunks of the busiest stage, were it
// the slowest in each of them.
double Fold::SlowestChunks(const Turn& longest) const {
  const double embedding = table_.embedding.forward.busy() + table_.embedding.backward.busy();
  const double head = table_.head.forward.busy() + table_.head.backward.busy();
  const double layer =
      (longest.seconds - (stage_.first ? embedding : 0.0) - (stage_.last ? head : 0.0)) /
      std::max(1.0, stage_.layers);
  const ChunkLayers& layers = outline_.chunk_layers;
  // Where all chunks are alike the ends alone hold nobody up.
  if (layers.entry == outline_.stages * layers.first && layers.last == layers.first &&
      layers.exit_most == layers.first && layers.inner == (outline_.chunks - 2) * layers.first)
    return longest.seconds;
  return std::max(layers.first * layer + embedding, layers.entry_most * layer) +
         layers.inner * layer + std::max(layers.exit_most * layer, layers.last * layer + head);
}

// What a host that waits lets through: it posts the receive of a pass when the pass before it starts, so that a pass
// starts no earlier than a transfer after that. Seconds of the busiest stage per micro-batch.
// Of two stages the first waits for gradients alone, behind its own forward passes, and the last for tensors, behind both of its.
// `other`: of these, the stage that is not the busiest.
double Fold::HandingOver(const Turn& turn, const Turn& other, const Work& work, double inside,
                         double between) const {
  if (!form_.host_waits) return turn.seconds;
  const double v = outline_.chunks;
  const double forward = turn.forward / v, backward = (turn.seconds - turn.forward) / v;
  const double host_forward = work.forward.host / v;
  const double host_backward = (work.head.host + work.backward.host) / v;
  const double slowest = SlowestHop();
  // Transfers that follow a forward pass, from the stage behind, and a backward pass, from the stage before.
  const auto of = [&](double behind, double before) {
    return v *
           (std::max(forward, host_forward + behind) + std::max(backward, host_backward + before));
  };
  if (v == 1 && outline_.stages == 2) {
    const Turn& first = stage_.first ? turn : other;
    return std::max({turn.seconds, host_forward + host_backward + slowest,
                     std::max(first.forward, work.forward.host + slowest) +
                         std::max(first.seconds - first.forward, work.backward.host)});
  }
  const bool narrow = !narrow_.empty();
  if ((stages_.hops_between == 0 && !narrow) || stages_.on_node == 1) return of(slowest, slowest);
  if (narrow) return std::max(of(inside, slowest), of(slowest, inside));
  return std::max(of(inside, between), of(between, inside));
}

bool CanWalk(const PlanOutline& outline, double micro_batches) {
  const double walked = ScheduleClock::Walked(outline.order, outline.stages, micro_batches);
  return 2.0 * walked * outline.stages * outline.chunks <= kMostPasses;
}

// Formulas take the stages behind each other for alike, and their chunks; weight gradients for what fills any gap; and
// interleaved chunks for full of micro-batches, which they are not when few rounds go by.
bool Uneven(const PlanOutline& outline, double micro_batches) {
  const std::vector<int>& layout = *outline.layout;
  if (outline.order.fills_bubble || outline.slowdown != nullptr) return true;
  if (outline.chunks > 1 && micro_batches <= kFewRounds * outline.stages) return true;
  return std::ranges::adjacent_find(layout, std::not_equal_to()) != layout.end();
}

// The weights of a pass's first layer are gathered while it waits.
Fold::Early Fold::EarlyForward() const {
  if (!fetches_) return {};
  return {gather_.seconds + gather_.copies, IssueGathers(LayerGathers()), gather_.seconds};
}

// And its last layer is recomputed, where that is one of those that are.
Fold::Early Fold::EarlyBackward(double layers) const {
  Early early = EarlyForward();
  if (!table_.RecomputesAhead(outline_.recompute, layers)) return early;
  early.device += table_.layer.leading.busy() / table_.recomputed;
  early.host += table_.layer.leading.host / table_.recomputed;
  early.gathered = 0;
  return early;
}

// Seconds by which a tensor that is late finds the passes of the other stages of a chunk further on.
double Fold::SavedOnTheWay() const {
  const double scattered = scatters_ && !outline_.order.fills_bubble ? scatter_.All() : 0.0;
  const double behind = (outline_.stages - 1) * scattered;  // the gradients that are passed on
  if (!fetches_ && table_.recomputed <= 0) return behind;
  const double layers =
      (outline_.stages > 2 ? outline_.middle_layers : outline_.first_layers) / outline_.chunks;
  const auto saved = [&](const Early& early, double device, double host) {
    const double all = form_.host_waits ? std::max(device, host) : device;
    const double rest = form_.host_waits ? std::max(device - early.device, host - early.host)
                                         : device - early.device;
    return std::max(0.0, all - rest);
  };
  const double first = fetches_ ? gather_.seconds + gather_.copies : 0.0;
  return behind +
         (outline_.stages - 1) *
             (saved(EarlyForward(), layers * forward_ + first, layers * table_.layer.forward.host) +
              saved(EarlyBackward(layers), layers * (backward_ - put_off_) + first,
                    layers * table_.layer.backward.host));
}

PassSeconds Fold::PassOf(const Stage& chunk) const {
  Work work = WorkOf(chunk);
  if (!form_.host_waits) FollowHost(chunk, &work);  // formulas have no use for it there
  PassSeconds pass;
  pass.device = {work.forward.device(), work.head.device() + work.backward.device(),
                 work.weight.device()};
  pass.host = {work.forward.host, work.head.host + work.backward.host, work.weight.host};
  pass.behind = {work.forward.behind,
                 chunk.last ? std::max(work.head.behind + work.backward.device(),
                                       work.head.host + work.backward.behind)
                            : work.backward.behind,
                 0};
  pass.device[outline_.order.fills_bubble ? 2 : 1] += work.last.seconds;
  if (!outline_.order.fills_bubble) pass.after = work.last.seconds;
  const Early forward = EarlyForward();
  Early backward = EarlyBackward(chunk.layers);
  backward.device += work.backward.copies;  // which wait for no tensor
  pass.early = {std::min(forward.device, pass.device[0]),
                std::min(backward.device, pass.device[1])};
  pass.early_host = {std::min(forward.host, pass.host[0]), std::min(backward.host, pass.host[1])};
  pass.gathered = {std::min(forward.gathered, pass.early[0]),
                   work.backward.copies > 0 ? 0.0 : std::min(backward.gathered, pass.early[1])};
  pass.first = chunk.layers * WeightCasts();
  pass.last = HeldBack(chunk.layers, 1);
  return pass;
}

// As the event engine: the breakdown is of the stage whose kernels take longest in a step, the first of equals. Totals do not
// depend on it. True: another one than the busiest.
bool Fold::FindHeaviest(Work* work) {
  if (outline_.slowdown != nullptr) return false;
  const auto [first, last, middle] = Stages();
  double most = 0;
  for (const Stage& stage : {first, middle, last}) {
    StepTime time;
    AddKernels(stage, &time);
    const double kernels =
        time.compute + stage.layers * WeightCasts() +
        form_.update * (1 - outline_.states_on_host) * TrainedOn(stage) / outline_.shards;
    if (kernels <= most * (1 + kRounding)) continue;
    most = kernels;
    here_ = stage;
  }
  if (here_.first == stage_.first && here_.last == stage_.last && here_.layers == stage_.layers)
    return false;
  *work = WorkOf(here_);
  return true;
}

int Fold::Watched() const {
  if (here_.index >= 0) return here_.index;
  if (here_.first) return 0;
  const bool ends = here_.last || (outline_.order.in_a_v && here_.layers == outline_.last_layers &&
                                   outline_.last_layers > outline_.middle_layers);
  return ends ? outline_.stages - 1 : outline_.fullest;
}

void Fold::WatchHeaviest(Work* work, StepTime* time) {
  if (!FindHeaviest(work)) return;
  const double data = time->data, offload = time->offload;
  *time = {};
  tails_ = 0;
  AddKernels(here_, time);
  time->data_hidden = std::max(0.0, M_ * MessagesOf(here_) - data);
  if (outline_.moves_activations)
    time->offload_hidden = std::max(0.0, M_ * CopiesOf(here_) - offload);
}

// By formulas: what that stage spends less on its micro-batches, it waits for the busiest one.
void Fold::WatchInstead(Work work, StepTime* time) {
  const Turn busiest = Together(work);
  StepTime before, instead;
  BookTurns(stage_, work, busiest, &before);
  if (!FindHeaviest(&work)) return;
  const Turn turn = Together(work);
  BookTurns(here_, work, turn, &instead);
  for (double Breakdown::*const term :
       {&Breakdown::compute, &Breakdown::tensor, &Breakdown::context, &Breakdown::data,
        &Breakdown::host, &Breakdown::offload, &Breakdown::tensor_hidden,
        &Breakdown::context_hidden, &Breakdown::data_hidden, &Breakdown::offload_hidden})
    time->*term += instead.*term - before.*term;
  time->bubble += M_ * (busiest.seconds - turn.seconds);
}

// At most what a micro-batch of a stage saves where the first gather of a pass goes beside the pass before: beside its last
// layer, or all of it where that is one layer.
double Fold::AheadOf(const Stage& stage, const Work& work) const {
  const double ahead = GatherAhead(), chunks = outline_.chunks;
  if (ahead <= 0) return 0;
  const double ends = stage.first || stage.last ? (outline_.order.in_a_v ? 2 : 1) : 0;
  if (std::ranges::min(*outline_.layout) <= 1) {
    const double early = gather_.seconds + gather_.copies;
    return std::min(2 * chunks * ahead, std::max(0.0, work.device() - 2 * chunks * early));
  }
  return (chunks - std::min(chunks, ends)) *
             (std::min(ahead, forward_) + std::min(ahead, backward_ - put_off_)) +
         std::min(chunks, ends) * 2 * ahead;
}

// Blocks take slots in turn, as the lowering makes them: the forward passes of all chunks, then their backward passes.
void Fold::FindSlots(PipelineTimes* times) const {
  if (!fetches_ || outline_.gather_slots < 2) return;
  const int n = outline_.gather_slots;
  for (int stage = 0; stage < outline_.stages; ++stage) {
    int next = 0;
    for (int half = 0; half < 2; ++half)
      for (int c = 0; c < outline_.chunks; ++c) {
        const int place = VirtualStage(outline_.order.in_a_v, outline_.stages, stage, c);
        PassSeconds& pass = times->passes[static_cast<std::size_t>(place)];
        const int layers = (*outline_.layout)[static_cast<std::size_t>(place)];
        if (layers == 0) continue;
        const std::size_t kind = half;
        pass.first_slot[kind] = next % n;
        next += layers;
        pass.last_slot[kind] = (next - 1) % n;
        pass.gather[kind] = gather_.seconds + gather_.copies;
        pass.gather_lost = gather_.Lost();
        pass.layer[kind] = layers > 1 ? (half ? backward_ - put_off_ : forward_) : 0.0;
      }
  }
}

// Passes hold messages whose groups cross other uplinks on each stage.
void Fold::FindPasses(PipelineTimes* times) {
  const std::vector<int>& layout = *outline_.layout;
  times->passes.resize(layout.size());
  const DataMessages& all = *data_;
  const bool by_stage = !all.of_stage.empty() && (fetches_ || scatters_);
  const LayerPrices prices = by_stage ? this->prices() : LayerPrices{};
  for (std::size_t i = 0; i < layout.size(); ++i) {
    const bool first = i == 0, last = i + 1 == layout.size();
    const int stage = ChunkAt(outline_.order.in_a_v, outline_.stages, static_cast<int>(i)).stage;
    if (i > 1 && !last && layout[i] == layout[i - 1] && outline_.slowdown == nullptr && !by_stage &&
        all.of_stage.empty()) {
      times->passes[i] = times->passes[i - 1];
      continue;
    }
    const With messages(*this, stage);
    if (by_stage) static_cast<LayerPrices&>(*this) = {}, PriceLayer();
    times->passes[i] = PassOf({static_cast<double>(layout[i]), first, last, 1, SlowdownOf(stage),
                               -1, outline_.MoreRecomputed(outline_.recompute, layout[i])});
  }
  if (by_stage) static_cast<LayerPrices&>(*this) = prices;
}

// Pass by pass, see schedule_time.h.
bool Fold::WalkPasses(Work work, bool parts, StepTime* time, double most) {
  if (parts) WatchHeaviest(&work, time);
  parts_ = parts;
  PipelineTimes& times = form_.clock.asked();
  times.order = outline_.order;
  times.stages = outline_.stages;
  times.chunks = outline_.chunks;
  times.micro_batches = static_cast<int>(M_);
  FindPasses(&times);
  FindSlots(&times);
  times.host_waits = form_.host_waits;
  times.on_node = static_cast<int>(stages_.on_node);
  times.inside = inside_;
  times.between = between_;
  times.hops.clear();
  for (int stage = 0; !narrow_.empty() && stage < outline_.stages; ++stage)
    times.hops.push_back(Hop(stage));
  watched_ = times.watched = Watched();
  const double kernels = M_ * work.kernels() + here_.layers * WeightCasts();
  time->pipeline = time->bubble = time->host = time->offload = 0;
  time->tensor -= tails_;
  if (most < kForEver) {
    time->data = -kernels;
    const double left = most - time->Total() - LeastBehind();
    const auto seconds = form_.clock.Seconds(left);
    time->data = seconds.value_or(left) - kernels;
    return walked_ = seconds.has_value();
  }
  walked_ = true;
  if (!parts) {  // the same to the last bit whatever was asked before
    time->data = form_.clock.Seconds() - kernels;
    return true;
  }
  const ScheduleTime& walked = form_.clock.Time();
  time->pipeline = walked.pipeline;
  time->bubble = walked.bubble;
  time->host = walked.host;
  fill_ = walked.fill;
  const double messages = walked.seconds - walked.pipeline - walked.bubble - walked.host - kernels;
  const double copies = M_ * (work.copies() + work.fetched());
  time->offload = std::clamp(copies, 0.0, std::max(0.0, messages));
  const double tails = std::clamp(M_ * work.tails(), 0.0, std::max(0.0, messages - time->offload));
  time->tensor += tails;
  time->data = messages - time->offload - tails;
  return true;
}

// The busiest stage's device is never idle. Or: the last stage starts behind the first tensor that reaches it, and behind
// its last gradient the stages before have theirs to pass on. By then it has put off at most p gradients of weights, and
// the first stage at least one.
void Fold::BoundPasses(const Work& work, StepTime* time) const {
  const std::vector<int>& layout = *outline_.layout;
  const double p = outline_.stages;
  const double before =
      std::accumulate(layout.begin(), layout.begin() + (outline_.stages - 1), 0.0);
  const bool in_a_v = outline_.order.in_a_v;
  time->tensor -= tails_;
  const Work last = WorkOf(
      {outline_.last_layers, false, !in_a_v, double(outline_.chunks), 1, -1, outline_.last_more});
  double way = before * (forward_ + backward_ - put_off_) + table_.embedding.forward.busy();
  if (outline_.recomputed > 0) {
    double more = 0;
    for (int stage = 0; stage + 1 < outline_.stages; ++stage)
      more += outline_.MoreRecomputed(outline_.recompute, layout[static_cast<std::size_t>(stage)]);
    way += more * table_.recomputing.backward.busy();
  }
  if (outline_.order.fills_bubble) {
    way += layout.front() * put_off_ - std::min(p, M_) * (last.weight.device() + last.last.seconds);
  }
  way += table_.embedding.backward.busy() + 2 * WayOfStages();
  // Of which gathers are no part.
  if (table_.recomputed > 0 && table_.boundary_cut == 0)
    way -= (p - 1) * table_.layer.leading.busy() / table_.recomputed;
  if (in_a_v) way = before * forward_ + table_.embedding.forward.busy();
  const double ahead = AheadOf(stage_, work);
  const double more = AheadOf({outline_.last_layers, false, !in_a_v}, last) - ahead;
  time->data = M_ * (OnDevice(work).shards + work.copies() - ahead);
  time->offload = 0;
  time->host = time->pipeline = 0;
  time->bubble = std::max(0.0, way + M_ * (last.device() - work.device() - more));
}

// Over the stages i from which a way back is longest for its micro-batches: the first one, and those before the first
// and the last hop between nodes. Seconds of a step beyond what the busiest stage takes, messages of one way.
// `pass`: what a micro-batch takes of the busiest stage in a round.
std::pair<double, double> Fold::LongestRound(double sum, double pass, double busiest, double inside,
                                             double between) const {
  const double p = outline_.stages, on_node = stages_.on_node;
  const double mean = sum / p;
  std::pair<double, double> longest{0, 0};
  const auto consider = [&](double i) {
    if (i < 0 || i > p - 2) return;
    const double crossing = std::floor((p - 1) / on_node) - std::floor(i / on_node);
    double way = crossing * between + (p - 1 - i - crossing) * inside;
    if (!narrow_.empty()) {
      way = 0;
      for (int hop = static_cast<int>(i); hop + 1 < outline_.stages; ++hop) way += Hop(hop);
    }
    const double messages = 2.0 * way;
    const double stages = i == 0 ? sum : (p - i) * mean + (pass - mean);
    const double rounds = std::floor((M_ - 1) / (p - i));
    const double seconds = rounds * std::max(0.0, stages + messages - (p - i) * busiest);
    if (seconds > longest.first) longest = {seconds, messages};
  };
  consider(0);
  consider(on_node - 1);
  consider(std::floor((p - 1) / on_node) * on_node - 1);
  for (std::size_t hop = 0; hop < stages_.through.size(); ++hop) {
    if (stages_.through[hop] > 0) consider(static_cast<double>(hop));
  }
  // A hop lets one message through at a time.
  const double slowest = SlowestHop();
  const double stream = (M_ - 1) * std::max(0.0, slowest - busiest);
  if (stream > longest.first) longest = {stream, 2.0 * slowest};
  return longest;
}

}  // namespace orrery::closed
