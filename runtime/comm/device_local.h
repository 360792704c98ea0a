// SPDX-License-Identifier: Apache-2.0
// Ranks as threads that share one device: collectives by kernels that read the members' memory.
//
// Operations with a stream are enqueued by whichever member comes last: streams wait for one
// another by events, pieces are summed in the order of a ring, as the CPU endpoints do it, so that
// results agree with theirs to the last bit. Operations without a stream go to the control endpoint
// (LocalWorld).
#pragma once

#include <memory>

#include "runtime/comm/communicator.h"
#include "runtime/comm/device_queue.h"

namespace orrery::comm {

class DeviceWorldState;

class DeviceWorld {
 public:
  explicit DeviceWorld(std::unique_ptr<DeviceQueue> queue);
  ~DeviceWorld();
  // For the rank of `control`, which the endpoint keeps; the world outlives it.
  std::unique_ptr<Endpoint> Connect(std::unique_ptr<Endpoint> control);
  // For a control endpoint that outlives the new one.
  std::unique_ptr<Endpoint> Connect(Endpoint* control);

 private:
  std::shared_ptr<DeviceWorldState> state_;
};

}  // namespace orrery::comm
