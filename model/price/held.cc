// SPDX-License-Identifier: Apache-2.0
// Bytes by the op that writes a buffer.
#include "model/price/held.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "model/framework/presets.h"

namespace orrery {
namespace {

// Bytes that autograd holds for each of the 2 of an activation in 16 bits that such an op writes.
double TimesHeld(ir::OpKind kind, const Holding& holding) {
  switch (kind) {
    case ir::OpKind::kEmbed:
    case ir::OpKind::kAddPos:
    case ir::OpKind::kBiasResidual:
      return holding.fp32_residual ? 2 : 1;
    case ir::OpKind::kRmsNorm:  // 2 bytes, and 4 of its factor; or 2 of that and 4 of the input
      return !holding.eager_norm ? 1 : holding.fp32_residual ? 3 : 4;
    case ir::OpKind::kSwiglu:
      return holding.eager || holding.gate_apart ? 2 : 1;
    default:
      return 1;
  }
}

// Of a rotation in place of queries and keys that lie in one product with the values: values are a view of it, so that all of it
// stays, and rotated queries and keys beside it.
double TimesRotated(const ir::Op& op) {
  const double queries = op.attrs.Get(ir::Attr::kNh), keys = op.attrs.Get(ir::Attr::kKv);
  return 1 + (queries + keys) / (queries + 2 * keys);
}

// Of queries, keys and values in one product, when each head has a copy of its keys and values.
double TimesRepeated(const ir::Op& op) {
  const double heads = op.attrs.Get(ir::Attr::kNh), keys = op.attrs.Get(ir::Attr::kKv);
  return 1 + 2 * heads / (heads + 2 * (keys > 0 ? keys : heads));
}

class Factors {
 public:
  Factors(const ir::Program& program, const Holding& holding)
      : program_(program), holding_(holding), factors_(program.buffers.size(), 1) {}

  std::vector<double> Of() {
    if (holding_.static_layout) return std::move(factors_);
    for (const ir::Block& block : program_.blocks) {
      for (const ir::Op& op : block.ops) {
        if (!op.out.empty()) See(op);
      }
    }
    return std::move(factors_);
  }

 private:
  ir::BufferId BufferOf(ir::ViewId view) const { return program_.views[view].buffer; }

  bool IsHalfActivation(ir::BufferId id) const {
    const ir::Buffer& buffer = program_.buffers[id];
    return buffer.cls == ir::BufferClass::kActivation && ir::DtypeBytes(buffer.dtype) == 2;
  }

  void Raise(ir::BufferId id, double factor) {
    if (IsHalfActivation(id)) factors_[id] = std::max(factors_[id], factor);
  }

  void See(const ir::Op& op) {
    const ir::BufferId out = BufferOf(op.out.front());
    Raise(out, TimesHeld(op.kind, holding_));
    if (op.phase == ir::Phase::kBackward) return;
    if (holding_.keys_repeated && op.kind == ir::OpKind::kAttn &&
        op.attrs.Get(ir::Attr::kFlash) == 0)
      Raise(BufferOf(op.in.front()), TimesRepeated(op));
    if (op.kind == ir::OpKind::kQkNorm)
      normed_.insert(out);  // the plan has what is normed beside it
    if (holding_.rotated_apart && op.kind == ir::OpKind::kRope && op.in.size() == 1 &&
        !normed_.contains(out))
      Raise(out, TimesRotated(op));
    // x + a in fp32 is not saved where x is and a, which has 16 bits: a compiler adds them again.
    if (holding_.fp32_residual && !holding_.eager && op.kind == ir::OpKind::kBiasResidual) {
      const ir::BufferId x = BufferOf(op.in.front());
      if (const auto sum = sums_.find(x); sum != sums_.end() && sum->second == op.layer)
        factors_[x] = 1;
      sums_[out] = op.layer;
    }
  }

  const ir::Program& program_;
  const Holding& holding_;
  std::vector<double> factors_;
  std::set<ir::BufferId> normed_;         // products whose queries and keys are normed
  std::map<ir::BufferId, int16_t> sums_;  // residual sums, and their layer
};

// Frozen weights have no fp32 copy that their shards in 16 bits could be cast from.
std::set<int32_t> UnitsWithMasters(const ir::Program& program) {
  std::set<int32_t> units;
  for (const ir::Buffer& buffer : program.buffers) {
    if (buffer.cls == ir::BufferClass::kMaster) units.insert(buffer.unit);
  }
  return units;
}

// One of several stages of a pipeline.
bool IsStage(const ir::Program& program) {
  return std::ranges::any_of(program.blocks, [](const ir::Block& block) {
    return std::ranges::any_of(block.ops,
                               [](const ir::Op& op) { return op.phase == ir::Phase::kPipeline; });
  });
}
bool RunsBackward(const ir::Block& block) {
  return std::ranges::any_of(block.ops,
                             [](const ir::Op& op) { return op.phase == ir::Phase::kBackward; });
}

}  // namespace

Holding HoldingOf(const FrameworkProfile& framework) {
  Holding holding;
  holding.static_layout = framework.static_layout;
  if (framework.static_layout) return holding;
  holding.gradients_late = framework.memory_gradients_late > 0.5;
  holding.cast_shards = framework.memory_cast_shards > 0.5;
  if (framework.preset != nullptr) {
    holding.fp32_residual = framework.preset->autocast;
    holding.eager = !framework.preset->compile;
    holding.eager_norm = holding.eager && !framework.preset->fused_norm;
    holding.gathers_stay = framework.preset->reduce_once_in_pipelines;
    holding.rotated_apart = !framework.preset->defaults.split_products;
    holding.gate_apart = !framework.preset->fused_gate;
    holding.keys_repeated = framework.preset->repeats_keys;
  }
  return holding;
}

std::vector<int64_t> HeldBytes(const ir::Program& program, const Holding& holding) {
  std::vector<int64_t> bytes(program.buffers.size());
  const std::vector<double> factors = Factors(program, holding).Of();
  const std::set<int32_t> masters = UnitsWithMasters(program);
  for (std::size_t b = 0; b < bytes.size(); ++b) {
    const ir::Buffer& buffer = program.buffers[b];
    const bool cast = holding.cast_shards && buffer.cls == ir::BufferClass::kParam &&
                      buffer.unit_shard_axis >= 0 && ir::DtypeBytes(buffer.dtype) == 2 &&
                      masters.contains(buffer.unit);
    if (ir::OnHost(buffer) || cast) continue;
    bytes[b] = static_cast<int64_t>(static_cast<double>(ir::BufferBytes(buffer)) * factors[b]);
  }
  if (!holding.static_layout) {
    for (const ir::BufferId id : ir::SharedGradients(program)) bytes[id] = 0;
  }
  return bytes;
}

// PyTorch's torch/distributed/pipelining/stage.py, backward_maybe_with_nosync: set_reshard_after_backward(False) of all
// modules. What the next forward pass frees, layer by layer, counts here up to the end of the backward pass.
ir::Usage HeldUsage(const ir::Program& program, const Holding& holding) {
  ir::Usage usage = ir::AnalyseUsage(program);
  if (!holding.gathers_stay || !IsStage(program)) return usage;
  for (std::size_t b = 0; b < program.blocks.size(); ++b) {
    const ir::Block& block = program.blocks[b];
    if (!RunsBackward(block)) continue;
    for (ir::Touch& touch : usage.by_block[b]) {
      const ir::Buffer& buffer = program.buffers[touch.buffer];
      if (buffer.cls == ir::BufferClass::kGathered && usage.blocks_of[touch.buffer].size() == 1)
        touch.last_op = static_cast<int32_t>(block.ops.size()) - 1;
    }
  }
  return usage;
}

bool ComesLate(const ir::Buffer& buffer, const Holding& holding) {
  return holding.gradients_late && buffer.cls == ir::BufferClass::kGrad &&
         buffer.life == ir::Life::kStep;
}

std::vector<StepPlace> HeldFrom(const ir::Program& program, const ir::Layout& layout,
                                const ir::Usage& usage, const Holding& holding) {
  constexpr StepPlace kBegin{-1, -1};
  std::vector<StepPlace> from(program.buffers.size(), kBegin);
  if (!holding.gradients_late) return from;
  // The first block sets gradients to zero: software that makes them late has nothing to set there.
  for (std::size_t c = 0; c < layout.calls.size(); ++c) {
    const int32_t block = layout.calls[c].block;
    if (block == 0) continue;
    for (const ir::Touch& touch : usage.by_block[block]) {
      StepPlace& place = from[touch.buffer];
      if (place == kBegin && ComesLate(program.buffers[touch.buffer], holding))
        place = {static_cast<int32_t>(c), touch.first_op};
    }
  }
  return from;
}

}  // namespace orrery
