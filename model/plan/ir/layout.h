// SPDX-License-Identifier: Apache-2.0
// Static memory layout of one program: what the runtime allocates, to the byte, and the live peak below it.
//
// arena = step buffers + frames x slots (+ pools) + rings + scratch. A frame is the set of micro-batch buffers
// with equal first and last block and equal extra slots; it sits at slot (m mod slots), or, in a pool of frames of
// nearly equal size (within 10 %), at the lowest free number while the schedule unfolds. Scratch holds the buffers
// that one block names: packed per block over issue-order intervals, the largest block counts.
// Memory of the host stands behind the arena in the same addresses: step buffers, frames x slots, and buffers of one block,
// which share no bytes.
#pragma once

#include "model/plan/ir/plan.h"

namespace orrery::ir {

struct Frame {
  std::vector<BufferId> buffers;
  int32_t first_block = -1, last_block = -1;
  int64_t bytes = 0;  // of one slot
  int slots = 0;
  int64_t base = 0;              // arena offset of slot 0
  int pool = -1;                 // >= 0: shares slots with the other frames of the pool
  std::vector<int32_t> slot_of;  // by micro-batch: slot number
};

struct LiveBuffer {
  BufferId buffer;
  int32_t micro_batch;
  int64_t bytes;
};  // micro_batch -1: step or call buffer
struct Peak {
  int64_t bytes = 0;
  int32_t call = -1;             // index into the expanded schedule
  int32_t op = -1;               // index into the block
  std::vector<LiveBuffer> live;  // largest first
};

struct Layout {
  std::vector<Call> calls;  // the expanded schedule
  enum class Scope : uint8_t { kStep, kMicroBatch, kCall, kRing, kUnused };
  std::vector<Scope> scope;       // by buffer
  std::vector<int64_t> offset;    // by buffer: arena offset (frame buffers: within their frame)
  std::vector<int32_t> frame_of;  // by buffer, -1: not in a frame
  std::vector<Frame> frames;
  int64_t step_bytes = 0, frame_bytes = 0, ring_bytes = 0, scratch_bytes = 0;
  int64_t arena_bytes = 0;  // of the device; addresses from there on are the host's
  int64_t host_bytes = 0;

  int64_t end() const { return arena_bytes + host_bytes; }
  // Arena offset in bytes of a buffer in a call that is bound to `micro_batch`.
  int64_t Address(BufferId buffer, int32_t micro_batch) const;
};

Layout ComputeLayout(const Plan& plan, const Program& program);
// Live bytes by issue order; `detail`: also fills Peak::live.
Peak LivePeak(const Plan& plan, const Program& program, const Layout& layout, bool detail);
// Fills `live` with the buffers that are alive at the op that `peak` names.
void ListLive(const Plan& plan, const Program& program, const Layout& layout, Peak* peak);

}  // namespace orrery::ir
