// SPDX-License-Identifier: Apache-2.0
// Events in order of time, then of creation: timers with a callback, and numbered events that may
// have become void.
#pragma once

#include <cstdint>
#include <vector>

#include "model/engine/network/network.h"

namespace orrery::net {

struct Event {
  double time = 0;
  uint64_t order = 0;
  int32_t subject = 0;   // timers: where the callback is kept
  uint32_t version = 0;  // 0: a timer
};

class EventQueue {
 public:
  bool empty() const { return heap_.empty(); }
  const Event& top() const { return heap_.front(); }
  void Pop();
  void AddTimer(double time, Done done);
  void Add(double time, int32_t subject, uint32_t version);  // version > 0
  Done Take(const Event& timer);                             // its callback; once

  // Several queues, of which one is selected; those that are not keep their events. Before the first event.
  void Split(std::size_t queues) { others_.resize(queues); }
  void Select(std::size_t queue);
  void Join();  // one queue of all events

 private:
  void Push(Event event);
  void Sift(std::size_t place, Event event);

  std::vector<Event> heap_;  // four children per node: half the depth of a binary heap
  std::vector<std::vector<Event>>
      others_;  // split: the queues; that of the one selected is in heap_
  std::size_t selected_ = 0;
  std::vector<Done> callbacks_;
  std::vector<int32_t> free_;
  uint64_t created_ = 0;
};

}  // namespace orrery::net
