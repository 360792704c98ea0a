// SPDX-License-Identifier: Apache-2.0
// Ranks with a GPU each that talk over NCCL.
//
// Operations with a stream (Collective::stream, SetStream) work on device memory and are enqueued
// there; those without one go to `control`, an endpoint of the same ranks for host memory (MPI, or
// TCP as torchrun starts it). One communicator per Join, and one per sender, receiver and channel:
// no order between streams is imposed that the plan does not have. Transfers posted to one stream
// before a Test() or Idle() run at the same time (nccl_transfers.h). NCCL chooses the order of sums: results are close to the other implementations', not equal to the last
// bit.
#pragma once

#include <memory>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/comm/device_queue.h"
#include "runtime/comm/nccl_api.h"

namespace orrery::comm {

struct NcclOptions {
  double deadline_s = 120;       // of a communicator's set-up
  double abort_deadline_s = 10;  // of ncclCommAbort, which may wait for the device
  // Streams and events of the rank's device. Needed where several transfers at once are posted to
  // one stream; the executor never does.
  std::shared_ptr<DeviceQueue> queue;
};

// The thread's current CUDA device is the rank's. What NCCL or a peer fails at is thrown as
// CommError. Abort(), and Idle() and Join() before they throw, abort all communicators, so that
// kernels that wait on the device return.
std::unique_ptr<Endpoint> ConnectNccl(nccl::ApiPtr api, std::unique_ptr<Endpoint> control,
                                      const NcclOptions& options = {});

}  // namespace orrery::comm
