// SPDX-License-Identifier: Apache-2.0
// A four-ary heap of small events.
#include "model/engine/network/event_queue.h"

#include <algorithm>
#include <utility>

namespace orrery::net {
namespace {

constexpr std::size_t kChildren = 4;

bool Before(const Event& a, const Event& b) {
  return a.time != b.time ? a.time < b.time : a.order < b.order;
}

}  // namespace

void EventQueue::Push(Event event) {
  event.order = ++created_;
  heap_.push_back(event);
  Sift(heap_.size() - 1, event);
}

// Up from `at` to its place.
void EventQueue::Sift(std::size_t at, Event event) {
  while (at > 0) {
    const std::size_t parent = (at - 1) / kChildren;
    if (!Before(event, heap_[parent])) break;
    heap_[at] = heap_[parent];
    at = parent;
  }
  heap_[at] = event;
}

void EventQueue::Pop() {
  const Event last = heap_.back();
  heap_.pop_back();
  const std::size_t size = heap_.size();
  if (size == 0) return;
  std::size_t at = 0;
  for (;;) {
    const std::size_t first = kChildren * at + 1;
    if (first >= size) break;
    std::size_t least = first;
    for (std::size_t child = first + 1; child < std::min(first + kChildren, size); ++child) {
      if (Before(heap_[child], heap_[least])) least = child;
    }
    if (!Before(heap_[least], last)) break;
    heap_[at] = heap_[least];
    at = least;
  }
  heap_[at] = last;
}

void EventQueue::Select(std::size_t queue) {
  others_[selected_].swap(heap_);
  selected_ = queue;
  others_[selected_].swap(heap_);
}

void EventQueue::Join() {
  others_[selected_].swap(heap_);
  heap_.clear();
  for (const std::vector<Event>& queue : others_) {
    for (const Event& event : queue) {
      heap_.push_back(event);
      Sift(heap_.size() - 1, event);
    }
  }
  others_.clear();
}

void EventQueue::AddTimer(double time, Done done) {
  int32_t slot = 0;
  if (free_.empty()) {
    slot = static_cast<int32_t>(callbacks_.size());
    callbacks_.push_back(std::move(done));
  } else {
    slot = free_.back();
    free_.pop_back();
    callbacks_[static_cast<std::size_t>(slot)] = std::move(done);
  }
  Push({time, 0, slot, 0});
}

void EventQueue::Add(double time, int32_t subject, uint32_t version) {
  Push({time, 0, subject, version});
}

Done EventQueue::Take(const Event& timer) {
  free_.push_back(timer.subject);
  return std::exchange(callbacks_[static_cast<std::size_t>(timer.subject)], nullptr);
}

}  // namespace orrery::net
