// SPDX-License-Identifier: Apache-2.0
// What the watched stage of a walk waits for, and the rounds of micro-batches that are not walked.
#include <algorithm>
#include <utility>

#include "model/engine/closed/schedule_time.h"

namespace orrery {

// What the watched stage receives and sends.
void ScheduleClock::FindMessages() {
  under_way_.clear();
  const auto watched = [&](int pass) { return graph_->passes[pass].stage == times_.watched; };
  for (int k = 1; k < static_cast<int>(graph_->passes.size()); ++k) {
    const PassGraph::Pass& pass = graph_->passes[k];
    if (!pass.receives || (!watched(k) && !watched(pass.sender)) || arrived_[k] <= 0) continue;
    const double sent = arrived_[k] - hops_[pass.hop];
    under_way_.push_back({sent, sent + own_hops_[pass.hop]});
  }
  std::ranges::sort(under_way_, {}, &Interval::from);
}

// While the stage waits, a message of its own that is under way counts as what it waits for.
// `unsent`: but for what waits for a message that is.
ScheduleTime ScheduleClock::Between(double from, double to, bool unsent) const {
  ScheduleTime time;
  time.seconds = to - from;
  if (!parts_) return time;
  std::size_t first = 0;
  for (const Gap& gap : gaps_) {
    const double begin = std::max(gap.from, from);
    const double end = std::min(unsent ? gap.sent : gap.to, to);
    if (end <= begin) continue;
    if (gap.host || gap.copies) {
      (gap.host ? time.host : time.copies) += end - begin;
      continue;
    }
    double now = begin;
    while (first < under_way_.size() && under_way_[first].to <= begin) ++first;
    for (std::size_t i = first; i < under_way_.size() && under_way_[i].from < end; ++i) {
      const double open = std::max(now, under_way_[i].from),
                   close = std::min(end, under_way_[i].to);
      if (close <= open) continue;
      time.pipeline += close - open;
      now = close;
    }
    time.bubble += end - begin;
  }
  time.bubble -= time.pipeline;
  return time;
}

// Seconds that the device of a stage works for a micro-batch.
double ScheduleClock::BusyOf(int stage) const {
  double busy = 0;
  for (const std::vector<int>& of_kind : graph_->of_stage[static_cast<std::size_t>(stage)]) {
    for (const int pass : of_kind) busy += works_[graph_->passes[pass].work].device;
  }
  return busy / batches();
}

ScheduleClock::Interval ScheduleClock::LastPass(int virtual_stage, int kind) const {
  const Interval& pass = latest_[static_cast<std::size_t>(3 * virtual_stage + kind)];
  return {pass.from - end_, pass.to - end_};
}

ScheduleTime ScheduleClock::Account() const {
  ScheduleTime all = Between(0, end_);
  if (parts_ && !gaps_.empty() && gaps_.front().from == 0 && !gaps_.front().host)
    all.fill = gaps_.front().to;
  const int p = times_.stages, round = p * times_.chunks;
  const double more = times_.micro_batches - batches();
  if (more <= 0) return all;
  // Of the backward passes that alternate with forward passes, the last round.
  const auto round_of = [&](int stage) {
    const std::vector<int>& passes = graph_->of_stage[stage][PassCall::kBackward];
    const int last = std::max(round, static_cast<int>(passes.size()) - 1 - graph_->ahead[stage]);
    return std::pair(done_[passes[last - round]], done_[passes[last]]);
  };
  const auto [from, to] = round_of(times_.watched);
  ScheduleTime one = Between(from, to);
  if (times_.paces != times_.watched) {
    const auto [begin, end] = round_of(times_.paces);
    const double longer = end - begin - one.seconds;
    const double bubble = std::max(0.0, one.bubble + longer);
    one.pipeline += one.bubble + longer - bubble;
    one.bubble = bubble;
    one.seconds += longer;
  }
  if (HalfStands()) {
    const double rounds = std::ceil(batches() / 2) / p;
    for (double ScheduleTime::*const part :
         {&ScheduleTime::seconds, &ScheduleTime::pipeline, &ScheduleTime::bubble,
          &ScheduleTime::host, &ScheduleTime::copies})
      one.*part = std::max(0.0, all.*part - before_.*part) / rounds;
  }
  if (times_.order.fills_bubble || HalfStands()) {
    // Weight gradients that are put off in this round are not put off for ever: a round takes no less than the busiest
    // stage has to do in it.
    for (int stage = 0; stage < p; ++stage) one.seconds = std::max(one.seconds, BusyOf(stage) * p);
    if (parts_) {
      const double idle = std::max(0.0, one.seconds - BusyOf(times_.watched) * p);
      one.host = std::min(one.host, idle);
      one.pipeline = std::min(one.pipeline, idle - one.host);
      one.copies = std::min(one.copies, idle - one.host - one.pipeline);
      one.bubble = idle - one.host - one.pipeline - one.copies;
    }
  }
  const double times = more / p;
  all.seconds += times * one.seconds;
  all.pipeline += times * one.pipeline;
  all.bubble += times * one.bubble;
  all.host += times * one.host;
  all.copies += times * one.copies;
  return all;
}

}  // namespace orrery
