// SPDX-License-Identifier: Apache-2.0
// Which strategies can be lowered; every refusal names the dimension or option that stands in the way.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "model/plan/lower/balance.h"
#include "model/plan/lower/check_low_precision.h"
#include "model/plan/lower/lower.h"
#include "model/plan/lower/names.h"
#include "model/plan/lower/offload.h"
#include "model/plan/lower/packed.h"
#include "model/plan/lower/schedules.h"

namespace orrery {
namespace {

using Result = std::optional<Refusal>;

Result CheckDegrees(const Strategy& s) {
  for (const auto& [name, value] : {std::pair{"tp", s.tp},
                                    {"pp", s.pp},
                                    {"dp", s.dp},
                                    {"dp_outer", s.dp_outer},
                                    {"cp", s.cp},
                                    {"ep", s.ep},
                                    {"vpp", s.vpp},
                                    {"micro_batch", s.micro_batch},
                                    {"bucket_layers", s.bucket_layers},
                                    {"send_slots", s.send_slots}}) {
    if (value < 1)
      return Refusal{fmt::format("{} is {}", name, value), "every degree is at least 1"};
  }
  if (s.ep > 1) return Refusal{"expert parallelism (ep > 1) is not lowered yet", "use ep 1"};
  if (s.zero < 0 || s.zero > 3)
    return Refusal{fmt::format("ZeRO stage {}", s.zero), "stages are 0 to 3"};
  if (s.prefetch < 0 || s.recv_slots < 0)
    return Refusal{"prefetch and recv_slots cannot be negative", ""};
  if (s.dp_outer > 1 && s.zero == 0) {
    return Refusal{"hybrid sharding (dp_outer > 1) without ZeRO", "use dp alone, or ZeRO 1 to 3"};
  }
  return std::nullopt;
}

Result Divides(int64_t parts, const char* axis, int64_t whole, const char* what) {
  if (whole % parts == 0) return std::nullopt;
  return Refusal{fmt::format("{} {} do not divide by {} {}", whole, what, axis, parts),
                 fmt::format("{} must be a divisor of {}", axis, whole)};
}

Result CheckTensor(const ModelSpec& model, const Workload& work, const Strategy& s) {
  if (s.sequence_parallel && s.tp == 1)
    return Refusal{"sequence parallelism needs tp > 1", "drop it or raise tp"};
  if (s.tp == 1) return std::nullopt;
  if (model.family == Family::kMlp)
    return Refusal{"tensor parallelism of a plain MLP is not lowered", "use tp 1"};
  if (model.qk_norm == QkNorm::kWidth) {
    return Refusal{"norms of queries and keys over all heads are not lowered with tp > 1",
                   "use tp 1"};
  }
  if (auto refused = Divides(s.tp, "tp", model.heads, "attention heads")) return refused;
  if (auto refused = Divides(s.tp, "tp", model.kv_heads, "key-value heads")) return refused;
  if (auto refused = Divides(s.tp, "tp", model.ffn, "MLP columns (ffn)")) return refused;
  if (s.sequence_parallel)
    return Divides(s.tp, "tp", work.seq_len / s.cp,
                   s.cp > 1 ? "positions (seq_len / cp)" : "positions (seq_len)");
  if (s.pp == 1 || !s.scatter_gather) return std::nullopt;
  return Divides(s.tp, "tp", work.seq_len / s.cp * s.micro_batch * model.hidden,
                 "elements of a tensor between two stages");
}

// Heads of a rank are changed for parts of the sequence.
Result CheckHeads(const ModelSpec& model, const Strategy& s, int ranks) {
  if (model.kv_heads % (int64_t{1} * s.tp * ranks) == 0) return std::nullopt;
  int64_t most = 1;
  for (int64_t d = 2; d <= ranks; ++d) {
    if (ranks % d == 0 && model.kv_heads % (s.tp * d) == 0) most = d;
  }
  const char* method = NameIn(kCpMethodNames, s.context.method);
  const std::string smaller = s.context.method == CpMethod::kA2aRing
                                  ? fmt::format("cp_inner {}", most)
                                  : fmt::format("cp {}", most);
  return Refusal{
      fmt::format("{} key-value heads do not divide by tp {} x {} {} ({})", model.kv_heads, s.tp,
                  s.context.method == CpMethod::kA2aRing ? "cp_inner" : "cp", ranks, method),
      "use ring or allgather, or " + smaller};
}

Result CheckRecompute(const ModelSpec& model, const Workload& work, const Strategy& s) {
  const Recompute& r = s.recompute;
  if (r.first < 0 || r.every < 1)
    return Refusal{
        fmt::format("recomputation of the first {} layers, each {}-th", r.first, r.every),
        "0 or more first layers, each 1st or later"};
  const auto has = [&](RecomputeModule module) { return (r.modules & module) != 0; };
  if (has(kRecomputeLayer) && r.modules != kRecomputeLayer)
    return Refusal{"full recomputation and that of single modules", "one of them"};
  if (has(kRecomputeMlp) && has(kRecomputeActivation))
    return Refusal{"recomputation of mlp and of mlp_act, which is a part of it", "mlp alone"};
  if (has(kRecomputeMlp) && has(kRecomputeUp))
    return Refusal{"recomputation of mlp and of mlp_up, which is a part of it", "mlp alone"};
  if ((has(kRecomputeKeys) || has(kRecomputeUp)) && !s.split_products)
    return Refusal{
        "recomputation of key_proj or mlp_up, which are products of their own only where "
        "a framework splits products",
        "--framework torchtitan, or --fact split_products=on"};
  if ((has(kRecomputeKeys) || has(kRecomputeUp) || has(kRecomputeOut)) &&
      (model.family != Family::kDecoder || model.parallel))
    return Refusal{
        "recomputation of single products is lowered for decoders whose attention stands "
        "in front of the MLP",
        "layernorm+mlp_act, full or none"};
  if (has(kRecomputeOut) && has(kRecomputeCoreAttention))
    return Refusal{"recomputation of attn_proj, which reads what core_attn does not keep",
                   "one of them"};
  if (has(kRecomputeOut) && (model.post_norm || model.output_norm || work.dropout > 0))
    return Refusal{
        "recomputation of attn_proj with dropout, or with a norm behind it, is not lowered",
        "layernorm+mlp_act, full or none"};
  if (has(kRecomputeNorms) && (!model.input_norm || model.post_norm))
    return Refusal{"recomputation of layernorm: the model has no norms in front of its sublayers",
                   "drop layernorm"};
  return std::nullopt;
}

Result CheckContext(const ModelSpec& model, const Workload& work, const Strategy& s) {
  if (s.cp == 1) return std::nullopt;
  const ContextLayout& c = s.context;
  if (model.family != Family::kDecoder)
    return Refusal{"context parallelism is lowered for decoders alone", "use cp 1"};
  if (model.positions == Positions::kRelativeBias)
    return Refusal{"cp > 1 with a relative position bias is not lowered", "use cp 1"};
  if (!s.flash_attention)
    return Refusal{
        "context parallelism without flash attention is not lowered",
        "--attention flash, which fp32 does not take by itself, or --cp 1: probabilities "
        "of a shared sequence are never materialised"};
  const int64_t pieces = int64_t{1} * s.cp * (c.zigzag ? 2 : 1);
  if (work.seq_len % pieces != 0)
    return Refusal{fmt::format("sequence length {} does not divide by {}cp {}{}", work.seq_len,
                               c.zigzag ? "2 x " : "", s.cp, c.zigzag ? " (zigzag)" : ""),
                   fmt::format("cp must divide seq_len{}", c.zigzag ? " / 2" : "")};
  const bool two_level = c.method == CpMethod::kA2aRing;
  if (two_level && (c.inner < 1 || s.cp % c.inner != 0))
    return Refusal{fmt::format("cp_inner {} does not divide cp {}", c.inner, s.cp),
                   "ranks that change heads for positions are a part of those of cp"};
  if (!two_level && c.inner != 1)
    return Refusal{fmt::format("cp_inner {} with {}", c.inner, NameIn(kCpMethodNames, c.method)),
                   "cp_inner belongs to a2a_ring"};
  const bool ring = c.method == CpMethod::kRing || (two_level && c.inner < s.cp);
  for (int64_t i = 0; ring && i < model.layers; ++i) {
    if (const int64_t window = model.Window(i); window > 0 && window < work.seq_len)
      return Refusal{"a ring over cp has no sliding window",
                     "use allgather or ulysses (--cp-method), as with TransformerEngine, which "
                     "refuses windows with p2p"};
  }
  if (two_level && work.AttentionDropout() > 0)
    return Refusal{"attention dropout with a2a_ring is not lowered", "use ring, or no dropout"};
  if (two_level && model.positions == Positions::kAlibi)
    return Refusal{"positions alibi with a2a_ring are not lowered", "use ring or ulysses"};
  if (c.method == CpMethod::kUlysses) return CheckHeads(model, s, s.cp);
  return two_level ? CheckHeads(model, s, c.inner) : std::nullopt;
}

Result CheckAdapters(const ModelSpec& model, const Workload& work, const Strategy& s) {
  if (!work.lora.on()) return std::nullopt;
  if (model.family != Family::kDecoder || model.positions == Positions::kRelativeBias)
    return Refusal{"adapters are lowered for decoders alone", "train all weights: no --lora-rank"};
  if (work.lora.alpha <= 0)
    return Refusal{fmt::format("alpha {} of the adapters is not positive", work.lora.alpha), ""};
  if (work.lora.targets == 0) return Refusal{"no map of a layer takes adapters", ""};
  if (s.tp > 1 && s.adapter_split != AdapterSplit::kRows && work.lora.rank % s.tp != 0)
    return Refusal{
        fmt::format("rank {} of the adapters does not divide by tp {}", work.lora.rank, s.tp),
        "adapters are cut by columns here: another tp, or --fact adapter_split=rows"};
  if ((s.recompute.modules & ~(kRecomputeCoreAttention | kRecomputeLayer)) != 0)
    return Refusal{"adapters with recomputation of layernorm, mlp or mlp_act are not lowered",
                   "recompute core_attn, whole layers or nothing"};
  if (LayersOfChunk(model.layers, s, 0) == 0)
    return Refusal{"a first stage without layers has no adapter to train",
                   "a layout whose first chunk holds a layer"};
  return CheckPacked(model, work, s);
}

// Every chunk holds a layer, the embedding or the head, unless a layout says otherwise. Megatron-LM builds chunks of nothing
// ("it is legal to have empty stages, e.g., E||t|L", its guide to custom pipeline layouts): they hand on what they get.
Result CheckLayout(const ModelSpec& model, const Strategy& s) {
  const int64_t chunks = ChunksOf(s);
  if (s.layout) {
    if (model.family == Family::kMlp)
      return Refusal{"an explicit layout of a plain MLP is not lowered", "drop the layout"};
    if (chunks != int64_t{1} * s.pp * s.vpp) {
      return Refusal{fmt::format("the layout names {} chunks, pp {} x vpp {} has {}", chunks, s.pp,
                                 s.vpp, s.pp * s.vpp),
                     "one number of layers per chunk, in the order chunk x stages + stage"};
    }
    const int64_t held = std::accumulate(s.layout->begin(), s.layout->end(), int64_t{0});
    if (held != model.layers)
      return Refusal{
          fmt::format("the layout holds {} layers, the model has {}", held, model.layers), ""};
  }
  const bool ends = s.pp > 1 && model.family != Family::kMlp, named = s.layout && s.pp > 1;
  const ChunkSplit split(model.layers, s);
  for (int64_t i = 0; i < chunks; ++i) {
    const bool end = ends && (i == 0 || i + 1 == chunks);
    const int64_t count = split.Layers(i);
    if (count >= (end || named ? 0 : 1)) continue;
    if (s.layout)
      return Refusal{fmt::format("chunk {} of the layout holds {} layers", i, count), "0 or more"};
    return Refusal{
        fmt::format("{} layers do not fill pp {} x vpp {} stages", model.layers, s.pp, s.vpp),
        "fewer stages or chunks, or --layout, which may leave some without a layer"};
  }
  return std::nullopt;
}

constexpr int kMostStagesInV = 126;  // distances to peers are numbers of 8 bits

Result CheckPipeline(const ModelSpec& model, const Workload& work, const Strategy& s) {
  const bool interleaved = s.schedule == PipelineSchedule::kInterleaved;
  const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
  if (in_a_v && s.vpp != 2)
    return Refusal{fmt::format("vpp {} with the zero-bubble schedule in a V", s.vpp),
                   "a V has two chunks per stage: --vpp 2"};
  if (in_a_v && s.pp > kMostStagesInV)
    return Refusal{fmt::format("pp {} with the zero-bubble schedule in a V", s.pp),
                   fmt::format("at most {} stages", kMostStagesInV)};
  if (!in_a_v && interleaved != (s.vpp > 1)) {
    return Refusal{interleaved ? "the interleaved schedule needs vpp > 1"
                               : "vpp > 1 needs the interleaved schedule",
                   ""};
  }
  if (s.pp == 1 && NeedsStages(s.schedule)) {
    return Refusal{"interleaved and zero-bubble schedules need pp > 1", "use 1f1b"};
  }
  if (model.family == Family::kEncoderDecoder && s.pp > 1) {
    return Refusal{"pipelines over an encoder-decoder model are not lowered yet", "use pp 1"};
  }
  if ((interleaved || in_a_v) && s.recv_slots < 1) {
    return Refusal{"schedules of several chunks need recv_slots of at least 1",
                   "without slack two stages can wait for each other's receive buffers for ever"};
  }
  if (model.family == Family::kMlp && s.vpp > 1)
    return Refusal{"interleaving a plain MLP is not lowered", "use vpp 1"};
  if (interleaved && MicroBatches(work, s) % s.pp != 0) {
    return Refusal{fmt::format("{} micro-batches do not divide by pp {} (interleaved schedule)",
                               MicroBatches(work, s), s.pp),
                   "micro-batches per step must be a multiple of pp"};
  }
  return CheckLayout(model, s);
}

// The same limits as those of a plan's text: every number that follows from them stays far inside 64 bits.
Result CheckSize(const ModelSpec& model, const Workload& work, const Strategy& s) {
  const int64_t passes = s.schedule == PipelineSchedule::kZeroBubble ? 3 : 2;
  constexpr int64_t kEnds = 2;  // calls in front of the passes and behind them
  const int64_t most = (ir::kMostCalls - kEnds) / (passes * s.vpp);
  if (MicroBatches(work, s) > most) {
    return Refusal{
        fmt::format("{} micro-batches per step are more than a plan can have",
                    MicroBatches(work, s)),
        fmt::format(
            "at most {} of {} calls each: a larger --micro-batch, or a smaller --global-batch",
            most, passes * s.vpp)};
  }
  const double rows = static_cast<double>(work.seq_len) * s.micro_batch;
  double widest = static_cast<double>(std::max({model.hidden, model.ffn, model.vocab}));
  if (!s.flash_attention)
    widest = std::max(widest, static_cast<double>(model.heads) * static_cast<double>(work.seq_len));
  const double elements = rows / s.cp * widest / s.tp;
  if (elements > static_cast<double>(ir::kMostElements)) {
    return Refusal{
        fmt::format("a tensor of {:.3g} elements is larger than a buffer can be", elements),
        fmt::format("at most {:.3g} elements: a smaller --micro-batch or --seq-len",
                    static_cast<double>(ir::kMostElements))};
  }
  return std::nullopt;
}

Result CheckWork(const ModelSpec& model, const Workload& work, const Strategy& s) {
  const int64_t samples = s.data_parallel() * s.micro_batch;
  if (work.global_batch < 1 || work.seq_len < 1)
    return Refusal{"global batch and sequence length must be at least 1", ""};
  if (work.global_batch % samples != 0) {
    return Refusal{
        fmt::format("global batch {} does not divide by data-parallel ranks {} x micro-batch {}",
                    work.global_batch, s.data_parallel(), s.micro_batch),
        ""};
  }
  if (model.positions == Positions::kLearned && model.family != Family::kMlp &&
      work.seq_len > model.max_positions) {
    return Refusal{fmt::format("sequence length {} exceeds the {} learned positions", work.seq_len,
                               model.max_positions),
                   ""};
  }
  if (work.masked_positions < 0 || work.masked_positions > work.seq_len) {
    return Refusal{
        fmt::format("{} masked positions in {} tokens", work.masked_positions, work.seq_len), ""};
  }
  if (model.positions == Positions::kRotary && model.head_dim % 2 != 0) {
    return Refusal{
        fmt::format("rotary positions need an even head dimension, not {}", model.head_dim), ""};
  }
  return std::nullopt;
}

Result CheckPlacement(const Strategy& s) {
  if (!s.placement) return std::nullopt;
  if (s.placement->stages_inside && s.cp > 1) {
    return Refusal{"ranks that share sequences are placed as tp-cp-dp-pp only",
                   "--placement tp-cp-dp-pp, or cp 1"};
  }
  std::vector<int32_t> nodes = s.placement->nodes;
  if (nodes.empty()) return std::nullopt;
  std::ranges::sort(nodes);
  const auto count = static_cast<int64_t>(nodes.size());
  if (std::ranges::adjacent_find(nodes) != nodes.end() || nodes.back() >= count ||
      s.ranks() % count != 0) {
    return Refusal{fmt::format("the placement of {} ranks names {} nodes", s.ranks(), count),
                   "each node of the cluster once, from 0 on, as many as hold the ranks"};
  }
  return std::nullopt;
}

}  // namespace

int64_t MicroBatches(const Workload& work, const Strategy& strategy) {
  const int64_t samples = strategy.data_parallel() * strategy.micro_batch;
  return samples > 0 && work.global_batch % samples == 0 ? work.global_batch / samples : 0;
}

int64_t PaddedVocab(const ModelSpec& model, int tp) { return (model.vocab + tp - 1) / tp * tp; }

std::optional<Refusal> CheckOfStep(const ModelSpec& model, const Workload& work,
                                   const Strategy& strategy) {
  if (auto refused = CheckDegrees(strategy)) return refused;
  if (auto refused = CheckWork(model, work, strategy)) return refused;
  return CheckSize(model, work, strategy);
}

std::optional<Refusal> CheckOfLayer(const ModelSpec& model, const Workload& work,
                                    const Strategy& strategy) {
  if (auto refused = CheckContext(model, work, strategy)) return refused;
  if (auto refused = CheckRecompute(model, work, strategy)) return refused;
  if (auto refused = CheckTensor(model, work, strategy)) return refused;
  return CheckLowPrecision(model, work, strategy);
}

std::optional<Refusal> CheckOfPipeline(const ModelSpec& model, const Workload& work,
                                       const Strategy& strategy) {
  if (auto refused = CheckAdapters(model, work, strategy)) return refused;
  if (auto refused = CheckPipeline(model, work, strategy)) return refused;
  if (auto refused = CheckPlacement(strategy)) return refused;
  return CheckOffload(model, work, strategy);
}

std::optional<Refusal> CheckStrategy(const ModelSpec& model, const Workload& work,
                                     const Strategy& strategy) {
  if (auto refused = CheckOfStep(model, work, strategy)) return refused;
  if (auto refused = CheckOfLayer(model, work, strategy)) return refused;
  return CheckOfPipeline(model, work, strategy);
}

}  // namespace orrery
