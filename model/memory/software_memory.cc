// SPDX-License-Identifier: Apache-2.0
// Live bytes op by op, and the software's own on top.
#include "model/memory/software_memory.h"

#include <algorithm>
#include <set>

#include "model/ir/layout.h"
#include "model/ir/usage.h"

namespace orrery {
namespace {

bool IsLoss(ir::OpKind kind) {
  return kind == ir::OpKind::kXentMax || kind == ir::OpKind::kXentSum || kind == ir::OpKind::kXentGrad;
}

bool IsHalf(ir::Dtype dtype) { return ir::DtypeBytes(dtype) == 2; }

double HalfWeights(const ir::Program& program) {
  double weights = 0;
  for (const ir::BufferId id : CopiedGradients(program)) weights += static_cast<double>(program.buffers[id].elements);
  return weights;
}

// ZeRO 1 scatters the reduced gradients inside their own buffer (Megatron's distributed optimizer, DeepSpeed); the plan
// gives the shard bytes of its own beside the whole.
int64_t SharedGradients(const ir::Program& program) {
  std::set<int32_t> whole;
  int64_t bytes = 0;
  for (const ir::Buffer& buffer : program.buffers) {
    if (buffer.life != ir::Life::kStep || buffer.cls != ir::BufferClass::kGrad) continue;
    if (buffer.unit_shard_axis < 0) whole.insert(buffer.unit);
  }
  for (const ir::Buffer& buffer : program.buffers) {
    if (buffer.life != ir::Life::kStep || buffer.cls != ir::BufferClass::kGrad) continue;
    if (buffer.unit_shard_axis >= 0 && whole.contains(buffer.unit)) bytes += ir::BufferBytes(buffer);
  }
  return bytes;
}

// Walks a stage's calls in issue order, as LivePeak does, and notes the fullest op and the fullest op of the loss.
class LiveWalk {
 public:
  LiveWalk(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout)
      : program_(program), layout_(layout), usage_(ir::AnalyseUsage(program)),
        spans_(ir::FrameSpans(plan, program, layout_, usage_)) {}

  StageDemand Run() {
    StageDemand demand;
    demand.half_weights = HalfWeights(program_);
    int64_t alive = -SharedGradients(program_);
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) {
      if (layout_.scope[b] == ir::Layout::Scope::kStep) alive += ir::BufferBytes(program_.buffers[b]);
    }
    for (std::size_t c = 0; c < layout_.calls.size(); ++c) Walk(static_cast<int32_t>(c), &alive, &demand);
    return demand;
  }

 private:
  void Walk(int32_t call, int64_t* alive, StageDemand* demand) {
    const auto& block = program_.blocks[layout_.calls[call].block];
    born_.assign(block.ops.size() + 1, 0);
    freed_.assign(born_.size(), 0);
    for (const ir::Touch& touch : usage_.by_block[layout_.calls[call].block]) Count(touch, call);
    for (std::size_t i = 0; i < block.ops.size(); ++i) {
      *alive += born_[i];
      const auto live = static_cast<double>(*alive);
      demand->live = std::max(demand->live, live);
      if (IsLoss(block.ops[i].kind)) AtLoss(block.ops[i], live, demand);
      *alive -= freed_[i];
    }
    *alive -= freed_.back();
  }

  void AtLoss(const ir::Op& op, double live, StageDemand* demand) const {
    const ir::Buffer& logits = program_.buffers[program_.views[op.in.front()].buffer];
    demand->live_at_loss = std::max(demand->live_at_loss, live);
    if (IsHalf(logits.dtype)) demand->logits = std::max(demand->logits, static_cast<double>(logits.elements));
  }

  void Count(const ir::Touch& touch, int32_t call) {
    if (layout_.scope[touch.buffer] == ir::Layout::Scope::kStep) return;
    const int64_t bytes = ir::BufferBytes(program_.buffers[touch.buffer]);
    const int32_t frame = layout_.frame_of[touch.buffer];
    const int32_t m = layout_.calls[call].micro_batch;
    if (frame < 0 || spans_[frame].first[m] == call) born_[touch.first_op] += bytes;
    if (frame < 0 || spans_[frame].last[m] == call) freed_[touch.last_op] += bytes;
  }

  const ir::Program& program_;
  const ir::Layout& layout_;
  const ir::Usage usage_;
  const std::vector<ir::CallSpan> spans_;
  std::vector<int64_t> born_, freed_;
};

}  // namespace

std::vector<ir::BufferId> CopiedGradients(const ir::Program& program) {
  std::vector<ir::BufferId> weights;
  bool full_gradients = false;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const ir::Buffer& buffer = program.buffers[b];
    if (buffer.cls == ir::BufferClass::kGrad) full_gradients = full_gradients || !IsHalf(buffer.dtype);
    if (buffer.cls == ir::BufferClass::kParam && IsHalf(buffer.dtype)) weights.push_back(static_cast<ir::BufferId>(b));
  }
  return full_gradients ? weights : std::vector<ir::BufferId>();
}

StageDemand DemandOf(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout) {
  return LiveWalk(plan, program, layout).Run();
}

std::vector<StageDemand> DemandsOf(const ir::Plan& plan) {
  std::vector<StageDemand> demands;
  for (const ir::Program& program : plan.programs) {
    demands.push_back(DemandOf(plan, program, ir::ComputeLayout(plan, program)));
  }
  return demands;
}

Bytes AllocatorPeak(const StageDemand& demand, const StackProfile& stack) {
  const double loss = demand.live_at_loss + stack.memory_loss * demand.logits;
  return Bytes(std::max(demand.live, loss) + stack.memory_gradient_copy * demand.half_weights);
}

int Communicators(const Strategy& s) {
  int groups = 0;
  for (const int degree : {s.tp, s.pp, s.dp, s.dp_outer, s.cp, s.ep}) groups += degree > 1;
  return groups;
}

Bytes DeviceMemory(Bytes allocator, int communicators, const GpuProfile& gpu, const StackProfile& stack) {
  return allocator * (1.0 + stack.memory_fragmentation) + gpu.memory_context + stack.memory_buffers +
         stack.memory_communicator * static_cast<double>(communicators);
}

}  // namespace orrery
