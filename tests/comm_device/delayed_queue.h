// SPDX-License-Identifier: Apache-2.0
// A pretended device for tests: what is enqueued runs only when it is asked to, streams in random
// order.
//
// A wait for an event holds its stream until what was recorded has run: a wait that is missing
// shows as a wrong result under some order.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "runtime/comm/device_queue.h"

namespace orrery::runtime_test {

class DelayedQueue : public comm::DeviceQueue {
 public:
  explicit DelayedQueue(uint64_t seed) : random_(seed) {}

  void* MakeEvent() override;
  void FreeEvent(void* event) override;
  void Record(void* event, void* stream) override;
  void Await(void* event, void* stream) override;
  void* MakeStream() override { return new char; }
  void FreeStream(void* stream) override { delete static_cast<char*>(stream); }
  void Copy(void* to, const void* from, int64_t bytes, void* stream) override;
  void Sum(void* to, std::span<const void* const> from, int64_t n, ir::Dtype dtype, bool maximum,
           void* stream) override;

  void Enqueue(std::function<void()> work, void* stream);
  // Runs one thing of any stream; false: nothing can run.
  bool RunOne();
  // Runs whatever must have run before `stream` is empty, in random order.
  bool Drain(void* stream);
  int events() const { return events_; }

 private:
  using Mark = std::shared_ptr<bool>;  // true: what was recorded has run
  struct Item {
    std::function<void()> work;
    Mark waits;
  };

  std::mutex mutex_;
  std::mt19937_64 random_;
  std::map<void*, std::deque<Item>> streams_;
  std::map<void*, Mark> recorded_;  // by event: its last recording
  int events_ = 0;
};

}  // namespace orrery::runtime_test
