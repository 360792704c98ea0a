// SPDX-License-Identifier: Apache-2.0
// Streams as lists of work.
#include "tests/comm_device/delayed_queue.h"

#include <cstring>

#include "runtime/comm/peer_sums.h"

namespace orrery::runtime_test {

void* DelayedQueue::MakeEvent() {
  const std::lock_guard lock(mutex_);
  ++events_;
  return new char;
}
void DelayedQueue::FreeEvent(void* event) {
  const std::lock_guard lock(mutex_);
  recorded_.erase(event);
  delete static_cast<char*>(event);
}

void DelayedQueue::Record(void* event, void* stream) {
  const auto mark = std::make_shared<bool>(false);
  Enqueue([mark] { *mark = true; }, stream);
  const std::lock_guard lock(mutex_);
  recorded_[event] = mark;
}

void DelayedQueue::Await(void* event, void* stream) {
  const std::lock_guard lock(mutex_);
  streams_[stream].push_back({[] {}, recorded_.at(event)});
}

void DelayedQueue::Copy(void* to, const void* from, int64_t bytes, void* stream) {
  Enqueue([=] { std::memmove(to, from, static_cast<std::size_t>(bytes)); }, stream);
}

void DelayedQueue::Sum(void* to, std::span<const void* const> from, int64_t n, ir::Dtype dtype,
                       bool maximum, void* stream) {
  const comm::PeerSum sum = comm::MakePeerSum(to, from, n, dtype, maximum);
  Enqueue(
      [sum] {
        for (int64_t i = 0; i < sum.n; ++i) comm::SumElement(sum, i);
      },
      stream);
}

void DelayedQueue::Enqueue(std::function<void()> work, void* stream) {
  const std::lock_guard lock(mutex_);
  streams_[stream].push_back({std::move(work), nullptr});
}

bool DelayedQueue::RunOne() {
  const std::lock_guard lock(mutex_);
  std::vector<std::deque<Item>*> able;
  for (auto& [stream, items] : streams_) {
    if (!items.empty() && (!items.front().waits || *items.front().waits)) able.push_back(&items);
  }
  if (able.empty()) return false;
  std::deque<Item>* items = able[random_() % able.size()];
  items->front().work();
  items->pop_front();
  return true;
}

bool DelayedQueue::Drain(void* stream) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      if (streams_[stream].empty()) return true;
    }
    if (RunOne()) continue;
    const std::lock_guard lock(mutex_);
    return streams_[stream].empty();  // another thread may have run the rest
  }
}

}  // namespace orrery::runtime_test
