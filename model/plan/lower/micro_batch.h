// SPDX-License-Identifier: Apache-2.0
// One micro-batch on one rank as a small plan: one layer of each kind, one stage, no data parallelism.
//
// Prices per layer read their shapes from it, so that they follow the lowering and not a second description of the model.
#pragma once

#include <compare>
#include <variant>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/arch/workload.h"
#include "model/plan/ir/plan.h"
#include "model/plan/lower/lower.h"
#include "model/plan/lower/strategy.h"

namespace orrery {

// The part of a strategy that changes what a micro-batch asks of a rank.
struct MicroBatchKey {
  int tp = 1;
  int cp = 1;
  ContextLayout context;  // of cp > 1
  int micro_batch = 1;
  bool sequence_parallel = false;
  Recompute recompute;  // of whole plans: partial() where only some of the layers are taken
  int64_t recomputed = 0, layers = 0;  // then: layers that are taken, all of them
  bool flash_attention = true;
  bool fp32_grads = false;
  bool recompute_unread = false;
  bool scatter_gather = true;
  bool whole_logits = false, whole_embedding = false, whole_head = false;
  bool split_products = false;
  AdapterSplit adapter_split = AdapterSplit::kRows;
  bool adapter_gathers = false, gathers_kept = false, reduces_apart = false;
  bool fp8_weights = false;
  bool operator==(const MicroBatchKey&) const = default;
  auto operator<=>(const MicroBatchKey&) const = default;
};

MicroBatchKey KeyOf(const ModelSpec& model, const Strategy& strategy);

// The key of the same plan: how many layers a partial recomputation takes is in the counts of its kinds alone.
MicroBatchKey PlanKey(MicroBatchKey key);

struct MicroBatchPlan {
  struct LayerKind {
    double count = 0;       // layers of this kind in the model
    double scale = 1;       // one of them costs `scale` times the plan's ops of that layer
    double kept_bytes = 0;  // of activations that its forward pass leaves for its backward pass
    bool plain = false;     // its products stay in the precision of the job, those of others do not
  };
  // Ranks of a group, and how many ranks lie between neighbours.
  struct Span {
    int ranks = 1, inner = 1;
  };
  ir::Plan plan;
  Span context, ring;  // that exchange what a layer's attention needs: in collectives, round a ring
  std::vector<LayerKind> kinds;         // by Op::layer; a single kind holds for every layer
  int layer_ranks = 1;                  // that share a layer's weights
  int table_ranks = 1, head_ranks = 1;  // that share the token table, the output matrix
  double boundary_bytes = 0;            // that a rank passes on between two stages
  bool gathers_boundary = false;        // which is a part, gathered again where it arrives
};

// The kinds of layers of LowerMicroBatch(), by Op::layer, without the bytes that they keep.
std::vector<MicroBatchPlan::LayerKind> LayerKinds(const ModelSpec& model, const Workload& work,
                                                  const MicroBatchKey& key);

// Refusal: the layout cannot be lowered (heads do not divide, ...).
std::variant<MicroBatchPlan, Refusal> LowerMicroBatch(const ModelSpec& model, const Workload& work,
                                                      const MicroBatchKey& key);

}  // namespace orrery
