// SPDX-License-Identifier: Apache-2.0
// Which buffers each block names, from which op to which, and in which calls a micro-batch meets a
// block.
#pragma once

#include <span>
#include <vector>

#include "model/plan/ir/layout.h"

namespace orrery::ir {

// From the first to the last op of a block that names the buffer, ops with a `when` flag included.
struct Touch {
  BufferId buffer;
  int32_t first_op;
  int32_t last_op;
};

// By buffer the blocks that name it, ascending. In one piece: there are thousands of buffers with one or two each.
class BlocksOfBuffers {
 public:
  BlocksOfBuffers() = default;
  BlocksOfBuffers(const std::vector<std::vector<Touch>>& by_block, size_t buffers);

  std::span<const int32_t> operator[](size_t buffer) const {
    return std::span(blocks_).subspan(first_[buffer], first_[buffer + 1] - first_[buffer]);
  }

 private:
  std::vector<int32_t> blocks_;
  std::vector<size_t> first_;  // by buffer, and one more
};

struct Usage {
  std::vector<std::vector<Touch>> by_block;  // in order of first touch
  BlocksOfBuffers blocks_of;
};
Usage AnalyseUsage(const Program& program);

// By micro-batch: first and last call (indices into the expanded schedule) of any of some blocks;
// -1: none.
struct CallSpan {
  std::vector<int32_t> first, last;
  bool operator==(const CallSpan&) const = default;
};
// One span per block. `micro_batches` bounds every micro-batch of `calls`.
std::vector<CallSpan> SpansOfBlocks(const std::vector<Call>& calls, size_t blocks,
                                    int micro_batches);
CallSpan Union(const std::vector<CallSpan>& spans, std::span<const int32_t> blocks);
// By frame of the layout: the calls in which it takes and returns its slot.
std::vector<CallSpan> FrameSpans(const Plan& plan, const Program& program, const Layout& layout,
                                 const Usage& usage);

// ZeRO 1 scatters the reduced gradients inside their own buffer (Megatron's distributed optimizer, DeepSpeed); the plan
// gives the shard bytes of its own beside the whole: these buffers, ascending. Software that allocates tensor by tensor
// has no bytes for them; one that allocates the layout has.
std::vector<BufferId> SharedGradients(const Program& program);

inline bool OnHost(const Buffer& buffer) { return buffer.space == Space::kHost; }
// True if the op's operands lie in memory of the host: the CPU executes it.
bool OnHost(const Program& program, const Op& op);

inline int64_t BufferBytes(const Buffer& buffer) {
  return buffer.elements * DtypeBytes(buffer.dtype);
}
inline int64_t AlignUp(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

}  // namespace orrery::ir
