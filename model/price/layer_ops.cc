// SPDX-License-Identifier: Apache-2.0
#include "model/price/layer_ops.h"

#include <algorithm>

#include "model/base/check.h"
#include "model/price/op_shape.h"
#include "model/price/op_term.h"

namespace orrery {
namespace {

std::vector<ShapedOp>* PhaseList(ir::Phase phase, SegmentOps* segment) {
  switch (phase) {
    case ir::Phase::kForward:
      return &segment->forward;
    case ir::Phase::kRecompute:
      return &segment->recompute;
    case ir::Phase::kBackward:
    case ir::Phase::kWeightGrad:
      return &segment->backward;
    case ir::Phase::kInput:
    case ir::Phase::kParamGather:
    case ir::Phase::kGradReduce:
    case ir::Phase::kGradNorm:
    case ir::Phase::kOptimizer:
    case ir::Phase::kPipeline:
      return nullptr;
    case ir::Phase::kSetup:
      return &segment->setup;
  }
  return nullptr;
}

// Of one pass: which hop brings what a buffer holds. All ranks of a ring do the same, so that the n-th message that a rank
// sends arrives with the n-th that it receives.
class Hops {
 public:
  // Marks a kernel that waits for one, and a hop that sends on what one has brought.
  void See(const ir::Program& program, const ir::Op& op, ShapedOp* shaped) {
    if (shaped != nullptr) {
      auto* hop = std::get_if<HopShape>(&shaped->shape);
      int& brought = hop != nullptr ? hop->forwards : shaped->awaited_hops;
      for (const ir::ViewId view : op.in) {
        const auto at = by_buffer_.find(BufferOf(program, view));
        if (at != by_buffer_.end() && (hop == nullptr || !made_.contains(at->first)))
          brought = std::max(brought, at->second);
      }
      if (hop == nullptr)
        for (const ir::ViewId view : op.out) made_.insert(BufferOf(program, view));
    }
    if (op.kind != ir::OpKind::kRecv) return;
    const ir::BufferId buffer = BufferOf(program, op.out.front());
    by_buffer_[buffer] = ++received_;
    made_.erase(buffer);
  }

 private:
  static ir::BufferId BufferOf(const ir::Program& program, ir::ViewId view) {
    return program.views[static_cast<std::size_t>(view)].buffer;
  }
  std::map<ir::BufferId, int> by_buffer_;
  std::set<ir::BufferId> made_;  // by a kernel, after what came
  int received_ = 0;
};

// A number for each slot of each ring of buffers.
int SlotOf(const ir::Program& program, ir::ViewId view) {
  const ir::Buffer& buffer =
      program
          .buffers[static_cast<std::size_t>(program.views[static_cast<std::size_t>(view)].buffer)];
  if (buffer.ring < 0) return -1;
  int slot = 0;
  for (int ring = 0; ring < buffer.ring; ++ring)
    slot += program.rings[static_cast<std::size_t>(ring)].slots;
  return slot + buffer.ring_index % program.rings[static_cast<std::size_t>(buffer.ring)].slots;
}

// Where the ops stand that read the weights of each flat unit.
class Units {
 public:
  Units(const ir::Program& program)
      : program_(program), segments_(program.units.size()), tails_(program.units.size()) {}
  void See(const ir::Op& op, SegmentOps* segment) {
    for (const ir::ViewId view : op.in) {
      const int32_t unit = UnitOf(view);
      if (unit >= 0 && segments_[At(unit)] == nullptr) segments_[At(unit)] = segment;
    }
  }
  // A reduction between the ranks of a layer.
  void SeeTail(const ir::Op& op) {
    const int32_t unit = UnitOf(op.in.front());
    if (unit >= 0) tails_[At(unit)].push_back(ViewBytes(program_, op.in.front()));
  }
  void Place() const {
    for (std::size_t unit = 0; unit < tails_.size(); ++unit) {
      if (segments_[unit] == nullptr) continue;
      std::vector<double>& all = segments_[unit]->tails;
      all.insert(all.end(), tails_[unit].begin(), tails_[unit].end());
    }
  }

 private:
  static std::size_t At(int32_t i) { return static_cast<std::size_t>(i); }
  int32_t UnitOf(ir::ViewId view) const {
    return program_.buffers[At(program_.views[At(view)].buffer)].unit;
  }
  const ir::Program& program_;
  std::vector<SegmentOps*> segments_;
  std::vector<std::vector<double>> tails_;
};

void Sort(const MicroBatchPlan& micro_batch, MicroBatchOps* out) {
  const ir::Program& program = micro_batch.plan.programs.front();
  Units units(program);
  std::map<const std::vector<ShapedOp>*, Hops> hops;
  for (const ir::Block& block : program.blocks) {
    for (const ir::Op& op : block.ops) {
      SegmentOps* segment = nullptr;
      switch (op.segment) {
        case ir::Segment::kEmbedding:
          segment = &out->embedding;
          break;
        case ir::Segment::kHead:
          segment = &out->head;
          break;
        case ir::Segment::kLayer: {
          if (op.layer < 0 && out->layers.size() > 1) {  // between two stacks, once
            segment = &out->embedding;
            break;
          }
          const std::size_t kind =
              out->layers.size() == 1 ? 0 : static_cast<std::size_t>(std::max<int>(op.layer, 0));
          ORRERY_CHECK(kind < out->layers.size(), "layer {} of {} kinds", kind, out->layers.size());
          segment = &out->layers[kind].ops;
          break;
        }
        case ir::Segment::kStep:
          if (op.kind == ir::OpKind::kMuon)
            out->matrix_update =
                std::get<UpdateShape>(ShapeOf(micro_batch.plan, program, op)->shape);
          if (op.kind == ir::OpKind::kAllReduce && op.phase == ir::Phase::kGradReduce &&
              AxisOf(micro_batch.plan, op) == CommAxis::kTensor)
            units.SeeTail(op);
          continue;
      }
      units.See(op, segment);
      std::vector<ShapedOp>* list = PhaseList(op.phase, segment);
      if (list == nullptr) continue;
      std::optional<ShapedOp> shaped = ShapeOf(micro_batch.plan, program, op);
      hops[list].See(program, op, shaped ? &*shaped : nullptr);
      if (op.kind == ir::OpKind::kRecv && !list->empty()) {  // of the send in front of it
        if (auto* hop = std::get_if<HopShape>(&list->back().shape))
          hop->to = SlotOf(program, op.out.front());
      }
      if (!shaped) continue;
      if (auto* hop = std::get_if<HopShape>(&shaped->shape))
        hop->from = SlotOf(program, op.in.front());
      if (auto* collective = std::get_if<CollectiveShape>(&shaped->shape)) {
        collective->context = AxisOf(micro_batch.plan, op) == CommAxis::kContext;
        collective->whole = op.attrs.Get(ir::Attr::kWhole) != 0;
      }
      if (list == &segment->recompute) segment->behind.push_back(segment->backward.size());
      list->push_back(*shaped);
    }
  }
  units.Place();
}

}  // namespace

std::variant<MicroBatchOps, Refusal> ShapeMicroBatch(const ModelSpec& model, const Workload& work,
                                                     const MicroBatchKey& key) {
  const auto lowered = LowerMicroBatch(model, work, key);
  if (const auto* refusal = std::get_if<Refusal>(&lowered)) return *refusal;
  const auto& micro_batch = std::get<MicroBatchPlan>(lowered);
  MicroBatchOps out;
  for (const MicroBatchPlan::LayerKind& kind : micro_batch.kinds)
    out.layers.push_back({{}, kind.scale, kind.count, kind.kept_bytes, kind.plain});
  Sort(micro_batch, &out);
  out.fp8_weights = key.fp8_weights && GathersCodes(work.fp8);
  out.cuts_adapters = key.adapter_split != AdapterSplit::kRows;
  out.boundary_bytes = micro_batch.boundary_bytes;
  out.layer_ranks = micro_batch.layer_ranks;
  out.table_ranks = micro_batch.table_ranks, out.head_ranks = micro_batch.head_ranks;
  out.gathers_boundary = micro_batch.gathers_boundary;
  out.context = micro_batch.context;
  out.ring = micro_batch.ring;
  MicroBatchOps::ForEach(out, [at = 0](ShapedOp& op) mutable { op.index = at++; });
  return out;
}

const std::variant<MicroBatchOps, Refusal>& ShapeCache::Of(const ModelSpec& model,
                                                           const Workload& work,
                                                           const MicroBatchKey& key) {
  Entry& entry = [&]() -> Entry& {
    const std::lock_guard lock(mutex_);
    return entries_[key];
  }();
  const std::lock_guard lock(entry.mutex);
  if (!entry.shape) entry.shape = ShapeMicroBatch(model, work, key);
  return *entry.shape;
}

}  // namespace orrery
