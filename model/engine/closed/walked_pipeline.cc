// SPDX-License-Identifier: Apache-2.0
// What stages wait for each other pass by pass, where formulas are not exact.
#include <algorithm>
#include <numeric>

#include "model/engine/closed/fold.h"

namespace orrery::closed {

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

// What a pass gathers for its second layer; what it recomputes ahead of a gradient is beside it.
void Fold::SecondOf(const Early& forward, const Early& backward, PassSeconds* pass) const {
  const double all = gather_.seconds + gather_.copies, lost = gather_.Lost() / all;
  const double left = std::max(0.0, all - (backward.device - forward.device));
  const double shown = std::max(0.0, beside_first_.seconds - lost * (all - left));
  pass->second = {all, left, 0};
  pass->second_shown = {beside_forward_.seconds, left > 0 ? shown : 0.0, 0};
  pass->second_lost = lost;
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
  if (fetches_ && outline_.gather_overlaps && chunk.layers > 1) SecondOf(forward, backward, &pass);
  pass.early = {std::min(forward.device, pass.device[0]),
                std::min(backward.device, pass.device[1])};
  pass.early_host = {std::min(forward.host, pass.host[0]), std::min(backward.host, pass.host[1])};
  pass.gathered = {std::min(forward.gathered, pass.early[0]),
                   std::min(backward.gathered, pass.early[1])};
  pass.layers = LayersOf(chunk);
  pass.first = CastsOf(chunk);
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
        time.compute + CastsOf(stage) +
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
  if (ends) return outline_.stages - 1;
  // Of equals one whose layers are slower.
  const auto layers_of = [&](int stage) {
    int layers = 0;
    for (int chunk = 0; chunk < outline_.chunks; ++chunk)
      layers += (*outline_.layout)[static_cast<std::size_t>(
          VirtualStage(outline_.order.in_a_v, outline_.stages, stage, chunk))];
    return layers;
  };
  int watched = outline_.fullest;
  for (int stage = 1; StagesUnlike() && stage + 1 < outline_.stages; ++stage) {
    if (layers_of(stage) == layers_of(outline_.fullest) &&
        SlowestKind(stage) < SlowestKind(watched))
      watched = stage;
  }
  return watched;
}

void Fold::WatchHeaviest(Work* work, StepTime* time) {
  if (!FindHeaviest(work)) return;
  const double data = time->data, offload = time->offload;
  *time = {};
  tails_ = early_ = 0;
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

int Fold::KindOf(const GroupShape& shape) const {
  for (std::size_t kind = 0; kind < table_.faster.size(); ++kind)
    if (table_.faster[kind]->shape == shape) return static_cast<int>(kind) + 1;
  return 0;
}

int Fold::KindOf(std::size_t way, int stage) const {
  if (!StagesUnlike()) return 0;
  return KindOf(stages_.ways[way].layers[static_cast<std::size_t>(stage)]);
}

// Where replicas wait for each other in the passes, the slowest of a stage counts; else the slowest replica.
int Fold::KindOf(int stage) const {
  return fetches_ || scatters_ ? SlowestKind(stage) : KindOf(way_, stage);
}

int Fold::SlowestKind(int stage) const {
  int kind = KindOf(0, stage);
  for (std::size_t way = 1; way < stages_.ways.size(); ++way)
    kind = std::min(kind, KindOf(way, stage));
  return kind;
}

// On each stage.
bool Fold::NoSlower(std::size_t way, std::size_t other) const {
  const std::vector<int>&hops = stages_.ways[way].hops, &others = stages_.ways[other].hops;
  for (int stage = 0; stage < outline_.stages; ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    if (hops[at] == StageMessages::kBetween && others[at] == StageMessages::kInside) return false;
    if (KindOf(way, stage) < KindOf(other, stage)) return false;
  }
  return true;
}

// Those that no other is slower than.
std::vector<std::size_t> Fold::SlowWays() const {
  std::vector<std::size_t> slow;
  for (std::size_t way = 0; way < stages_.ways.size(); ++way) {
    bool hidden = false;
    for (std::size_t other = 0; other < stages_.ways.size() && !hidden; ++other)
      hidden = other != way && NoSlower(way, other) && (other < way || !NoSlower(other, way));
    if (!hidden) slow.push_back(way);
  }
  return slow;
}

// As the event engine: of the replicas one whose layers take longest on the stage of the breakdown; of these the first.
std::size_t Fold::WatchedWay() const {
  std::size_t watched = 0;
  for (std::size_t way = 1; way < stages_.ways.size(); ++way) {
    const int kind = KindOf(way, watched_), least = KindOf(watched, watched_);
    if (kind > least || (kind == least && stages_.ways[way].first > stages_.ways[watched].first))
      continue;
    watched = way;
  }
  return watched;
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
        all.of_stage.empty() && !StagesUnlike() &&
        outline_.MorePlain(i) == outline_.MorePlain(i - 1)) {
      times->passes[i] = times->passes[i - 1];
      continue;
    }
    const With messages(*this, stage);
    if (const int kind = KindOf(stage); kind > 0) {
      times->passes[i] =
          OfKind(kind, *data_)
              .PassOf({static_cast<double>(layout[i]), first, last, 1, SlowdownOf(stage), -1,
                       outline_.MoreRecomputed(outline_.recompute, layout[i]),
                       outline_.MorePlain(i)});
      continue;
    }
    if (by_stage) static_cast<LayerPrices&>(*this) = {}, PriceLayer();
    times->passes[i] =
        PassOf({static_cast<double>(layout[i]), first, last, 1, SlowdownOf(stage), -1,
                outline_.MoreRecomputed(outline_.recompute, layout[i]), outline_.MorePlain(i)});
  }
  if (by_stage) static_cast<LayerPrices&>(*this) = prices;
}

void Fold::AskOfWay(PipelineTimes* times) {
  FindPasses(times);
  FindSlots(times);
  times->hops.clear();
  times->own_hops.clear();
  for (int stage = 0; !stages_.hops.empty() && stage < outline_.stages; ++stage)
    times->hops.push_back(Hop(stage));
}

// With the parts of the step of the watched way, for one rank of it.
void Fold::AskOfWatched(PipelineTimes* times) {
  AskOfWay(times);
  if (stages_.ways.empty()) return;
  for (const int kind : stages_.ways[way_].own_hops) times->own_hops.push_back(HopOfKind(kind));
}

// Replicas that do not wait for each other in the passes: all wait for the slowest one behind them. False: its passes
// take more than `most`.
bool Fold::FindSlowestWay(PipelineTimes* times, double most) {
  way_ = 0;
  AskOfWay(times);
  if (stages_.ways.size() < 2 || fetches_ || scatters_) return true;
  double longest = -1;
  std::size_t slowest = 0;
  for (const std::size_t way : SlowWays()) {
    way_ = way;
    AskOfWay(times);
    const auto seconds =
        most < kForEver ? form_.clock.Seconds(most) : std::optional(form_.clock.Seconds());
    if (!seconds) return false;
    if (*seconds > longest) longest = *seconds, slowest = way_;
  }
  way_ = slowest;
  AskOfWay(times);
  return true;
}

// Pass by pass, see schedule_time.h.
bool Fold::WalkPasses(Work work, bool parts, StepTime* time, double most) {
  copies_apart_ = true;
  const int paces = Watched();
  if (parts) WatchHeaviest(&work, time);
  parts_ = parts;
  PipelineTimes& times = form_.clock.asked();
  times.order = outline_.order;
  times.stages = outline_.stages;
  times.chunks = outline_.chunks;
  times.micro_batches = static_cast<int>(M_);
  times.host_waits = form_.host_waits;
  times.gathers_received = table_.boundary_cut > 0;
  times.on_node = static_cast<int>(stages_.on_node);
  times.inside = inside_;
  times.between = between_;
  times.paces = paces;
  watched_ = times.watched = Watched();
  if (most >= kForEver) FindSlowestWay(&times, kForEver);
  const std::size_t slowest = way_;
  if (parts) way_ = watched_way_ = WatchedWay();
  if (parts) AskOfWatched(&times);
  if (const int kind = KindOf(watched_); parts && kind > 0) {
    const Fold own = OfKind(kind, data_->Of(watched_));
    work = own.WorkOf(here_);
    tails_ = early_ = 0;
    time->compute = time->tensor = time->context = time->tensor_hidden = time->context_hidden = 0;
    own.AddKernels(here_, time);
  }
  const double kernels = M_ * work.kernels() + CastsOf(here_);
  time->pipeline = time->bubble = time->host = time->offload = 0;
  time->tensor -= tails_;
  time->context += early_;
  if (most < kForEver) {
    time->data = -kernels;
    const double left = most - time->Total() - LeastBehind();
    const bool any = FindSlowestWay(&times, left);
    const auto seconds = any ? form_.clock.Seconds(left) : std::nullopt;
    time->data = seconds.value_or(left) - kernels;
    return walked_ = seconds.has_value();
  }
  walked_ = true;
  if (!parts) {  // the same to the last bit whatever was asked before
    time->data = form_.clock.Seconds() - kernels;
    return true;
  }
  ScheduleTime walked = form_.clock.Time();
  if (way_ != slowest) {
    way_ = slowest;
    AskOfWay(&times);
    const double longer = form_.clock.Time().seconds - walked.seconds;
    const double bubble = std::max(0.0, walked.bubble + longer);
    walked.pipeline += walked.bubble + longer - bubble;
    walked.seconds += longer, walked.bubble = bubble;
  }
  time->pipeline = walked.pipeline;
  time->bubble = walked.bubble;
  time->host = walked.host;
  BookEarly(Together(work), time);
  fill_ = walked.fill;
  const double messages =
      walked.seconds - walked.pipeline - walked.bubble - walked.host - walked.copies - kernels;
  time->offload = std::clamp(M_ * work.fetched(), 0.0, std::max(0.0, messages));
  const double tails = std::clamp(M_ * work.tails(), 0.0, std::max(0.0, messages - time->offload));
  time->tensor += tails;
  time->data = messages - time->offload - tails;
  time->offload += walked.copies;
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
  time->context += early_;
  const Work last = WorkOf({outline_.last_layers, false, !in_a_v, double(outline_.chunks), 1, -1,
                            outline_.last_more, outline_.last_plain, double(outline_.last_used)});
  double way = before * (forward_ + backward_ - put_off_) + table_.embedding.forward.busy();
  if (outline_.recomputed > 0) {
    double more = 0;
    for (int stage = 0; stage + 1 < outline_.stages; ++stage)
      more += outline_.MoreRecomputed(outline_.recompute, layout[static_cast<std::size_t>(stage)]);
    way += more * table_.recomputing.backward.busy();
  }
  double plain = 0;  // of the same layers
  for (std::size_t chunk = 0; chunk + 1 < static_cast<std::size_t>(outline_.stages); ++chunk)
    plain += outline_.MorePlain(chunk);
  const PassTime &forth = table_.plain_more.forward, &back = table_.plain_more.backward;
  const double put_off = outline_.order.fills_bubble ? table_.plain_more.weight_gradient : 0.0;
  way += plain * (forth.busy() + back.busy() - put_off);
  if (outline_.order.fills_bubble) {
    way += outline_.MorePlain(0) * put_off;
    way += layout.front() * put_off_ - std::min(p, M_) * (last.weight.device() + last.last.seconds);
  }
  way += table_.embedding.backward.busy() + 2 * WayOfStages();
  // A gather of the last stage may go by before its first tensor comes; on the first one it shows.
  if (fetches_ && layout.front() < 2) way -= beside_forward_.seconds;
  // Of which gathers are no part.
  if (table_.recomputed > 0 && table_.boundary_cut == 0)
    way -= (p - 1) * table_.layer.leading.busy() / table_.recomputed;
  if (in_a_v) way = before * forward_ + plain * forth.busy() + table_.embedding.forward.busy();
  const double ahead = AheadOf(stage_, work);
  const double more = AheadOf({outline_.last_layers, false, !in_a_v}, last) - ahead;
  time->data = M_ * (OnDevice(work).shards + work.copies() - ahead);
  time->offload = 0;
  time->host = time->pipeline = 0;
  time->bubble = std::max(0.0, way + M_ * (last.device() - work.device() - more));
}

}  // namespace orrery::closed
