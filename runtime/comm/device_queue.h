// SPDX-License-Identifier: Apache-2.0
// What communication between ranks of one device enqueues on that device's streams (cudaStream_t).
#pragma once

#include <cstdint>
#include <span>

#include "model/plan/ir/plan.h"

namespace orrery::comm {

// Calls return at once and come from any thread. Errors are thrown as exceptions.
class DeviceQueue {
 public:
  virtual ~DeviceQueue() = default;
  // An event may be recorded anew once the waits for its last recording are enqueued.
  virtual void* MakeEvent() = 0;
  virtual void FreeEvent(void* event) = 0;
  virtual void Record(void* event, void* stream) = 0;
  virtual void Await(void* event, void* stream) = 0;
  virtual void* MakeStream() = 0;
  virtual void FreeStream(void* stream) = 0;

  virtual void Copy(void* to, const void* from, int64_t bytes, void* stream) = 0;
  // to = from[0] + from[1] + ..., element by element from left to right, rounded after each; or the
  // largest. `to` may be one of `from`.
  virtual void Sum(void* to, std::span<const void* const> from, int64_t n, ir::Dtype dtype,
                   bool maximum, void* stream) = 0;
};

}  // namespace orrery::comm
