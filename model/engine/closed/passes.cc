// SPDX-License-Identifier: Apache-2.0
// The passes of all micro-batches by formulas, and the step around them.
#include <algorithm>

#include "model/engine/closed/fold.h"

namespace orrery::closed {
namespace {

// Share of its work by which messages may hold the busiest stage up before the schedule is walked pass by pass.
constexpr double kHeldUp = 0.02;

}  // namespace

StepTime Fold::WholeStep(bool parts) {
  Work work;
  StepTime time = Passes(&work);
  if (walks_) {
    WalkPasses(work, parts, &time);
  } else if (parts && outline_.stages > 1) {
    WatchInstead(work, &time);
  }
  Finish(&time);
  return time;
}

bool Fold::WalkedPasses(double most, StepTime* passes) {
  Work work;
  *passes = Passes(&work);
  return !walks_ || WalkPasses(work, false, passes, most);
}

bool Fold::ByFormula(StepTime* passes) {
  Work work;
  *passes = Passes(&work);
  if (!walks_) return false;
  copies_apart_ = true;
  work.forward.copies = work.backward.copies = 0;
  const bool data_unlike = data_->fastest != nullptr && (fetches_ || scatters_);
  if (data_unlike || StagesUnlike()) {
    Fold least =
        Like(StagesUnlike() ? table_.Fastest() : table_, data_unlike ? *data_->fastest : *data_);
    *passes = least.Passes(&work);
    least.BoundPasses(work, passes);
  } else {
    BoundPasses(work, passes);
  }
  return true;
}

double Fold::Total(StepTime passes, const DataMessages& data) {
  data_ = &data;
  sharded_ = data.dp > 1;
  Finish(&passes);
  return passes.total;
}

double Fold::LeastOnce() {
  if (outline_.states_on_host > 0 || table_.matrix_update > 0 || form_.crowding > 1)
    return form_.fixed;
  walks_ = true;
  sharded_ = data_->dp > 1;
  stage_.layers = 1;
  forward_ = kForEver;  // hides what is not waited for
  here_.layers = 0;
  StepTime once;
  AddUpdate(&once);
  once.fixed = form_.fixed;
  return once.Total();
}

// At least what this step takes beyond its passes, if they are walked.
double Fold::LeastBehind() const {
  if (outline_.states_on_host > 0 || form_.crowding > 1) return form_.fixed;
  StepTime once;
  AddUpdate(&once);
  once.fixed = form_.fixed;
  return once.Total();
}

StepTime Fold::MicroStep() {
  Work work;
  StepTime time = Passes(&work);
  if (walks_) WalkPasses(work, true, &time);
  Crowd(&time);
  return time;
}

void Fold::Finish(StepTime* time) const {
  AddUpdate(time);
  time->fixed = form_.fixed;
  Crowd(time);
}

// Ranks that share cores: what one of them waits for in a bubble, others use.
void Fold::Crowd(StepTime* time) const {
  if (form_.crowding > 1) {
    const double kernels = time->compute + time->optimizer;
    time->compute += std::max(0.0, (form_.crowding - 1) * kernels - time->bubble);
  }
  time->total = time->Total();
}

// All micro-batches by formulas, and the work of the busiest stage.
StepTime Fold::Passes(Work* of_busiest) {
  StepTime time;
  Work& work = *of_busiest;
  Turn busiest{-1}, sum;
  phases_ = {};
  double issuing = 0;  // of a host that never waits
  const auto consider = [&](const Stage& stage, const Work& candidate, const Turn& turn) {
    if (turn.seconds > busiest.seconds) busiest = turn, stage_ = stage, work = candidate;
    if (stage.last) head_lead_ = std::max(0.0, candidate.head.device() - candidate.head.host);
    if (outline_.order.forward_first) AddPhases(turn, stage, candidate);
  };
  if (outline_.stages == 1) {
    const Stage all{table_.layers, true, true, 1, SlowdownOf(0), 0};
    const Work candidate = WorkOf(all);
    consider(all, candidate, Together(candidate));
    work_ = candidate;
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
    const double more = others > 0 ? -(outline_.first_more + outline_.last_more) / others : 0;
    const double plain = others > 0 ? -(outline_.first_plain + outline_.last_plain) / others : 0;
    const std::array<Stage, 3> stages = Stages();
    for (const Stage& stage : stages) {
      const bool middle =
          &stage == &stages.back();  // in a V the last stage has no end of the model
      if (middle && others == 0) continue;
      const Work candidate = WorkOf(stage);
      const Turn turn = Together(candidate);
      const bool unlike = mean != stage.layers || more != stage.recomputed || plain != stage.plain;
      const Turn part =
          middle && unlike
              ? Together(WorkOf({mean, false, false, stage.chunks, 1, -1, more, plain, stage.used}))
              : turn;
      sum.seconds += (middle ? others : 1.0) * part.seconds;
      sum.forward += (middle ? others : 1.0) * part.forward;
      if (!form_.host_waits) issuing = std::max(issuing, candidate.host());
      consider(stage, candidate, turn);
    }
  }
  here_ = stage_;
  BookTurns(stage_, work, busiest, &time);
  early_ = M_ * busiest.context_early;
  tails_ = TailsOf(busiest, work);
  if (outline_.stages > 1) {
    double held_up = AddPipeline(sum, busiest, work, &time);
    if (form_.host_waits && outline_.chunks > 1 && !outline_.order.in_a_v) {
      const double later = M_ * std::max(0.0, InChunks(stage_) - busiest.seconds);
      time.host += later;
      held_up += later;
    }
    const bool host_bound = issuing > busiest.seconds;
    walks_ = (held_up > kHeldUp * M_ * busiest.seconds || host_bound || Uneven(outline_, M_) ||
              outline_.moves_activations || !stages_.hops.empty()) &&
             CanWalk(outline_, M_);
  }
  return time;
}

// Of all micro-batches, seconds of tails among what a stage waits for.
double Fold::TailsOf(const Turn& turn, const Work& work) const {
  return std::clamp(M_ * work.tails(), 0.0, std::max(0.0, M_ * (turn.shards - work.fetched())));
}

// All micro-batches of a stage: `turn`, of one of them.
void Fold::BookTurns(const Stage& stage, const Work& work, const Turn& turn, StepTime* time) const {
  AddKernels(stage, time);
  const double fetched = M_ * work.fetched();
  time->data = std::max(0.0, M_ * turn.shards - fetched);
  const double tails = TailsOf(turn, work);
  time->data -= tails, time->tensor += tails;
  time->data_hidden = std::max(0.0, M_ * MessagesOf(stage) - time->data);
  const double left = M_ * (turn.seconds - work.kernels() - turn.shards);
  time->offload = std::clamp(M_ * work.copies(), 0.0, std::max(0.0, left));
  if (outline_.moves_activations)
    time->offload_hidden = std::max(0.0, M_ * CopiesOf(stage) - time->offload);
  time->host = left - time->offload + HostOnce(work);
  BookEarly(turn, time);
  const double shown = M_ * turn.shards - time->data - tails;
  time->offload += shown;
  time->offload_hidden += std::max(0.0, M_ * FetchesOf(stage) - shown);
}

// What has ended before a late host goes on, the device waits for the host.
void Fold::BookEarly(const Turn& turn, StepTime* time) const {
  const double early = M_ * turn.context_early;
  time->context -= early, time->context_hidden += early;
  time->host += early;
}

void Fold::AddKernels(const Stage& stage, StepTime* time) const {
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
  if (outline_.stages > 1 && table_.boundary_cut > 0) {
    const double before = stage.chunks - (stage.first ? 1 : 0);
    const double behind = stage.chunks - (stage.last ? 1 : 0);
    const PassTime &forth = table_.boundary_forward, &back = table_.boundary_backward;
    time->compute += M_ * (before + behind) * stage.slowdown * table_.boundary_cut;
    time->tensor += M_ * (before * forth.tensor + behind * back.tensor);
    time->tensor_hidden += M_ * (before * forth.tensor_hidden + behind * back.tensor_hidden);
  }
  if (stage.recomputed != 0)
    add(stage.recomputed, table_.recomputing,
        fetches_ ? table_.recomputing.gathered_backward.device : 0.0);
  if (stage.plain != 0)
    add(stage.plain, table_.plain_more,
        fetches_
            ? table_.plain_more.gathered_forward.device + table_.plain_more.gathered_backward.device
            : 0.0);
  if (stage.first) add(1, table_.embedding, embedding_extra_);
  if (stage.last) add(1, table_.head, head_extra_);
}

}  // namespace orrery::closed
