// SPDX-License-Identifier: Apache-2.0
// What one micro-batch asks of a rank, layer by layer: shapes of operations, no times.
//
// The shapes are read from a small lowered plan (one layer of each kind, one stage, no data
// parallelism), so that costs follow the plan IR and not a second description of the model.
#pragma once

#include <map>
#include <variant>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/plan/lower/lower.h"
#include "model/plan/lower/strategy.h"
#include "model/price/op_shape.h"

namespace orrery {

struct SegmentOps {
  std::vector<ShapedOp> forward, recompute, backward;
};

struct LayerKind {
  SegmentOps ops;
  double scale = 1;  // a layer costs `scale` times the ops
  double count = 0;  // layers of this kind in the model
};

struct MicroBatchOps {
  SegmentOps embedding, head;
  std::vector<LayerKind> layers;
  double boundary_bytes = 0;  // activation between two layers, whole tensor
  UpdateShape matrix_update;  // of one layer, whole: what an optimizer computes on its matrices
};

// What distinguishes one set of shapes from another.
struct MicroBatchKey {
  int tp = 1;
  int cp = 1;  // context parallel ranks share a sequence; attention still sees all keys
  int micro_batch = 1;
  bool sequence_parallel = false;
  Recompute recompute = Recompute::kNone;
  bool flash_attention = true;
  bool fp32_grads = false;
  bool recompute_unread = false;
  bool scatter_gather = true;  // moves a boundary tensor once per tensor group, not once per rank
  bool operator==(const MicroBatchKey&) const = default;
  auto operator<=>(const MicroBatchKey&) const = default;
};

// Refusal: the layout cannot be lowered (heads do not divide, ...), or cp does not divide seq_len.
std::variant<MicroBatchOps, Refusal> ShapeMicroBatch(const ModelSpec& model, const Workload& work,
                                                     const MicroBatchKey& key);

// Shapes of one model and workload (whatever its global batch), for those who cost them often.
using ShapeCache = std::map<MicroBatchKey, std::variant<MicroBatchOps, Refusal>>;

}  // namespace orrery
