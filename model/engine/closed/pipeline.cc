// SPDX-License-Identifier: Apache-2.0
// What stages wait for each other, by formulas.
#include <algorithm>
#include <cmath>

#include "model/engine/closed/fold.h"

namespace orrery::closed {
namespace {

constexpr double kMostPasses = 6144;  // of all stages: more of them would slow a search
constexpr double kFewRounds = 2;      // of micro-batches, one for each stage

}  // namespace

// The first micro-batch travels through all stages before the busiest one has work, and back behind its last work.
// After that transfers show only where a stage runs out of micro-batches. With one forward, one backward at most p - i
// of them are between stage i and the last one: so many take no less than one takes for its way there and back
// (maximum cycle ratio of the marked graph). Interleaved chunks keep more under way: there a lap of all stages
// counts, and what a single hop lets through. Of all that the busiest stage sees its own messages as transfers, the
// others' as a bubble. Where all forward passes run first, the slowest stage or hop of either kind of passes holds it up.
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
  const bool in_phases = outline_.order.forward_first;
  if (in_phases) slowest_chunks = std::max(busiest, phases_.InPhases(0));
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
  const double handed =
      in_phases ? phases_.InPhases(slowest) : HandingOver(longest, other, work, inside, between);
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
  } else if (!in_phases) {
    add_rounds((M_ - 1) * std::max(0.0, slowest - busiest), 2.0 * slowest);
  }
  time->pipeline = own;
  // On its way through all stages the first micro-batch of each chunk waits for the casts of theirs, and on its way back
  // the last one for their reductions.
  others += table_.layers * WeightCasts() - CastsOf(stage_) +
            HeldBack(table_.layers - stage_.layers, (p - 1) * v);
  time->data += HeldBack(stage_.layers, v);
  // Forward passes of the stages before it, each in its first chunk.
  const double before = stage_.first ? 0.0 : stage_.last ? 1.0 : outline_.fullest / (p - 1);
  fill_ = before * (((all.forward - longest.forward) * share) + way);
  saved_ = SavedOnTheWay();
  time->bubble = std::max(0.0, (sum - busiest) * share - saved_) + std::max(0.0, others);
  return rounds + uneven;
}

// A host that waits posts the receive of a pass when it has issued the one before: of a tensor all stages but the first, of a
// gradient all but the last.
void Fold::AddPhases(const Turn& turn, const Stage& stage, const Work& work) {
  phases_.forward = std::max(phases_.forward, turn.forward);
  phases_.backward = std::max(phases_.backward, turn.seconds - turn.forward);
  if (!form_.host_waits) return;
  if (!stage.first) phases_.host_forward = std::max(phases_.host_forward, work.forward.host);
  if (!stage.last)
    phases_.host_backward = std::max(phases_.host_backward, work.head.host + work.backward.host);
}

void Fold::PriceHops() {
  for (const PreparedMessage& kind : stages_.narrow)
    narrow_.push_back(kind.Time(table_.boundary_bytes));
}

double Fold::HopOfKind(int kind) const {
  if (kind >= StageMessages::kNarrow)
    return narrow_[static_cast<std::size_t>(kind - StageMessages::kNarrow)];
  return kind == StageMessages::kInside ? inside_ : between_;
}

double Fold::Hop(int stage) const {
  if (const std::vector<int>& hops = Hops(); !hops.empty())
    return HopOfKind(hops[static_cast<std::size_t>(stage)]);
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
  for (int stage = 0; stage + 1 < static_cast<int>(stages_.hops.size()); ++stage) {
    if (stages_.hops[static_cast<std::size_t>(stage)] >= StageMessages::kNarrow) way += Hop(stage);
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
  const bool unlike = !stages_.hops.empty();
  if ((stages_.hops_between == 0 && !unlike) || (stages_.on_node == 1 && stages_.hops_inside == 0))
    return of(slowest, slowest);
  if (unlike) return std::max(of(inside, slowest), of(slowest, inside));
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
  if (outline.order.fills_bubble || outline.slowdown != nullptr || outline.plain) return true;
  if (outline.chunks > 1 && micro_batches <= kFewRounds * outline.stages) return true;
  return std::ranges::adjacent_find(layout, std::not_equal_to()) != layout.end();
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
    if (!stages_.hops.empty()) {
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
  for (std::size_t hop = 0; hop < stages_.hops.size(); ++hop) {
    if (stages_.hops[hop] > StageMessages::kInside) consider(static_cast<double>(hop));
  }
  // A hop lets one message through at a time.
  const double slowest = SlowestHop();
  const double stream = (M_ - 1) * std::max(0.0, slowest - busiest);
  if (stream > longest.first) longest = {stream, 2.0 * slowest};
  return longest;
}

}  // namespace orrery::closed
