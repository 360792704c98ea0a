// SPDX-License-Identifier: Apache-2.0
// Live bytes of a stage op by op, in issue order. Buffers that a skipped op names still live: the layout keeps them.
#pragma once

#include <vector>

#include "model/plan/ir/layout.h"
#include "model/plan/ir/usage.h"

namespace orrery {

// An op of a step: index into the expanded schedule, and into the call's block.
struct StepPlace {
  int32_t call = 0, op = 0;
};

class LiveWalk {
 public:
  LiveWalk(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout)
      : program_(program),
        layout_(layout),
        usage_(ir::AnalyseUsage(program)),
        spans_(ir::FrameSpans(plan, program, layout_, usage_)) {}

  // Calls visit(place, bytes alive before the op, bytes alive during it) until it returns false. `outside`: bytes
  // that the plan's step buffers hold and that do not count.
  template <class Visit>
  void Run(int64_t outside, const Visit& visit) {
    int64_t alive = -outside;
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      if (layout_.scope[b] == ir::Layout::Scope::kStep && !ir::OnHost(program_.buffers[b]))
        alive += ir::BufferBytes(program_.buffers[b]);
    }
    for (std::size_t c = 0; c < layout_.calls.size(); ++c) {
      const auto call = static_cast<int32_t>(c);
      CountCall(call);
      for (std::size_t op = 0; op + 1 < born_.size(); ++op) {
        if (!visit(StepPlace{call, static_cast<int32_t>(op)}, alive, alive + born_[op])) return;
        alive += born_[op] - freed_[op];
      }
    }
  }

 private:
  void CountCall(int32_t call) {
    const int32_t block = layout_.calls[call].block;
    born_.assign(program_.blocks[block].ops.size() + 1, 0);
    freed_.assign(born_.size(), 0);
    for (const ir::Touch& touch : usage_.by_block[block]) {
      if (layout_.scope[touch.buffer] == ir::Layout::Scope::kStep ||
          ir::OnHost(program_.buffers[touch.buffer]))
        continue;
      const int64_t bytes = ir::BufferBytes(program_.buffers[touch.buffer]);
      const int32_t frame = layout_.frame_of[touch.buffer];
      const int32_t m = layout_.calls[call].micro_batch;
      if (frame < 0 || spans_[frame].first[m] == call) born_[touch.first_op] += bytes;
      if (frame < 0 || spans_[frame].last[m] == call) freed_[touch.last_op] += bytes;
    }
  }

  const ir::Program& program_;
  const ir::Layout& layout_;
  const ir::Usage usage_;
  const std::vector<ir::CallSpan> spans_;
  std::vector<int64_t> born_, freed_;  // by op of the current call
};

}  // namespace orrery
