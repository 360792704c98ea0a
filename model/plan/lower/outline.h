// SPDX-License-Identifier: Apache-2.0
// The outline of a lowered plan: which messages a layout sends, how often, and what they run beside.
//
// The closed form folds prices over it instead of walking the plan, so that millions of layouts can be compared. It
// follows the rules by which stage_units.cc and stage_step.cc place messages; tests/parity lays both side by side.
#pragma once

#include <memory>
#include <vector>

#include "model/arch/model_spec.h"
#include "model/plan/lower/schedules.h"
#include "model/plan/lower/strategy.h"

namespace orrery {

// Layers of the chunks of a pipeline, by chunk: the stages of one run side by side, so that its slowest stage counts.
struct ChunkLayers {
  double entry = 0;       // of all stages in the first chunk
  double first = 0;       // of the chunk that holds the embedding
  double entry_most = 0;  // of the fullest other stage in the first chunk
  double inner = 0;       // of the fullest stage in each chunk but the first and the last, added up
  double exit_most = 0;   // of the fullest other stage in the last chunk
  double last = 0;        // of the chunk that holds the head
};

struct PipelineLayers {
  // Layers of the first, the last and the fullest other stage.
  double first_layers = 0, middle_layers = 0, last_layers = 0;
  int fullest = 1;                                     // that other stage
  int first_used = 1, middle_used = 1, last_used = 1;  // of their chunks, those that hold a layer
  // Layers of each chunk, in the order chunk x stages + stage; null: one stage.
  std::shared_ptr<const std::vector<int>> layout;
  ChunkLayers chunk_layers;
  // Where some layers of each chunk are recomputed and chunks differ in layers: the share of all layers that is; else 0.
  double recomputed = 0;
  // Layers that are recomputed beyond that share, of the same stages.
  double first_more = 0, middle_more = 0, last_more = 0;

  // And of a chunk of so many layers.
  double MoreRecomputed(const Recompute& recompute, int layers) const {
    return recomputed > 0 ? static_cast<double>(recompute.Taken(layers)) - recomputed * layers
                          : 0.0;
  }
};

PipelineLayers LayersOf(const ModelSpec& model, const Strategy& strategy);

struct PlanOutline : PipelineLayers {
  int stages = 1;
  int chunks = 1;  // of a stage
  double micro_batches = 1;
  bool accumulates =
      false;  // gradients of several micro-batches add up; seen in one of them alone too
  PassRules order;
  bool waits_for_round =
      false;  // a stage starts a forward pass only when an earlier micro-batch is back

  // Of kernels, by stage: 1.2 takes 20 % longer; null: none. Must outlive the outline.
  const std::vector<double>* slowdown = nullptr;

  // Inside the passes, per layer.
  bool gathers_weights = false;  // before each pass
  bool frees_head =
      false;  // the output matrix behind the logits: gathered again in front of its gradients
  bool scatters_gradients = false;                       // after each backward pass
  bool gather_overlaps = true, scatter_overlaps = true;  // with the kernels of other layers
  int gather_slots =
      0;  // of layers' gathered weights, taken in turn; 0: no ring, or in long chunks

  // Once per step.
  // Of gradients that were not scattered inside the passes; of those that were, between sharding groups.
  enum class Reduction : unsigned char { kNone, kAllReduce, kReduceScatter, kBetweenGroups };
  Reduction reduction = Reduction::kNone;
  bool reduction_overlaps = false;  // in the last backward pass; false: after it
  bool reduction_behind = false;    // beside it, but issued behind all passes: no reducer
  bool reduction_in_line = false;   // between kernels of the last backward pass
  bool whole_replicas = true;       // HoldsWholeReplicas()
  bool gathers_at_end = false;      // weights that the update left sharded
  bool end_gather_overlaps = true;  // with the next step
  bool reduces_outer = false;       // kReduceScatter: then between sharding groups
  double shards = 1;                // ranks that share optimizer state and update
  bool ties_stages = false;         // first and last stage add up the gradients of a shared table
  bool norm_messages = false;       // the update exchanges norms of sharded tensors

  Recompute recompute;

  // Where products are cast in 8 or 4 bits but for those of some layers, and stages differ in these: how many more of them a
  // chunk has than their share of its layers, in the order of PipelineLayers::layout; null: none. And by stage.
  std::shared_ptr<const std::vector<double>> plain;
  double first_plain = 0, middle_plain = 0, last_plain = 0;
  double MorePlain(std::size_t chunk) const { return plain ? (*plain)[chunk] : 0.0; }

  // In memory of the host (offload.h).
  double states_on_host = 0;       // share of a stage's parameters
  bool gradients_on_host = false;  // theirs go there behind each backward pass
  bool weights_on_host = false;    // each pass copies them before it gathers them
  bool moves_activations = false;  // of all layers of a chunk but the last,
  int moved_layers = 0;            // or, > 0, of the first so many

  double gradient_bytes = 2;  // per element
  double weight_bytes = 2;
};

// `layers`: LayersOf() the same pipeline, so that layouts that differ in sharding alone share it.
PlanOutline OutlineOf(const ModelSpec& model, const Workload& work, const Strategy& strategy,
                      const PipelineLayers& layers);

}  // namespace orrery
