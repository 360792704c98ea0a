// SPDX-License-Identifier: Apache-2.0
// One rank's part in timing a collective, the way of nccl-tests: warm-up calls, then calls one
// after another, their mean over calls and ranks; apart from that, calls whose results are checked.
//
// In place, input and output overlap as nccl-tests has it. An exchange (all_to_all, sendrecv) in
// place goes through a copy of the input, which counts. On a device calls are enqueued one behind
// the other and timed by its marks: launches hide behind what runs, as in nccl-tests.
#pragma once

#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/timing/call_memory.h"
#include "runtime/timing/patterns.h"

namespace orrery::bench {

struct TimingOptions {
  int64_t iterations = 20, warmup = 5;
  int64_t checks = 1;  // 0: results are not looked at
  double deadline_s = 120;
};

struct SideTime {
  double us = 0;      // of one call, mean over ranks
  int64_t wrong = 0;  // elements, all ranks
};
struct CallTime {
  SideTime out_of_place, in_place;
};

// Bytes that a rank's buffers of a pattern take at most.
int64_t BufferBytes(const Pattern& pattern);

class CollectiveTimer {
 public:
  // All ranks of the endpoint's world construct theirs at the same time.
  CollectiveTimer(comm::Endpoint* endpoint, const TimingOptions& options,
                  const CallDevice& device = {});
  // `pattern.ranks` is the world's size. Collective. Throws comm::CommError, std::bad_alloc.
  CallTime Measure(const Pattern& pattern);

 private:
  struct Buffers;
  void Call(const Pattern& pattern, const Buffers& buffers);
  SideTime MeasureSide(const Pattern& pattern, bool in_place);
  void Await(comm::Operation* operation, const Pattern& pattern);
  void AwaitDevice(const Pattern& pattern);
  int64_t CountOnce(const Pattern& pattern, const Buffers& buffers);
  double MeanOverRanks(double value);

  comm::Endpoint* endpoint_;
  TimingOptions options_;
  std::unique_ptr<CallMemory> memory_;
  comm::CommunicatorPtr all_;
};

}  // namespace orrery::bench
