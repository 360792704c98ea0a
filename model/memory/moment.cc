// SPDX-License-Identifier: Apache-2.0
// Walks a program in issue order and puts its moments into words.
#include "model/memory/moment.h"

#include <fmt/format.h>

#include "model/ir/usage.h"

namespace orrery {
namespace {

const char* PhaseWords(ir::Phase phase) {
  switch (phase) {
    case ir::Phase::kInput: return "input";
    case ir::Phase::kForward: return "forward";
    case ir::Phase::kBackward: return "backward";
    case ir::Phase::kWeightGrad: return "weight gradient";
    case ir::Phase::kRecompute: return "recomputation";
    case ir::Phase::kParamGather: return "parameter gathering";
    case ir::Phase::kGradReduce: return "gradient reduction";
    case ir::Phase::kGradNorm: return "gradient norm";
    case ir::Phase::kOptimizer: return "optimizer update";
    case ir::Phase::kPipeline: return "transfer between stages";
    case ir::Phase::kSetup: return "clearing of the gradients";
  }
  return "";
}

std::string Words(const ir::Op& op, bool in_step, int micro_batch) {
  std::string words = PhaseWords(op.phase);
  if (op.layer >= 0) {
    words += fmt::format(" of layer {}", op.layer);
  } else if (op.segment == ir::Segment::kHead) {
    words += " of the head";
  } else if (op.segment == ir::Segment::kEmbedding) {
    words += " of the embedding";
  }
  if (!in_step) words += fmt::format(", micro-batch {}", micro_batch);
  return words;
}

bool Unconditional(const ir::Op& op, const ir::Call& call) { return op.when == 0 || (op.when & call.flags) == op.when; }

// Live bytes op by op. Buffers that a skipped op names still live: the layout keeps their bytes.
class Walk {
 public:
  Walk(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout)
      : program_(program), layout_(layout), usage_(ir::AnalyseUsage(program)),
        spans_(ir::FrameSpans(plan, program, layout, usage_)) {}

  std::optional<Overflow> Find(int64_t budget) const {
    int64_t alive = 0;
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      if (layout_.scope[b] == ir::Layout::Scope::kStep) alive += ir::BufferBytes(program_.buffers[b]);
    }
    for (size_t c = 0; c < layout_.calls.size(); ++c) {
      const auto call = static_cast<int32_t>(c);
      const int32_t block = layout_.calls[c].block;
      std::vector<int64_t> born(program_.blocks[block].ops.size() + 1, 0), freed(born.size(), 0);
      for (const ir::Touch& touch : usage_.by_block[block]) Count(touch, call, born, freed);
      for (size_t op = 0; op + 1 < born.size(); ++op) {
        if (alive + born[op] > budget) {
          return Overflow{alive, DescribeMoment(program_, layout_, call, static_cast<int32_t>(op))};
        }
        alive += born[op] - freed[op];
      }
    }
    return std::nullopt;
  }

 private:
  void Count(const ir::Touch& touch, int32_t call, std::vector<int64_t>& born, std::vector<int64_t>& freed) const {
    const ir::Layout::Scope scope = layout_.scope[touch.buffer];
    if (scope == ir::Layout::Scope::kStep) return;
    const int64_t bytes = ir::BufferBytes(program_.buffers[touch.buffer]);
    const int32_t frame = layout_.frame_of[touch.buffer];
    const int32_t m = layout_.calls[call].micro_batch;
    if (frame < 0 || spans_[frame].first[m] == call) born[touch.first_op] += bytes;
    if (frame < 0 || spans_[frame].last[m] == call) freed[touch.last_op] += bytes;
  }

  const ir::Program& program_;
  const ir::Layout& layout_;
  const ir::Usage usage_;
  const std::vector<ir::CallSpan> spans_;
};

}  // namespace

PeakMoment DescribeMoment(const ir::Program& program, const ir::Layout& layout, int32_t call, int32_t op_index) {
  PeakMoment moment;
  moment.stage = program.stage;
  const ir::Call& at = layout.calls[call];
  const ir::Block& block = program.blocks[at.block];
  moment.block = block.name;
  moment.micro_batch = at.micro_batch;
  const bool in_step = at.block == 0 || at.block + 1 == static_cast<int32_t>(program.blocks.size());
  if (block.ops.empty()) return moment;
  const ir::Op& op = block.ops[op_index];
  moment.op = std::string(ir::Info(op.kind).name);
  moment.layer = op.layer;
  moment.phase = PhaseWords(op.phase);
  moment.words = Words(op, in_step, at.micro_batch);
  // The buffers that no earlier op of the block names; an op under a flag counts as executed.
  for (const ir::ViewId view : op.out) {
    const ir::BufferId id = program.views[view].buffer;
    if (layout.scope[id] == ir::Layout::Scope::kStep || !Unconditional(op, at)) continue;
    bool fresh = true;
    for (int32_t i = 0; i < op_index && fresh; ++i) {
      for (const ir::ViewId other : block.ops[i].out) fresh = fresh && program.views[other].buffer != id;
      for (const ir::ViewId other : block.ops[i].in) fresh = fresh && program.views[other].buffer != id;
    }
    const auto bytes = static_cast<double>(ir::BufferBytes(program.buffers[id]));
    if (!fresh || bytes <= moment.asked.value) continue;
    moment.asked = Bytes(bytes);
    moment.asked_tensor = program.buffers[id].name;
  }
  return moment;
}

std::optional<Overflow> FirstOverflow(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout,
                                      int64_t budget) {
  return Walk(plan, program, layout).Find(budget);
}

}  // namespace orrery
