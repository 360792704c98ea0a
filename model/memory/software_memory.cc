// SPDX-License-Identifier: Apache-2.0
// Live bytes op by op, and the software's own on top.
#include "model/memory/software_memory.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "model/framework/presets.h"

namespace orrery {
namespace {

bool IsHalf(ir::Dtype dtype) { return ir::DtypeBytes(dtype) == 2; }

double HalfWeights(const ir::Program& program) {
  double weights = 0;
  for (const ir::BufferId id : CopiedGradients(program))
    weights += static_cast<double>(program.buffers[id].elements);
  return weights;
}

double ReducedGradients(const ir::Program& program) {
  std::set<ir::BufferId> reduced;
  for (const ir::Block& block : program.blocks) {
    for (const ir::Op& op : block.ops) {
      if (op.kind != ir::OpKind::kAllReduce) continue;
      const ir::BufferId id = program.views[op.in.front()].buffer;
      if (program.buffers[id].cls == ir::BufferClass::kGrad) reduced.insert(id);
    }
  }
  double bytes = 0;
  for (const ir::BufferId id : reduced)
    bytes += static_cast<double>(ir::BufferBytes(program.buffers[id]));
  return bytes;
}

// Queries x keys x samples of a layer, heads apart.
double PairsOf(const ir::Program& program) {
  for (const ir::Block& block : program.blocks) {
    for (const ir::Op& op : block.ops) {
      if (ir::Info(op.kind).op_class != ir::OpClass::kAttention) continue;
      const double queries = op.attrs.Get(ir::Attr::kSeq), keys = op.attrs.Get(ir::Attr::kSeqKv);
      return op.attrs.Get(ir::Attr::kBatch) * queries * (keys > 0 ? keys : queries);
    }
  }
  return 0;
}

// Bytes of the largest scores that an op of attention leaves.
double ScoresOf(const ir::Program& program) {
  double most = 0;
  for (const ir::Block& block : program.blocks) {
    for (const ir::Op& op : block.ops) {
      if (op.kind != ir::OpKind::kAttn || op.attrs.Get(ir::Attr::kFlash) != 0) continue;
      const ir::Buffer& scores = program.buffers[program.views[op.out[1]].buffer];
      most = std::max(most, static_cast<double>(ir::BufferBytes(scores)));
    }
  }
  return most;
}

// `live` bytes at an op of the loss.
void AtLoss(const ir::Program& program, const ir::Op& op, StepPlace place, double live,
            StageDemand* demand) {
  const ir::Buffer& logits = program.buffers[program.views[op.in.front()].buffer];
  if (live > demand->live_at_loss) {
    demand->live_at_loss = live;
    demand->loss = place;
  }
  if (IsHalf(logits.dtype))
    demand->logits = std::max(demand->logits, static_cast<double>(logits.elements));
}

}  // namespace

Allocation AllocationOf(const FrameworkProfile& framework) {
  // A compiled loss works in place on 16-bit logits, as the plan does.
  const bool in_place = framework.preset != nullptr && framework.preset->compile_loss;
  return {HoldingOf(framework),
          in_place ? 0 : framework.memory_loss,
          framework.memory_gradient_copy,
          framework.memory_reducer,
          framework.memory_moments_late > 0.5 && !framework.static_layout,
          framework.memory_mask,
          framework.preset != nullptr && framework.preset->dummy_weight_gradients,
          framework.preset != nullptr && framework.preset->scores_buffer};
}

std::vector<int64_t> FirstStepBytes(const ir::Program& program, const Allocation& allocation) {
  if (!allocation.moments_late) return {};
  std::vector<int64_t> bytes = HeldBytes(program, allocation.holding);
  bool absent = false;
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    const ir::Buffer& buffer = program.buffers[b];
    if (buffer.cls != ir::BufferClass::kOptimizer || buffer.life != ir::Life::kStep) continue;
    absent = absent || bytes[b] > 0;
    bytes[b] = 0;
  }
  return absent ? bytes : std::vector<int64_t>();
}

std::vector<ir::BufferId> CopiedGradients(const ir::Program& program) {
  std::set<int32_t> full_gradients;  // units
  for (const ir::Buffer& buffer : program.buffers) {
    if (buffer.cls == ir::BufferClass::kGrad && !IsHalf(buffer.dtype))
      full_gradients.insert(buffer.unit);
  }
  std::vector<ir::BufferId> weights;
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    const ir::Buffer& buffer = program.buffers[b];
    if (buffer.cls == ir::BufferClass::kParam && IsHalf(buffer.dtype) &&
        full_gradients.contains(buffer.unit))
      weights.push_back(static_cast<ir::BufferId>(b));
  }
  return weights;
}

double ShapesOfGradients(const ir::Program& program) {
  std::map<int32_t, int64_t> element;  // bytes, by unit
  for (const ir::Buffer& buffer : program.buffers) {
    if (buffer.cls == ir::BufferClass::kParam) element[buffer.unit] = ir::DtypeBytes(buffer.dtype);
  }
  std::set<std::array<int64_t, 3>> shapes;
  for (const ir::Block& block : program.blocks) {
    for (const ir::Op& op : block.ops) {
      if (op.kind != ir::OpKind::kMatmul) continue;
      const ir::Buffer& out = program.buffers[program.views[op.out.front()].buffer];
      if (out.cls != ir::BufferClass::kGrad && out.cls != ir::BufferClass::kGradTransient) continue;
      // Weights in 8 bits call themselves bf16.
      const int64_t bytes = std::max<int64_t>(2, out.unit < 0 ? 2 : element[out.unit]);
      shapes.insert({static_cast<int64_t>(op.attrs.Get(ir::Attr::kM)),
                     static_cast<int64_t>(op.attrs.Get(ir::Attr::kN)), bytes});
    }
  }
  double sum = 0;
  for (const auto& [rows, columns, bytes] : shapes)
    sum += static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(bytes);
  return sum;
}

bool ReadsLogits(ir::OpKind kind) {
  return kind == ir::OpKind::kXentMax || kind == ir::OpKind::kXentSum ||
         kind == ir::OpKind::kXentGrad;
}

StageDemand DemandOf(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout,
                     const Holding& holding) {
  StageDemand demand;
  demand.half_weights = HalfWeights(program);
  demand.arena = static_cast<double>(layout.arena_bytes);
  demand.reduced = ReducedGradients(program);
  demand.shapes = ShapesOfGradients(program);
  demand.pairs = PairsOf(program);
  demand.scores = ScoresOf(program);
  LiveWalk walk(plan, program, layout, holding, HeldBytes(program, holding));
  walk.Run([&](StepPlace place, int64_t, int64_t during) {
    const auto live = static_cast<double>(during);
    if (live > demand.live) {
      demand.live = live;
      demand.fullest = place;
    }
    const ir::Op& op = program.blocks[layout.calls[place.call].block].ops[place.op];
    if (ReadsLogits(op.kind)) AtLoss(program, op, place, live, &demand);
    return true;
  });
  return demand;
}

std::vector<StageDemand> DemandsOf(const ir::Plan& plan, const Holding& holding) {
  std::vector<StageDemand> demands;
  for (const ir::Program& program : plan.programs) {
    demands.push_back(DemandOf(plan, program, ir::ComputeLayout(plan, program), holding));
  }
  return demands;
}

StagePeak PeakOf(const StageDemand& demand, const Allocation& allocation) {
  StagePeak peak;
  const double base = allocation.holding.static_layout ? demand.arena : demand.live;
  const double copies = allocation.loss * demand.logits, mask = allocation.mask * demand.pairs;
  if (demand.live_at_loss + copies + mask > base) {
    peak.at = demand.loss;
    peak.live = Bytes(demand.live_at_loss);
    peak.loss_copies = Bytes(copies);
    peak.mask = Bytes(mask);
  } else {
    peak.at = demand.fullest;
    peak.live = Bytes(demand.live);
    peak.gaps = Bytes(base - demand.live);
  }
  peak.gradient_copies = Bytes(allocation.gradient_copy * demand.half_weights);
  peak.buckets = Bytes(allocation.reducer * demand.reduced);
  if (allocation.dummies) peak.dummies = Bytes(demand.shapes);
  if (allocation.scores) peak.scores = Bytes(demand.scores);
  return peak;
}

int Communicators(const Strategy& s) {
  int groups = 0;
  for (const int degree : {s.tp, s.pp, s.dp, s.dp_outer, s.cp, s.ep}) groups += degree > 1;
  return groups;
}

}  // namespace orrery
