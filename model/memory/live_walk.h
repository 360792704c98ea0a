// SPDX-License-Identifier: Apache-2.0
// Live bytes of a stage op by op, in issue order. Buffers that a skipped op names still live: the layout keeps them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "model/plan/ir/layout.h"
#include "model/plan/ir/usage.h"
#include "model/price/held.h"

namespace orrery {

class LiveWalk {
 public:
  // `bytes`: of each buffer (HeldBytes).
  LiveWalk(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout,
           const Holding& holding, std::vector<int64_t> bytes)
      : program_(program),
        layout_(layout),
        bytes_(std::move(bytes)),
        usage_(HeldUsage(program, holding)),
        from_(HeldFrom(program, layout, usage_, holding)),
        spans_(ir::FrameSpans(plan, program, layout_, usage_)),
        frames_(FramesOf(usage_, layout)) {
    for (const StepPlace& place : from_) {
      if (place.call >= 0) brings_.insert(place.call);
    }
  }

  // Calls visit(place, bytes alive before the op, bytes alive during it) until it returns false. A call like an
  // earlier one, with no more bytes alive, is left out: of thousands of micro-batches a few differ. So `visit` has to ask
  // for more bytes than before, or for more than a limit.
  template <class Visit>
  void Run(const Visit& visit) {
    seen_.assign(program_.blocks.size(), {});
    int64_t alive = 0;
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      if (layout_.scope[b] == ir::Layout::Scope::kStep && from_[b].call < 0) alive += bytes_[b];
    }
    for (std::size_t c = 0; c < layout_.calls.size(); ++c) {
      const auto call = static_cast<int32_t>(c);
      Seen& seen = SeenAs(call);
      if (alive > seen.alive) {
        seen.alive = alive;
        CountCall(call);
        for (std::size_t op = 0; op + 1 < born_.size(); ++op) {
          if (!visit(StepPlace{call, static_cast<int32_t>(op)}, alive, alive + born_[op])) return;
          alive += born_[op] - freed_[op];
        }
        seen.change = alive - seen.alive;
      } else {
        alive += seen.change;
      }
    }
  }

 private:
  // Calls of a block that take and return the slots of the same frames.
  struct Seen {
    std::vector<uint8_t>
        ends;  // by frame of the block: 1 takes, 2 returns; then: 1 brings buffers of the step
    int64_t alive = std::numeric_limits<int64_t>::min();  // the most before one of them
    int64_t change = 0;                                   // bytes alive after it, less those before
  };

  Seen& SeenAs(int32_t call) {
    const int32_t block = layout_.calls[call].block, m = layout_.calls[call].micro_batch;
    ends_.clear();
    for (const int32_t frame : frames_[block]) {
      ends_.push_back(static_cast<uint8_t>((spans_[frame].first[m] == call ? 1 : 0) +
                                           (spans_[frame].last[m] == call ? 2 : 0)));
    }
    ends_.push_back(brings_.contains(call) ? 1 : 0);
    std::vector<Seen>& all = seen_[block];
    for (Seen& one : all) {
      if (one.ends == ends_) return one;
    }
    all.emplace_back().ends = ends_;
    return all.back();
  }

  static std::vector<std::vector<int32_t>> FramesOf(const ir::Usage& usage,
                                                    const ir::Layout& layout) {
    std::vector<std::vector<int32_t>> frames;
    for (const std::vector<ir::Touch>& touches : usage.by_block) {
      std::vector<int32_t>& of_block = frames.emplace_back();
      for (const ir::Touch& touch : touches) {
        if (const int32_t frame = layout.frame_of[touch.buffer]; frame >= 0)
          of_block.push_back(frame);
      }
      std::sort(of_block.begin(), of_block.end());
      of_block.erase(std::unique(of_block.begin(), of_block.end()), of_block.end());
    }
    return frames;
  }

  void CountCall(int32_t call) {
    const int32_t block = layout_.calls[call].block;
    born_.assign(program_.blocks[block].ops.size() + 1, 0);
    freed_.assign(born_.size(), 0);
    for (const ir::Touch& touch : usage_.by_block[block]) {
      const int64_t bytes = bytes_[touch.buffer];
      if (layout_.scope[touch.buffer] == ir::Layout::Scope::kStep) {
        if (from_[touch.buffer].call == call) born_[touch.first_op] += bytes;
        continue;
      }
      const int32_t frame = layout_.frame_of[touch.buffer];
      const int32_t m = layout_.calls[call].micro_batch;
      if (frame < 0 || spans_[frame].first[m] == call) born_[touch.first_op] += bytes;
      if (frame < 0 || spans_[frame].last[m] == call) freed_[touch.last_op] += bytes;
    }
  }

  const ir::Program& program_;
  const ir::Layout& layout_;
  const std::vector<int64_t> bytes_;
  const ir::Usage usage_;
  const std::vector<StepPlace> from_;
  std::set<int32_t> brings_;  // calls with which buffers of the step come
  const std::vector<ir::CallSpan> spans_;
  const std::vector<std::vector<int32_t>> frames_;  // by block: those that its ops name
  std::vector<std::vector<Seen>> seen_;             // by block
  std::vector<uint8_t> ends_;                       // of the current call
  std::vector<int64_t> born_, freed_;               // by op of it
};

}  // namespace orrery
