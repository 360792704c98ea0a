// SPDX-License-Identifier: Apache-2.0
// What one micro-batch asks of a rank, layer by layer: shapes of operations, no times.
#pragma once

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <variant>
#include <vector>

#include "model/plan/lower/micro_batch.h"
#include "model/price/op_shape.h"

namespace orrery {

struct SegmentOps {
  std::vector<ShapedOp> forward, recompute, backward;
  std::vector<ShapedOp> setup;  // once per step: casts of weights
  // Bytes of gradients that ranks of a layer add up when they are complete, by message.
  std::vector<double> tails;
  std::vector<std::size_t> behind;  // by op of `recompute`: ops of `backward` in front of it
  // Ops of `recompute` in front of all of `backward`: they want no gradient.
  std::size_t leading() const {
    return static_cast<std::size_t>(std::ranges::count(behind, std::size_t{0}));
  }
};

struct LayerKind {
  SegmentOps ops;
  double scale = 1;       // a layer costs `scale` times the ops
  double count = 0;       // layers of this kind in the model
  double kept_bytes = 0;  // as MicroBatchPlan::LayerKind
  bool plain = false;     // likewise
};

struct MicroBatchOps {
  SegmentOps embedding, head;
  std::vector<LayerKind> layers;
  bool fp8_weights = false;             // matrices are held in 8 bits
  bool cuts_adapters = false;           // both halves of an adapter, over the ranks of a layer
  double boundary_bytes = 0;            // that a rank passes on between two stages
  bool gathers_boundary = false;        // what a stage receives is a part on each of these ranks:
  int layer_ranks = 1;                  // that share a layer's weights
  int table_ranks = 1, head_ranks = 1;  // that share the token table, the output matrix
  MicroBatchPlan::Span context, ring;
  UpdateShape matrix_update;  // of one layer, whole: what an optimizer computes on its matrices

  // `visit(op)` for each of them but the update's.
  template <class Ops, class Visit>
  static void ForEach(Ops& ops, Visit visit) {
    const auto of = [&](auto& segment) {
      for (auto* list : {&segment.forward, &segment.recompute, &segment.backward, &segment.setup})
        for (auto& op : *list) visit(op);
    };
    of(ops.embedding), of(ops.head);
    for (auto& kind : ops.layers) of(kind.ops);
  }
};

// Refusal: as LowerMicroBatch().
std::variant<MicroBatchOps, Refusal> ShapeMicroBatch(const ModelSpec& model, const Workload& work,
                                                     const MicroBatchKey& key);

// Shapes of one model and workload (whatever its global batch), for those who cost them often. Threads may share one: each
// shape is made once.
class ShapeCache {
 public:
  // Stays valid.
  const std::variant<MicroBatchOps, Refusal>& Of(const ModelSpec& model, const Workload& work,
                                                 const MicroBatchKey& key);

 private:
  struct Entry {
    std::mutex mutex;
    std::optional<std::variant<MicroBatchOps, Refusal>> shape;
  };
  std::mutex mutex_;  // of the map
  std::map<MicroBatchKey, Entry> entries_;
};

}  // namespace orrery
