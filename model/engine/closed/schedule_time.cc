// SPDX-License-Identifier: Apache-2.0
// Walks the passes of all stages, and books what the watched one waits for.
#include "model/engine/closed/schedule_time.h"

#include <algorithm>
#include <cstdlib>

namespace orrery {
double ScheduleClock::Transfer(int one, int other, const std::vector<double>& hops) const {
  if (!hops.empty()) {
    const bool neighbours = std::abs(one - other) == 1;
    return hops[static_cast<std::size_t>(neighbours ? std::min(one, other) : times_.stages - 1)];
  }
  return one / times_.on_node == other / times_.on_node ? times_.inside : times_.between;
}

// The first gather of the stage's next pass beside this one, which runs from `start` to `end`: as soon as its slot is free, the
// gather before has ended and the host has issued it. Returns the seconds that kernels lose to it.
double ScheduleClock::GatherAhead(const PassGraph::Pass& pass, double start, double end) {
  Ring& ring = rings_[pass.stage];
  const GatherTimes& own = gathers_[pass.work];
  ring.ahead = 0;
  if (own.last_slot < 0) return 0;
  if (own.layer > 0) {
    for (double& free : ring.slots) free = std::min(end, std::max(free, end - own.layer));
    ring.gathered = end - own.layer;
  }
  double& held = ring.slots[static_cast<std::size_t>(own.last_slot)];
  held = end;
  if (pass.next < 0) return 0;
  const GatherTimes& next = gathers_[static_cast<std::size_t>(pass.next)];
  if (next.gather <= 0 || next.first_slot < 0 || next.first_slot == own.last_slot) return 0;
  const double free = ring.slots[static_cast<std::size_t>(next.first_slot)];
  const double from = std::max(std::max(free, ring.gathered), stages_[pass.stage].issued);
  ring.ahead = std::clamp(end - from, 0.0, next.gather);
  const double beside = std::max(0.0, from + ring.ahead - std::max(from, start));
  const double lost = next.lost == 0 ? 0.0 : beside / next.gather * next.lost;
  held += lost;
  return lost;
}

// A forward pass of layers: each overwrites what the second one before it sends, or what a pass before sends from there, from one
// end to the other: it ends no earlier than the copy. Returns what it waits for that.
double ScheduleClock::SendLayers(const std::vector<MovedLayer>& layers, HostLink* link,
                                 HostSlots* slots, double now) {
  double waits = 0;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    double& sent = slots->sent[l % 2];
    const double free = sent - std::min(layers[l].copy, layers[l].forward);
    if (layers[l].moves && free > now) {
      waits += free - now;
      now = free;
    }
    const double begin = now;
    now += layers[l].forward;
    if (layers[l].moves)
      sent = link->down = std::max(std::max(link->down, begin) + layers[l].copy, now);
  }
  slots->read.fill(now);
  return waits;
}

// A backward pass: what a layer reads comes back once the second layer behind it has run, or the pass before, and takes the memory
// of what the last forward pass sends, part by part. The pass's own tensors lie there, too, and those of the head: `head`, its
// seconds.
double ScheduleClock::FetchLayers(const std::vector<MovedLayer>& layers, HostLink* link,
                                  HostSlots* slots, double now, double head) {
  const double sent = std::max(slots->sent[0], slots->sent[1]);
  double waits = std::max(0.0, sent - now);
  now += waits + head;
  if (head > 0) slots->read.fill(now);
  for (std::size_t l = layers.size(); l-- > 0;) {
    double& read = slots->read[l % 2];
    if (layers[l].moves) {
      link->up = std::max(std::max(link->up, read) + layers[l].copy, slots->sent[l % 2]);
      waits += std::max(0.0, link->up - now);
      now = std::max(now, link->up);
    }
    now += layers[l].backward;
    read = now;
  }
  return waits;
}

// Seconds that a pass from `start` on waits for copies to or from the host. `held`: its host issues none before then.
double ScheduleClock::AwaitCopies(const PassGraph::Pass& pass, double start, double device,
                                  bool held) {
  const std::size_t place = pass.work / 3, kind = pass.work % 3;
  const std::vector<MovedLayer>& layers = times_.passes[place].layers;
  if (layers.empty() || kind > PassCall::kBackward) return 0;
  HostLink* link = &host_links_[pass.stage];
  HostSlots* slots = &host_slots_[pass.stage];
  const bool backward = kind == PassCall::kBackward;
  double of_layers = 0;
  for (const MovedLayer& layer : layers) of_layers += backward ? layer.backward : layer.forward;
  const double ends = std::max(0.0, device - of_layers);  // the embedding, the head
  if (!backward) return SendLayers(layers, link, slots, start + ends);
  if (held)
    for (double& read : slots->read) read = std::max(read, start);
  return FetchLayers(layers, link, slots, start, place + 1 == times_.passes.size() ? ends : 0.0);
}

// Nothing moves to the host, and each pass takes the device: most pipelines.
bool ScheduleClock::Plain() const {
  const auto takes_device = [](const PassSeconds& pass) {
    return std::min(0.0, pass.first) + pass.device[PassCall::kForward] > 0 &&
           std::min(0.0, pass.last) + pass.device[PassCall::kBackward] > 0;
  };
  return host_links_.empty() &&
         (times_.order.in_a_v || std::ranges::all_of(times_.passes, takes_device));
}

template <bool kParts, bool kAhead, bool kPlain>
bool ScheduleClock::Walk(double latest) {
  for (std::size_t k = 1; k < graph_->passes.size(); ++k) {
    const PassGraph::Pass& pass = graph_->passes[k];
    StageClock& clock = stages_[pass.stage];
    double arrival = arrived_[pass.receives ? 0 : pass.sender], saved = 0;
    if (pass.receives) {
      // What hangs on the pass before it comes last: the processor waits for that alone.
      const double hop = hops_[pass.hop];
      arrival = std::max(
          std::max(left_[pass.sender], std::max(arrived_[pass.before], done_[pass.received])) + hop,
          clock.issued + hop);
    }
    const WorkTimes& work = works_[pass.work];
    double device = work.device;
    if (pass.first) device += times_.passes[pass.work / 3].first;
    if (pass.last) device += times_.passes[pass.work / 3].last;
    double host = work.host, behind = work.behind;
    // Without layers the head is the first to want the tensor.
    const bool passes_on = !kPlain && pass.receives && device <= 0 && !times_.order.in_a_v;
    const bool heads =
        !kPlain && !pass.receives && pass.sender > 0 && !times_.order.in_a_v &&
        works_[static_cast<std::size_t>(graph_->passes[pass.sender].work)].device <= 0;
    const bool waits = times_.host_waits && (pass.loads || heads || (pass.receives && !passes_on));
    if (work.early > 0 && pass.receives) {
      const double issued = work.early_host;
      const double ahead = kAhead ? rings_[pass.stage].ahead : 0;
      const double early = work.early - ahead;
      const double begin = std::max(clock.free, clock.issued);
      if (kParts && pass.stage == times_.watched && begin > clock.free)
        gaps_.push_back({clock.free, begin, true, begin});
      clock.issued += issued;
      clock.free = std::max(begin + early, clock.issued);
      if (kParts && pass.stage == times_.watched) {
        // A tensor that comes behind the gather is what the pass waits for from when it is under way.
        const double sent = std::max(begin + early - work.gathered, arrival - hops_[pass.hop]);
        if (arrival > clock.free && sent < begin + early)
          gaps_.push_back({sent, begin + early, false, sent});
        if (clock.free > begin + early)
          gaps_.push_back({begin + early, clock.free, true, clock.free});
      }
      device -= work.early;
      host -= issued;
      behind -= std::max(work.early, issued);
      if (kAhead)
        rings_[pass.stage].gathered = begin + std::max(0.0, gathers_[pass.work].gather - ahead);
      if (work.second > 0 && arrival > clock.free) {
        saved = work.Saved(arrival - clock.free);
        device -= saved, behind -= saved;
      }
    }
    const double awaited = passes_on ? 0 : arrival;
    const double start = std::max(clock.free, std::max(awaited, clock.issued));
    if (pass.first) first_[pass.work / 3] = start;
    const double copies =
        kPlain || host_links_.empty()
            ? 0.0
            : AwaitCopies(pass, start, device, waits && times_.gathers_received && work.early <= 0);
    device += copies;
    const double begun = waits ? start : clock.issued;
    clock.issued = begun + host;
    const double ran = std::max(clock.issued, begun + behind);
    double end = std::max(std::max(start + device, ran), arrived_[pass.sent]);
    if (kParts && pass.stage == times_.watched) {
      const double came = std::clamp(awaited, clock.free, start);
      if (came > clock.free) {
        const PassGraph::Pass& receiver = pass.receives ? pass : graph_->passes[pass.sender];
        const double sent = std::clamp(arrival - hops_[receiver.hop], clock.free, came);
        const double own =
            std::clamp(arrival - hops_[receiver.hop] + own_hops_[receiver.hop], sent, came);
        gaps_.push_back({std::min(clock.free + saved, sent), own, false, sent});
        if (own < came) gaps_.push_back({own, came, false, came});
      }
      if (start > came) gaps_.push_back({came, start, true, start});
      if (copies > 0)
        gaps_.push_back({start + device - copies, start + device, false, start + device, true});
      const double issued = std::clamp(ran, start + device, end);
      if (issued > start + device) gaps_.push_back({start + device, issued, true, issued});
      if (end > issued) gaps_.push_back({issued, end, false, issued});
    }
    const double lost = kAhead ? GatherAhead(pass, start, end) : 0;
    end += lost;
    clock.free = end;
    latest_[pass.work] = {start, end};
    done_[k] = end;
    left_[k] = std::max(std::max(start + device, ran) + lost - work.after, arrived_[pass.sent]);
    if (passes_on) left_[k] = std::max(left_[k], arrival);
    arrived_[k] = pass.receives ? arrival : 0;
    if (!kParts) {
      double& rest = rest_[pass.stage];
      rest -= kAhead ? LeastDevice(pass.work) : work.device;
      if (end + rest > latest) return false;
    }
  }
  return true;
}

void ScheduleClock::FindWorks() {
  works_.resize(3 * times_.passes.size());
  WorkTimes* work = works_.data();
  for (const PassSeconds& pass : times_.passes) {
    for (std::size_t kind = 0; kind < 3; ++kind, ++work)
      *work = {pass.device[kind],
               pass.host[kind],
               pass.behind[kind],
               pass.early[kind],
               pass.early_host[kind],
               pass.gathered[kind],
               kind == PassCall::kBackward ? pass.after : 0.0,
               pass.second[kind],
               pass.second_shown[kind],
               pass.second_lost};
  }
  gathers_.clear();
  const bool ahead = std::ranges::any_of(
      times_.passes, [](const PassSeconds& pass) { return pass.last_slot[0] >= 0; });
  for (const PassSeconds& pass : times_.passes) {
    if (!ahead) break;
    for (std::size_t kind = 0; kind < 3; ++kind)
      gathers_.push_back({pass.gather[kind], pass.gather_lost, pass.layer[kind],
                          pass.first_slot[kind], pass.last_slot[kind]});
  }
  const int p = times_.stages;
  hops_.clear(), own_hops_.clear();
  const std::vector<double>& own = times_.own_hops.empty() ? times_.hops : times_.own_hops;
  for (int stage = 0; stage < p; ++stage) {
    for (const int step : {-1, 1}) {
      hops_.push_back(Transfer(stage, (stage + step + p) % p, times_.hops));
      own_hops_.push_back(Transfer(stage, (stage + step + p) % p, own));
    }
  }
}

// Of a pass, but for a gather that may go beside the one before.
double ScheduleClock::LeastDevice(std::size_t work) const {
  return works_[work].device - (gathers_.empty() ? 0.0 : gathers_[work].gather);
}

// When all stages have ended at the latest, if the answer is to be no more than `most`: rounds that are not walked take no less
// than the work in them. Sets what each stage has before it, and behind the last pass of a stage the backward passes of those
// before, which wait for its gradient with all but what is done ahead of it. Of schedules that end in another order the latter
// is left out.
double ScheduleClock::FindRest(double most) {
  const int p = times_.stages;
  const double walked = batches();
  rest_.assign(static_cast<std::size_t>(p), 0);
  for (int stage = 0; stage < p; ++stage) {
    for (int chunk = 0; chunk < times_.chunks; ++chunk) {
      const int place = VirtualStage(times_.order.in_a_v, p, stage, chunk);
      for (int kind = 0; kind < 3; ++kind)
        rest_[stage] += walked * LeastDevice(static_cast<std::size_t>(3 * place + kind));
    }
  }
  double round = rest_[times_.paces] / walked;  // of one micro-batch in it
  for (int stage = 0; (times_.order.fills_bubble || HalfStands()) && stage < p; ++stage)
    round = std::max(round, rest_[stage] / walked);
  if (!times_.order.fills_bubble && !times_.order.in_a_v) {
    double behind = 0;
    for (int stage = 1; stage < p; ++stage) {
      const WorkTimes& next = works_[3 * (stage - 1) + PassCall::kBackward];
      const double after = works_[3 * stage + PassCall::kBackward].after;
      behind += std::max(
          0.0, hops_[2 * stage - 1] + next.device - next.early - next.second_shown - after);
      rest_[stage] += behind;
    }
  }
  return most - (times_.micro_batches - walked) * round;
}

// Twice where half stands for others and not all is walked; the second time leaves what callers ask for.
bool ScheduleClock::Run(double most) {
  half_ = HalfStands() && times_.micro_batches > batches();
  if (half_) {
    const bool ended = RunBatches(most);
    if (ended) before_ = Whole();
    half_ = false;
    if (!ended) return false;
  }
  return RunBatches(most);
}

// Of all that was walked, with what the watched stage waits for at its end.
ScheduleTime ScheduleClock::Whole() {
  if (parts_) {
    const StageClock& watched = stages_[times_.watched];
    if (end_ > watched.free) gaps_.push_back({watched.free, end_, false, end_});
    FindMessages();
  }
  return Between(0, end_);
}

bool ScheduleClock::RunBatches(double most) {
  const int p = times_.stages, walked = static_cast<int>(batches());
  graph_ = &graphs_.Of({times_.order, p, times_.chunks, walked});
  stages_.assign(p, {});
  gaps_.clear();
  FindWorks();
  const bool ahead = !gathers_.empty();
  if (ahead) rings_.assign(p, {});
  const bool moves = std::ranges::any_of(
      times_.passes, [](const PassSeconds& pass) { return !pass.layers.empty(); });
  host_links_.assign(moves ? p : 0, {});
  host_slots_.assign(moves ? p : 0, {});
  latest_.assign(works_.size(), {});
  first_.assign(times_.passes.size(), 0);
  done_.resize(graph_->passes.size());
  left_.resize(graph_->passes.size());
  arrived_.resize(graph_->passes.size());
  done_[0] = left_[0] = arrived_[0] = 0;
  const double latest = parts_ ? most : FindRest(most);
  bool ended = false;
  if (parts_)
    ended = ahead ? Walk<true, true, false>(latest) : Walk<true, false, false>(latest);
  else if (Plain())
    ended = ahead ? Walk<false, true, true>(latest) : Walk<false, false, true>(latest);
  else
    ended = ahead ? Walk<false, true, false>(latest) : Walk<false, false, false>(latest);
  if (!ended) return false;
  end_ = 0;
  for (const StageClock& clock : stages_) end_ = std::max(end_, clock.free);
  return true;
}

const ScheduleTime& ScheduleClock::Time() {
  if (parts_ && asked_ == times_) return time_;
  parts_ = true;
  return Answer();
}

double ScheduleClock::Seconds() {
  if (asked_ == times_) return time_.seconds;
  parts_ = false;
  return Answer().seconds;
}

std::optional<double> ScheduleClock::Seconds(double most) {
  if (asked_ != times_) {
    times_ = asked_;
    parts_ = false;
    if (!Run(most)) {
      times_.passes.clear();  // no answer
      return std::nullopt;
    }
    time_ = Account();
  }
  return time_.seconds <= most ? std::optional(time_.seconds) : std::nullopt;
}

const ScheduleTime& ScheduleClock::Answer() {
  times_ = asked_;
  Run();
  if (parts_) Whole();
  return time_ = Account();
}

}  // namespace orrery
