// SPDX-License-Identifier: Apache-2.0
// Collectives of members that share a device, enqueued on all of their streams at once.
#pragma once

#include <span>

#include "runtime/comm/communicator.h"
#include "runtime/comm/device_queue.h"

namespace orrery::comm {

// Events of one device, used again and again. Not thread-safe.
class EventPool {
 public:
  explicit EventPool(DeviceQueue* queue) : queue_(queue) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  void* Take();
  void Give(void* event) { free_.push_back(event); }

 private:
  DeviceQueue* queue_;
  std::vector<void*> free_;
};

// All streams wait for all that is enqueued on them so far.
void MeetStreams(std::span<void* const> streams, DeviceQueue* queue, EventPool* pool);

// Does what the parts ask for on their streams; before and after, the streams meet.
void EnqueueCollective(std::span<const Collective> parts, DeviceQueue* queue, EventPool* pool);

}  // namespace orrery::comm
