// SPDX-License-Identifier: Apache-2.0
// Walks a program in issue order and puts its moments into words.
#include "model/memory/moment.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/memory/live_walk.h"
#include "model/plan/ir/usage.h"

namespace orrery {
namespace {

const char* PhaseWords(ir::Phase phase) {
  switch (phase) {
    case ir::Phase::kInput:
      return "input";
    case ir::Phase::kForward:
      return "forward";
    case ir::Phase::kBackward:
      return "backward";
    case ir::Phase::kWeightGrad:
      return "weight gradient";
    case ir::Phase::kRecompute:
      return "recomputation";
    case ir::Phase::kParamGather:
      return "parameter gathering";
    case ir::Phase::kGradReduce:
      return "gradient reduction";
    case ir::Phase::kGradNorm:
      return "gradient norm";
    case ir::Phase::kOptimizer:
      return "optimizer update";
    case ir::Phase::kPipeline:
      return "transfer between stages";
    case ir::Phase::kSetup:
      return "clearing of the gradients";
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

bool Unconditional(const ir::Op& op, const ir::Call& call) {
  return op.when == 0 || (op.when & call.flags) == op.when;
}

// Copies of the logits that exist before an op of the loss, and those that it makes: one in fp32, one less its maxima, the
// exponentials, one each in the order of the plan's three ops.
struct LossCopies {
  double before = 0, made = 0;
};
LossCopies CopiesOf(const ir::Program& program, const ir::Op& op, const Allocation& allocation) {
  if (!ReadsLogits(op.kind)) return {};
  const ir::Buffer& logits = program.buffers[program.views[op.in.front()].buffer];
  if (ir::DtypeBytes(logits.dtype) != 2) return {};
  constexpr double kCopy = 4;  // bytes per logit
  const int earlier = op.kind == ir::OpKind::kXentMax ? 0 : op.kind == ir::OpKind::kXentSum ? 1 : 2;
  const double before = std::min(kCopy * earlier, allocation.loss);
  const double made =
      earlier == 2 ? allocation.loss - before : std::min(kCopy, allocation.loss - before);
  const auto elements = static_cast<double>(logits.elements);
  return {before * elements, made * elements};
}

std::optional<Overflow> OverflowOf(const ir::Plan& plan, const ir::Program& program,
                                   const ir::Layout& layout, const Allocation& allocation,
                                   std::vector<int64_t> bytes, int64_t budget) {
  std::optional<Overflow> found;
  LiveWalk walk(plan, program, layout, allocation.holding, std::move(bytes));
  walk.Run([&](StepPlace place, int64_t before, int64_t during) {
    const ir::Op& op = program.blocks[layout.calls[place.call].block].ops[place.op];
    const LossCopies copies = CopiesOf(program, op, allocation);
    if (static_cast<double>(during) + copies.before + copies.made <= static_cast<double>(budget))
      return true;
    found = Overflow{before + static_cast<int64_t>(copies.before),
                     DescribeMoment(program, layout, place.call, place.op)};
    if (copies.made > found->moment.asked.value) {
      found->moment.asked = Bytes(copies.made);
      found->moment.asked_tensor = copies.before > 0 ? "the fp32 loss, in addition to the logits"
                                                     : "a copy of the logits in fp32";
    }
    return false;
  });
  return found;
}

}  // namespace

PeakMoment DescribeMoment(const ir::Program& program, const ir::Layout& layout, int32_t call,
                          int32_t op_index) {
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
      for (const ir::ViewId other : block.ops[i].out)
        fresh = fresh && program.views[other].buffer != id;
      for (const ir::ViewId other : block.ops[i].in)
        fresh = fresh && program.views[other].buffer != id;
    }
    const auto bytes = static_cast<double>(ir::BufferBytes(program.buffers[id]));
    if (!fresh || bytes <= moment.asked.value) continue;
    moment.asked = Bytes(bytes);
    moment.asked_tensor = program.buffers[id].name;
  }
  return moment;
}

std::optional<Overflow> FirstOverflow(const ir::Plan& plan, const ir::Program& program,
                                      const ir::Layout& layout, const Allocation& allocation,
                                      int64_t budget) {
  if (std::vector<int64_t> first = FirstStepBytes(program, allocation); !first.empty()) {
    auto found = OverflowOf(plan, program, layout, allocation, std::move(first), budget);
    // From the optimizer's update on, the moments are there.
    if (found && found->moment.phase != PhaseWords(ir::Phase::kOptimizer)) {
      found->first_step = true;
      return found;
    }
  }
  return OverflowOf(plan, program, layout, allocation, HeldBytes(program, allocation.holding),
                    budget);
}

}  // namespace orrery
