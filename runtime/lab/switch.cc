// SPDX-License-Identifier: Apache-2.0
// Links, queues and events of the simulated network.
#include "runtime/lab/switch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery::lab {
namespace {

constexpr std::size_t kMostSpare = 512;  // frames, 34 MB

}  // namespace

Switch::Switch(const Settings& settings, PortCounters* counters,
               std::function<void(const Frame&, Nanoseconds)> deliver)
    : settings_(settings),
      counters_(counters),
      deliver_(std::move(deliver)),
      latency_(std::llround(settings.latency.value * 1e9)),
      links_(static_cast<std::size_t>(2 * settings.nodes + 2 * settings.racks)) {
  const auto queue = static_cast<int64_t>(settings.queue.value);
  for (int node = 0; node < settings.nodes; ++node) {
    Link& up = links_[static_cast<std::size_t>(node)];
    Link& down = links_[static_cast<std::size_t>(settings.nodes + node)];
    up.ns_per_byte = down.ns_per_byte = 1e9 / settings.rate.value;
    up.limit = kSenderQueue;
    down.limit = queue;
  }
  for (int rack = 0; rack < settings.racks; ++rack) {
    for (int way = 0; way < 2; ++way) {
      Link& trunk = links_[static_cast<std::size_t>(2 * settings.nodes + 2 * rack + way)];
      trunk.ns_per_byte = 1e9 * settings.oversubscription /
                          (settings.rate.value * std::max(1, settings.NodesIn(rack)));
      trunk.limit = queue;
    }
  }
}

Switch::~Switch() {
  for (; !arrivals_.empty(); arrivals_.pop()) delete arrivals_.top().frame;
}

FramePtr Switch::MakeFrame() {
  if (spare_.empty()) return std::make_unique<Frame>();
  FramePtr frame = std::move(spare_.back());
  spare_.pop_back();
  return frame;
}

int Switch::LinkAt(const Frame& frame) const {
  const int from_rack = settings_.RackOf(frame.from), to_rack = settings_.RackOf(frame.to);
  const int nodes = settings_.nodes;
  if (frame.hop == 0) return frame.from;
  if (from_rack == to_rack) return frame.hop == 1 ? nodes + frame.to : -1;
  switch (frame.hop) {
    case 1:
      return 2 * nodes + 2 * from_rack;
    case 2:
      return 2 * nodes + 2 * to_rack + 1;
    case 3:
      return nodes + frame.to;
    default:
      return -1;
  }
}

Nanoseconds Switch::Duration(const Link& link, const Frame& frame) {
  return std::llround(static_cast<double>(frame.on_wire()) * link.ns_per_byte);
}

void Switch::Accept(FramePtr frame, Nanoseconds now) {
  Advance(now);
  frame->hop = 0;
  frame->tail = now;
  if (!settings_.fifo && frame->size <= kSmallFrame) {
    Pass(std::move(frame), now);
  } else {
    Move(std::move(frame), now);
  }
}

// A small frame: past all queues, its time on the links is taken from those that wait.
void Switch::Pass(FramePtr frame, Nanoseconds now) {
  for (int at; (at = LinkAt(*frame)) >= 0; ++frame->hop) {
    Link& link = links_[static_cast<std::size_t>(at)];
    const Nanoseconds duration = Duration(link, *frame);
    link.busy_until = std::max(link.busy_until, now) + duration;
    frame->tail = std::max(frame->tail, now + duration);
  }
  Arrive(std::move(frame));
}

void Switch::Move(FramePtr frame, Nanoseconds now) {
  const int at = LinkAt(*frame);
  if (at < 0) {
    Arrive(std::move(frame));
    return;
  }
  Link& link = links_[static_cast<std::size_t>(at)];
  if (!link.queue.empty() && link.waiting + frame->size > link.limit) {
    Drop(std::move(frame));
    return;
  }
  link.waiting += frame->size;
  if (at == settings_.nodes + frame->to) {
    int64_t& deepest = counters_[frame->to].deepest_queue;
    deepest = std::max(deepest, link.waiting);
  }
  link.queue.push_back(std::move(frame));
  if (link.busy_until <= now) {
    Begin(at, now);
  } else {
    Wake(at, link.busy_until);
  }
}

// The link is free: the first frame of its queue begins to cross it, and goes on to the next one.
void Switch::Begin(int at, Nanoseconds now) {
  Link& link = links_[static_cast<std::size_t>(at)];
  FramePtr frame = std::move(link.queue.front());
  link.queue.pop_front();
  link.waiting -= frame->size;
  link.busy_until = now + Duration(link, *frame);
  frame->tail = std::max(frame->tail, link.busy_until);
  ++frame->hop;
  if (!link.queue.empty()) Wake(at, link.busy_until);
  Move(std::move(frame), now);
}

void Switch::Wake(int at, Nanoseconds when) {
  Link& link = links_[static_cast<std::size_t>(at)];
  if (link.event_set) return;
  link.event_set = true;
  free_links_.push({when, order_++, at, nullptr});
}

void Switch::Arrive(FramePtr frame) {
  const Nanoseconds when = frame->tail + latency_;
  arrivals_.push({when, order_++, -1, frame.release()});
}

void Switch::Drop(FramePtr frame) {
  ++counters_[frame->to].dropped;
  Recycle(std::move(frame));
}

void Switch::Advance(Nanoseconds now) {
  for (;;) {
    const bool arrives = !arrivals_.empty() && arrivals_.top().when <= now;
    const bool frees = !free_links_.empty() && free_links_.top().when <= now;
    if (!arrives && !frees) return;
    if (frees && (!arrives || arrivals_.top() > free_links_.top())) {
      FreeLink();
    } else {
      Deliver();
    }
  }
}

void Switch::Deliver() {
  const Event event = arrivals_.top();
  arrivals_.pop();
  FramePtr frame(event.frame);
  counters_[frame->to].frames += frame->segments;
  counters_[frame->to].bytes += frame->size;
  deliver_(*frame, event.when);
  if (spare_.size() < kMostSpare) Recycle(std::move(frame));
}

void Switch::FreeLink() {
  const Event event = free_links_.top();
  free_links_.pop();
  Link& link = links_[static_cast<std::size_t>(event.link)];
  link.event_set = false;
  if (link.queue.empty()) return;
  if (link.busy_until > event.when) {  // small frames have used it meanwhile
    Wake(event.link, link.busy_until);
  } else {
    Begin(event.link, event.when);
  }
}

std::optional<Nanoseconds> Switch::NextEvent() const {
  std::optional<Nanoseconds> next;
  if (!arrivals_.empty()) next = arrivals_.top().when;
  if (!free_links_.empty()) {
    const Nanoseconds seen = free_links_.top().when + latency_;
    next = next ? std::min(*next, seen) : seen;
  }
  return next;
}

}  // namespace orrery::lab
