// SPDX-License-Identifier: Apache-2.0
// Transformer layers: attention, cross-attention and MLP sublayers, forward, backward and recompute.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "model/plan/lower/stage_builder.h"

namespace orrery {

enum class SubKind { kAttention, kCrossAttention, kMlp };

// A and B of one map, see model/arch/lora.h.
struct Adapter {
  ParamRef a, b;
  explicit operator bool() const { return static_cast<bool>(a); }
};

// One residual sublayer. `in` maps the normalised input to the inner width (qkv, q, fc1), `out` back (o, fc2).
struct Sublayer {
  SubKind kind = SubKind::kMlp;
  std::string tag;  // "attn", "xattn", "mlp"
  bool causal = true;
  ParamRef norm_gamma, norm_beta, in_w, in_b, kv_w, kv_b, out_w, out_b;
  ParamRef k_w, k_b, v_w, v_b, up_w,
      up_b;  // of split products, where `in` is queries or gates alone
  ParamRef qk_gamma, out_gamma,
      out_beta;            // norms of queries and keys, and of the sublayer's output
  ParamRef relative_bias;  // shared table of the stack (T5)
  std::array<Adapter, 3>
      in_adapters;  // of the whole map; or of queries, keys, values; or of gate, up
  Adapter out_adapter;

  bool TakesIn() const {
    return std::ranges::any_of(in_adapters, [](const Adapter& a) { return static_cast<bool>(a); });
  }
};
// Sublayers that read the same input; the residual stream takes up the sum of their outputs. One of them, or attention and
// MLP of a parallel block, where one without a norm of its own reads that of the one before.
using Branches = std::vector<Sublayer>;
// Whether products of weights of their own stand where others have one (Strategy::split_products).
bool SplitsProducts(const ModelSpec& model, const Workload& work, const Strategy& strategy,
                    SubKind kind);
inline bool SplitsProducts(const LowerContext& ctx, SubKind kind) {
  return SplitsProducts(ctx.model, ctx.work, ctx.strategy, kind);
}

struct Layer {
  int index = 0;                // global; T5 decoder layers follow the encoder's
  std::vector<int> units;       // whose gradients its backward pass makes
  unsigned char recompute = 0;  // modules, RecomputeModule
  std::vector<Branches> blocks;

  bool Recomputes(RecomputeModule module) const { return (recompute & module) != 0; }
};

// Declares the parameters of `count` layers from `first` as one flat unit. `decoder_stack`: T5's decoder. `in_chunk`: the
// place of the first of them in its chunk or stack, by which layers are chosen for recomputation.
std::vector<Layer> AddLayerUnit(StageBuilder& stage, int first, int count, bool decoder_stack,
                                ParamRef relative_bias, int64_t in_chunk);

// Reads x, writes y (views of the residual stream); `memory`: encoder output for cross-attention (full sequence).
// `prefix` names the activations: "" kept for backward, "t." gone after the block, "r." recomputed. `for_backward_only`:
// the last matrix product and what follows it are left out when the backward pass does not need them.
void LayerForward(StageBuilder& stage, const Layer& layer, const std::string& prefix, ir::ViewId x,
                  ir::ViewId y, ir::ViewId memory, bool for_backward_only);

// Reads dy and the activations, writes dx; weight gradients go to block `wgrad_block` (the current one, or W).
// `dmemory`: gradient of the encoder output, accumulated (partial over the tensor axis). dx -1: no one reads it.
void LayerBackward(StageBuilder& stage, const Layer& layer, ir::ViewId x, ir::ViewId dy,
                   ir::ViewId dx, ir::ViewId memory, ir::ViewId dmemory, int wgrad_block);

// Of the activations that F leaves for B: nothing of a layer that is recomputed whole.
std::string ForwardPrefix(const Layer& layer);

// Norms, shared with embedding and head. Statistics are kept beside the output as `<name>.s`.
ir::ViewId EmitNorm(StageBuilder& stage, const std::string& name, ir::ViewId x, ParamRef gamma,
                    ParamRef beta, int64_t rows, ir::ViewId y);
void EmitNormBackward(StageBuilder& stage, const std::string& name, ir::ViewId dy, ir::ViewId x,
                      ParamRef gamma, int64_t rows, ir::ViewId dx, ir::ViewId residual);
void EmitNormWeightGrad(StageBuilder& stage, const std::string& name, ir::ViewId dy, ir::ViewId x,
                        ParamRef gamma, ParamRef beta, int64_t rows);

// Runs `emit` with the cursor on another block and phase kWeightGrad, then returns.
template <class Emit>
void InWeightGradBlock(StageBuilder& stage, int block, Emit emit) {
  const int before = stage.block();
  const ir::Phase phase = stage.phase();
  stage.SelectBlock(block);
  stage.SetPhase(ir::Phase::kWeightGrad);
  emit();
  stage.SelectBlock(before);
  stage.SetPhase(phase);
}

}  // namespace orrery
