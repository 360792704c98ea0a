// SPDX-License-Identifier: Apache-2.0
// How a training step is laid out over the ranks: every choice that the lowering knows.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/arch/workload.h"

namespace orrery {

// Modules of a layer whose activations the backward pass makes again, by Megatron-Core's names for --recompute-modules,
// and `full`, the layer. Of `mlp` and `full` the input is kept; of the others what they read is kept anyway. The last three
// are single products, two of which only software that splits products has (Strategy::split_products).
enum RecomputeModule : unsigned char {
  kRecomputeCoreAttention = 1,  // core_attn: scores or statistics, context
  kRecomputeNorms = 2,          // layernorm: outputs of the norms in front of attention and MLP
  kRecomputeActivation = 4,     // mlp_act: the activation between the products of the MLP
  kRecomputeMlp = 8,            // mlp: both of its inner tensors
  kRecomputeLayer = 16,
  kRecomputeKeys = 32,  // key_proj: keys, and positions of queries and keys
  kRecomputeOut =
      64,  // attn_proj: the residual stream behind attention; of ranks that share a layer it is kept
  kRecomputeUp = 128,  // mlp_up: what the activation multiplies its gate with
};

// Which modules of which layers: of the first `first` layers of each model chunk (Megatron's method block; 0: of all), of
// those each `every`-th one (torchtitan's selective by layer).
struct Recompute {
  unsigned char modules = 0;
  int first = 0;
  int every = 1;

  bool partial() const { return modules != 0 && (first > 0 || every > 1); }
  // Of a layer that stands at `index` in its chunk.
  unsigned char Of(int64_t index) const {
    const bool taken = (first == 0 || index < first) && (index + 1) % every == 0;
    return taken ? modules : static_cast<unsigned char>(0);
  }
  // Layers that are taken, of a chunk of `layers`.
  int64_t Taken(int64_t layers) const {
    return (first > 0 && first < layers ? first : layers) / every;
  }
  static const Recompute kNone, kSelective, kFull, kByOp;
  bool operator==(const Recompute&) const = default;
  auto operator<=>(const Recompute&) const = default;
};
inline constexpr Recompute Recompute::kNone{};
inline constexpr Recompute Recompute::kSelective{kRecomputeCoreAttention};
inline constexpr Recompute Recompute::kFull{kRecomputeLayer};
// torchtitan's selective_ac_option "op": attention and every second product are kept, all else is made again.
inline constexpr Recompute Recompute::kByOp{kRecomputeNorms | kRecomputeActivation |
                                            kRecomputeKeys | kRecomputeOut | kRecomputeUp};

// kZeroBubbleV: stage s has the chunks s and 2 pp - 1 - s of 2 pp, so that the first stage has both ends of the model.
enum class PipelineSchedule { kGpipe, k1F1B, kInterleaved, kZeroBubble, kZeroBubbleV };

// How ranks that share a sequence meet the keys of the others:
//   allgather  all keys and values are gathered, their gradients scattered
//   ring       keys and values go round, a hop behind each step of attention (Liu et al. 2023)
//   ulysses    ranks change parts of the sequence for heads (Jacobs et al. 2023)
//   a2a_ring   ulysses among `inner` neighbours, a ring between them (TransformerEngine a2a+p2p)
enum class CpMethod { kAllGather, kRing, kUlysses, kA2aRing };

// How tensor ranks share the two matrices of an adapter, A [rank, in] and B [out, rank], beside a map into a sublayer and a
// map out of it:
//   rows         A of the map in and B of the map out are whole on each rank and work on its rows; what passes between
//                tensor ranks is `rank` wide
//   columns      A and B are cut as NVIDIA's ParallelLinearAdapter cuts them, and see all rows: of the map in both by
//                outputs; of the map out A by inputs and B by outputs, which are gathered, and of which sequence
//                parallelism then takes this rank's rows: backward gathers their gradient again
//   columns_a2a  the same, but ranks exchange columns of B's output for rows (a2a_experimental), with sequence parallelism
enum class AdapterSplit { kRows, kColumns, kColumnsA2a };

struct ContextLayout {
  CpMethod method = CpMethod::kRing;
  int inner = 1;       // a2a_ring alone
  bool zigzag = true;  // order of the rows: model/plan/ir/positions.h
  bool operator==(const ContextLayout&) const = default;
  auto operator<=>(const ContextLayout&) const = default;
};

// With the order of rows that the method asks for: where each rank sees whole sequences, chunks are balanced as they are.
inline ContextLayout ContextOf(CpMethod method, int inner = 1) {
  return {method, inner, method != CpMethod::kUlysses};
}

// What lies in memory of the host while the GPU does not need it.
struct Offload {
  // Share of a stage's trained parameters whose master weights and moments are on the host, where the CPU updates them
  // (ZeRO-Offload, Ren et al. 2021): whole units, from the first on.
  double optimizer = 0;
  // What the backward pass reads of each layer of a chunk but the last goes to the host behind the layer's forward pass, and
  // is back one layer ahead (the layer-wise offload of TransformerEngine and Megatron-Core).
  bool activations = false;
  // Weights, too, and the CPU updates them there (DeepSpeed offload_param, FSDP's CPUOffloadPolicy): each use copies a
  // unit to the device, under ZeRO 3 the rank's shard in front of its gather. With `optimizer` 1 and ZeRO 3 alone.
  bool weights = false;
  int activation_layers =
      0;  // activations of the first so many layers of each chunk; 0: of all but the last

  bool on() const { return optimizer > 0 || activations || weights; }
  bool operator==(const Offload&) const = default;
  auto operator<=>(const Offload&) const = default;
};

// Where ranks are. A launcher numbers them node by node; neighbours of the innermost axis are next to each other.
struct Placement {
  // The order of axes, innermost first: tp, cp, then stages, then data ranks; else data ranks, then stages.
  bool stages_inside = false;
  std::vector<int32_t> nodes;  // of the topology, in the order of ranks; empty: as it numbers them

  bool plain() const { return !stages_inside && nodes.empty(); }
  bool operator==(const Placement&) const = default;
};

// ranks = pp * dp_outer * dp * ep * cp * tp. global_batch = dp_outer * dp * micro_batch * accumulation.
struct Strategy {
  int tp = 1;
  int pp = 1;
  int dp = 1;  // ZeRO shards over this axis
  int dp_outer =
      1;       // hybrid sharding: replicas of the sharded group (node-hybrid: dp = GPUs per node)
  int cp = 1;  // ranks that share each sequence
  int ep = 1;  // must be 1 for now: refused by name
  ContextLayout context;  // of cp > 1
  int vpp = 1;            // model chunks per stage (interleaved)
  int micro_batch = 1;    // sequences
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  int zero = 0;  // ZeRO stage 0..3
  bool sequence_parallel = false;
  Recompute recompute;
  Offload offload;
  bool flash_attention = true;  // attention probabilities are never materialised
  bool recompute_unread =
      false;  // recomputation of layers and MLPs repeats their whole forward pass, as
              // torch.utils.checkpoint does, not only what backward reads

  // Fine knobs, each with the default of the reference framework.
  bool overlap_grad_reduce = true;   // data-parallel reduction on its own stream
  bool overlap_param_gather = true;  // ZeRO gathers on their own stream
  bool reduce_in_backward =
      false;  // gradients that are reduced once per step: inside the last backward call, not after it
  bool reduce_once =
      false;  // ZeRO 2/3: gradients of all micro-batches add up whole on each rank and are
              // reduced once per step (FSDP's no_sync), not behind each backward pass
  bool split_products =
      false;  // queries, keys and values, and gate and up, are products of weights of their own, where
  // the model has rotary positions without norms of queries, or a gate; not with adapters
  AdapterSplit adapter_split = AdapterSplit::kRows;
  bool adapter_gathers =
      false;  // columns with sequence parallelism: adapters of maps in gather their input, and scatter its
  // gradient, by themselves: the map's own gather is cut in pieces and leaves no whole tensor
  bool gathers_kept =
      false;  // sequence parallelism: what was gathered for products is kept for the gradients of
              // their weights (DTensor), not its part, which is gathered again for them (Megatron)
  bool reduces_apart =
      false;  // tp > 1: the gradients that several products have of one input are reduced each by
              // itself (DTensor's ColwiseParallel of each map), not as their sum; not with adapters
  bool whole_logits =
      false;  // a tensor rank gathers the logits of the whole vocabulary for its loss
  bool whole_embedding =
      false;  // each tensor rank holds the whole token table and looks up all tokens; not where it
              // is tied to the output matrix
  bool whole_head = false;  // the same of the output matrix: each tensor rank computes all logits
  bool free_head =
      false;              // ZeRO 3: the output matrix is freed behind the logits and gathered again
                          // for the gradient of their input
  bool tp_async = false;  // tensor-parallel collectives on their own stream
  bool scatter_gather =
      true;  // tp and pp > 1 without sequence parallelism: a tensor rank sends its 1/tp of
             // a boundary tensor; the next stage's tensor group gathers them (Narayanan et
             // al. 2021, section 4.1); else every tensor rank sends the whole tensor
  int bucket_layers = 1;   // layers per flat unit (gradient bucket, ZeRO gather)
  int prefetch = 1;        // ZeRO 3: uses gathered ahead, 0..2
  bool rings = true;       // buffers touched by a second stream get their own ring
  int recv_slots = 1;      // extra slots of received tensors
  int send_slots = 2;      // ring slots of sent tensors
  bool frame_pool = true;  // one slot pool over chunks of equal frame size
  // Weights of products in 8 bits are held as codes and gathered so: what the update leaves in fp32 is cast once, on the rank
  // that updates it, and no copy in 16 bits exists (coded.h). With MXFP8 gathers move 16 bits, once a step, of which each rank
  // makes and holds both casts alone. Without such products it must be false.
  bool fp8_weights = false;
  // Gradients whose states are on the host go there behind each reduction, and the sum of earlier micro-batches comes back for
  // each; else once, when their norm is known. Where StreamsGradients() says so.
  bool gradients_on_host = false;
  bool fp32_grads = false;       // accumulate and reduce gradients in fp32 (with fp16/bf16)
  bool count_embedding = false;  // pipeline balance: the embedding counts as a layer
  bool count_head = false;       // pipeline balance: the head counts as a layer
  // Layers of each model chunk, in the order of the layers (chunk x stages + stage, unless the chunks lie in a V); null: by
  // the rule of balance.h.
  std::shared_ptr<const std::vector<int>> layout;
  std::shared_ptr<const Placement> placement;  // null: the plain one

  bool stages_inside() const { return placement && placement->stages_inside; }
  // Ranks between neighbours along the data axes (without cp), and between neighbouring stages.
  int inside_data() const { return tp * (stages_inside() ? pp : 1); }
  int inside_stages() const { return tp * cp * (stages_inside() ? 1 : dp * dp_outer); }
  int64_t ranks() const { return int64_t{1} * tp * pp * dp * dp_outer * cp * ep; }
  int64_t data_parallel() const { return int64_t{1} * dp * dp_outer; }
  int64_t shards() const { return int64_t{1} * dp * cp; }  // that ZeRO makes of weights and states
};

// Where each backward pass leaves shards of gradients, or one rank has them all; no whole gradient stays on the device. In a pipeline
// without shards of gradients they leave once a step: DeepSpeed's PipelineEngine asserts a ZeRO stage below 2.
inline bool StreamsGradients(const Strategy& s) {
  const bool scatters = s.zero >= 2 && !s.reduce_once && s.shards() > 1;
  return s.gradients_on_host && s.offload.optimizer > 0 &&
         (scatters || (s.pp == 1 && s.data_parallel() * s.cp == 1));
}

// Recipes whose weights are gathered as codes where they are held so.
inline bool GathersCodes(Fp8 recipe) {
  return recipe == Fp8::kDelayed || recipe == Fp8::kCurrent || recipe == Fp8::kBlockwise;
}
// Whether weights can be held in 8 bits (fp8_weights): products read them as they are, a master copy keeps what they are cast
// from. The two casts of a weight that MXFP8 needs differ: both come from numbers, which a rank without the whole of them
// gathers first (Megatron-Core's --reuse-grad-buf-for-mxfp8-param-ag; ZeRO 3 does so for each pass anyway).
inline bool CanHoldCodes(const Workload& work, const Strategy& s) {
  const bool gathered_once =
      work.fp8 == Fp8::kMxfp8 && (s.zero == 1 || s.zero == 2) && s.shards() > 1;
  return (GathersCodes(work.fp8) || gathered_once) && !work.lora.on() && work.master_weights &&
         s.offload.optimizer == 0 && !s.offload.weights;
}

}  // namespace orrery
