// SPDX-License-Identifier: Apache-2.0
// Memory of one model chunk as a function of its layers, read from small lowered plans.
//
// A plan with one, two or three layers per chunk, and one whose ends have none, is lowered once for each kind of strategy; its buffers are
// classified as the layout does (step, frame, ring, scratch). From two to three layers step and frame
// bytes grow by the same amount as from n to n + 1. Alignment is left out, so that every figure is a lower
// bound of the layout's.
//
// For software that allocates tensor by tensor the ops of a call are read one by one instead of rings and scratch:
// what is alive beside the call's whole frames, less the part of them that is not yet or no longer alive. From three
// layers on an op keeps its distance from the call's first or last op.
#pragma once

#include <array>
#include <compare>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "model/memory/size_form.h"
#include "model/memory/software_memory.h"
#include "model/plan/lower/lower.h"

namespace orrery {

// Where a frame is born and where it dies: forward, backward, weight gradient.
enum class FrameKind { kFF, kFB, kFW, kBB, kBW, kWW };
inline constexpr int kFrameKinds = 6;
inline constexpr int kSlackGroups =
    3;  // frames without slack slots, received tensors, sent tensors

using FrameForms = std::array<std::array<SizeForm, kFrameKinds>, kSlackGroups>;

inline constexpr int kCallKinds = 3;  // forward, backward, weight gradient

// One op of a call: bytes beside the frames, and what each layer beyond those of the form adds (never more than 0).
struct OpForm {
  SizeForm bytes, per_layer;
  int op = 0;  // of its kind and segment, to find it in a plan with another number of layers
};

// One chunk with a given number of layers.
struct ChunkForm {
  // What each layout asks for lies side by side: searches read far more forms than a cache holds.
  SizeForm step;               // weights, gradients and their copies, optimizer state
  SizeForm once;               // of a stage, however many such chunks it has: dummy gradients
  SizeForm end;                // scratch of the block that ends the step
  SizeForm late;               // of `step`: gradients that the first backward pass makes
  std::vector<MaxForm> rings;  // by ring slot
  std::optional<SizeForm>
      all_rings;        // their sum, where each slot has one form; set by Prune() alone
  MaxForm scratch;      // of the blocks that run per micro-batch
  FrameForms frames{};  // one micro-batch each
  std::array<std::vector<OpForm>, kCallKinds>
      ops;  // without a static layout; in the end those that can be fullest
};

// What `layers` of a chunk need, for any number of layers.
struct ChunkForms {
  ChunkForm base;  // at zero layers: rings, scratch and ops unused
  ChunkForm per_layer;
  std::array<ChunkForm, 3> small;  // rings, scratch and ops with 1, 2, 3 layers or more
  std::optional<ChunkForm> none;   // all of it, of an end without layers

  const ChunkForm& Transient(double layers) const {
    return small[layers >= 3 ? 2 : layers >= 2 ? 1 : 0];
  }
};

// Chunk positions in a pipeline of several chunks, or the only chunk.
enum class ChunkPlace { kOnly, kFirst, kMiddle, kLast };

struct PlanForms {
  bool static_layout = false;
  std::array<int, kSlackGroups> slack{};  // extra slots of each group
  std::array<ChunkForms, 4> chunks;       // by ChunkPlace
  std::vector<ChunkForm> stages;  // instead of chunks: models whose layers differ, one per stage
  std::array<bool, kSlackGroups> holds{};  // some frame of the group has bytes
  bool frames_by_sample = false;           // no frame has bytes but those of samples
  bool by_stage() const { return !stages.empty(); }

  // Where some of the layers are recomputed: the forms above are those of plans that recompute nothing, and these hold for
  // the layers that are taken. A moment of such a plan holds less than the fullest one of the mixture.
  std::shared_ptr<const PlanForms> taken;
  Recompute recompute;

  // Number of those with the same frames: MemoryModel counts them, so that layouts that differ in ZeRO alone add up frames
  // once. -1: not counted.
  int frames = -1;
};

// The frames of both are the same, whatever the layout of the pipeline.
bool SameFrames(const PlanForms& a, const PlanForms& b);

// True for models whose chunks are not a repetition of one layer: their forms are read stage by stage.
bool NeedsStageForms(const ModelSpec& model);

// The strategy that stands for all with the same forms: degrees, micro-batch and schedule reduced.
Strategy FormStrategy(const ModelSpec& model, const Strategy& strategy);

// Refusal: such a strategy cannot be lowered.
std::variant<PlanForms, Refusal> ReadPlanForms(const ModelSpec& model, const Workload& work,
                                               const Strategy& form_strategy,
                                               const Allocation& allocation);

}  // namespace orrery
