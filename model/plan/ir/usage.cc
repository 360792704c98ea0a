// SPDX-License-Identifier: Apache-2.0
// Buffer usage per block, read off the op lists and the expanded schedule.
#include "model/plan/ir/usage.h"

#include <algorithm>
#include <set>

namespace orrery::ir {
namespace {

bool IsStepGradient(const Buffer& buffer) {
  return buffer.life == Life::kStep && buffer.cls == BufferClass::kGrad;
}

}  // namespace

BlocksOfBuffers::BlocksOfBuffers(const std::vector<std::vector<Touch>>& by_block, size_t buffers)
    : first_(buffers + 1, 0) {
  for (const auto& touches : by_block) {
    for (const Touch& touch : touches) ++first_[static_cast<size_t>(touch.buffer) + 1];
  }
  for (size_t b = 0; b < buffers; ++b) first_[b + 1] += first_[b];
  blocks_.resize(first_.back());
  std::vector<size_t> next(first_.begin(), first_.end() - 1);
  for (size_t b = 0; b < by_block.size(); ++b) {
    for (const Touch& touch : by_block[b]) blocks_[next[touch.buffer]++] = static_cast<int32_t>(b);
  }
}

Usage AnalyseUsage(const Program& program) {
  Usage usage;
  usage.by_block.resize(program.blocks.size());
  std::vector<int32_t> position(program.buffers.size(), -1);  // in the current block's touches
  for (size_t b = 0; b < program.blocks.size(); ++b) {
    auto& touches = usage.by_block[b];
    const auto& ops = program.blocks[b].ops;
    auto name = [&](ViewId view, int32_t op) {
      const BufferId buffer = program.views[view].buffer;
      if (position[buffer] < 0) {
        position[buffer] = static_cast<int32_t>(touches.size());
        touches.push_back({buffer, op, op});
      } else {
        touches[position[buffer]].last_op = op;
      }
    };
    for (size_t i = 0; i < ops.size(); ++i) {
      for (ViewId view : ops[i].in) name(view, static_cast<int32_t>(i));
      for (ViewId view : ops[i].out) name(view, static_cast<int32_t>(i));
    }
    for (const Touch& touch : touches) position[touch.buffer] = -1;
  }
  usage.blocks_of = BlocksOfBuffers(usage.by_block, program.buffers.size());
  return usage;
}

bool OnHost(const Program& program, const Op& op) {
  const auto on_host = [&](ViewId view) {
    return OnHost(program.buffers[program.views[view].buffer]);
  };
  return op.out.size() + op.in.size() > 0 && std::all_of(op.out.begin(), op.out.end(), on_host) &&
         std::all_of(op.in.begin(), op.in.end(), on_host);
}

std::vector<CallSpan> SpansOfBlocks(const std::vector<Call>& calls, size_t blocks,
                                    int micro_batches) {
  const std::vector<int32_t> none(micro_batches, -1);
  std::vector<CallSpan> spans(blocks, {none, none});
  for (size_t c = 0; c < calls.size(); ++c) {
    CallSpan& span = spans[calls[c].block];
    const int32_t m = calls[c].micro_batch;
    if (span.first[m] < 0) span.first[m] = static_cast<int32_t>(c);
    span.last[m] = static_cast<int32_t>(c);
  }
  return spans;
}

CallSpan Union(const std::vector<CallSpan>& spans, std::span<const int32_t> blocks) {
  CallSpan all = spans[blocks[0]];
  for (size_t i = 1; i < blocks.size(); ++i) {
    const CallSpan& span = spans[blocks[i]];
    for (size_t m = 0; m < all.first.size(); ++m) {
      if (span.first[m] < 0) continue;
      if (all.first[m] < 0 || span.first[m] < all.first[m]) all.first[m] = span.first[m];
      all.last[m] = std::max(all.last[m], span.last[m]);
    }
  }
  return all;
}

std::vector<CallSpan> FrameSpans(const Plan& plan, const Program& program, const Layout& layout,
                                 const Usage& usage) {
  const auto of_block = SpansOfBlocks(layout.calls, program.blocks.size(), plan.micro_batches);
  std::vector<CallSpan> spans;
  for (const Frame& frame : layout.frames) {
    spans.push_back(Union(of_block, usage.blocks_of[frame.buffers.front()]));
  }
  return spans;
}

std::vector<BufferId> SharedGradients(const Program& program) {
  std::set<int32_t> whole;
  for (const Buffer& buffer : program.buffers) {
    if (IsStepGradient(buffer) && buffer.unit_shard_axis < 0) whole.insert(buffer.unit);
  }
  std::vector<BufferId> shared;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const Buffer& buffer = program.buffers[b];
    if (!IsStepGradient(buffer) || buffer.unit_shard_axis < 0 || !whole.contains(buffer.unit))
      continue;
    shared.push_back(static_cast<BufferId>(b));
  }
  return shared;
}

}  // namespace orrery::ir
