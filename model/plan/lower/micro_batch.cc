// SPDX-License-Identifier: Apache-2.0
#include "model/plan/lower/micro_batch.h"

#include <algorithm>
#include <utility>

#include "model/plan/lower/balance.h"
#include "model/plan/lower/offload.h"
#include "model/plan/lower/stage_builder.h"

namespace orrery {
namespace {

constexpr int64_t kMostMlpLayers = 64;  // layers of a plain MLP differ: this many are lowered

// Of a layer on so many tokens; a window that holds them all counts as none (0).
int64_t EffectiveWindow(const ModelSpec& model, int64_t layer, int64_t seq_len) {
  const int64_t window = model.Window(layer);
  return window < seq_len ? window : 0;
}

// What tells layers apart.
struct LayerTraits {
  int64_t window = 0;
  bool plain = false;  // MicroBatchPlan::LayerKind
  bool operator==(const LayerTraits&) const = default;
};

LayerTraits KindOf(const ModelSpec& model, const Workload& work, int64_t layer) {
  return {EffectiveWindow(model, layer, work.seq_len),
          work.fp8 != Fp8::kOff && work.fp8_skip.Hold(layer, model.layers)};
}

// The different ones in the order of the layers, plain ones first.
std::vector<LayerTraits> DifferentKinds(const ModelSpec& model, const Workload& work) {
  std::vector<LayerTraits> kinds;
  for (int64_t i = 0; i < model.layers; ++i) {
    const LayerTraits kind = KindOf(model, work, i);
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
    if (model.windows.empty() && !work.fp8_skip.any()) break;
  }
  std::stable_partition(kinds.begin(), kinds.end(),
                        [](const LayerTraits& kind) { return kind.plain; });
  return kinds;
}
int64_t PlainKinds(const std::vector<LayerTraits>& kinds) {
  return std::ranges::count(kinds, true, &LayerTraits::plain);
}

// The first layer is a kind of its own where nothing in front of its adapters is trained.
bool FirstDiffers(const ModelSpec& model, const Workload& work) {
  return work.lora.on() && model.layers > 1;
}

// One layer of each kind; the stack of a plain MLP as it is. `partial`: recomputation takes the first of two such layers,
// of which plain ones stand at both ends. `skip`: these.
ModelSpec OneLayerOfEach(ModelSpec model, const Workload& work, bool partial,
                         SkippedLayers* skip = nullptr) {
  if (model.family == Family::kMlp) {
    model.layers = std::min(model.layers, kMostMlpLayers);
    return model;
  }
  std::vector<LayerTraits> kinds = DifferentKinds(model, work);
  const auto plain = PlainKinds(kinds);
  if (skip != nullptr) *skip = {static_cast<int>(plain), partial ? static_cast<int>(plain) : 0};
  if (partial) {
    std::vector<LayerTraits> kept = kinds;
    std::rotate(kept.begin(), kept.begin() + plain, kept.end());
    kinds.insert(kinds.end(), kept.begin(), kept.end());
  }
  std::vector<int64_t> windows;
  for (const LayerTraits& kind : kinds) windows.push_back(kind.window);
  if (FirstDiffers(model, work))
    windows.insert(windows.begin(), EffectiveWindow(model, 0, work.seq_len));
  model.windows = std::move(windows);
  model.layers = static_cast<int64_t>(model.windows.size());
  model.decoder_layers = std::min<int64_t>(model.decoder_layers, partial ? 2 : 1);
  return model;
}

std::vector<MicroBatchPlan::LayerKind> Kinds(const ModelSpec& model, const ModelSpec& small,
                                             const Workload& work, const MicroBatchKey& key) {
  const auto layers = static_cast<double>(model.layers);
  if (model.family == Family::kMlp) return {{layers, 1.0 / static_cast<double>(small.layers)}};
  std::vector<MicroBatchPlan::LayerKind> kinds(small.windows.size());
  const std::vector<LayerTraits> different = DifferentKinds(model, work);
  const bool differs = FirstDiffers(model, work);
  if (differs) kinds.front().count = 1;
  for (int64_t i = differs; i < model.layers; ++i) {
    const LayerTraits of = KindOf(model, work, i);
    const auto kind = std::ranges::find(different, of) - different.begin() + differs;
    kinds[static_cast<std::size_t>(kind)].count += 1;
    kinds[static_cast<std::size_t>(kind)].plain = of.plain;
  }
  const auto decoders = static_cast<double>(model.decoder_layers);
  if (!key.recompute.partial()) {
    if (decoders > 0) kinds.push_back({decoders});
    return kinds;
  }
  // Which kinds of layers stand where recomputation takes them is left out: each has its share.
  const double share = static_cast<double>(key.recomputed) / static_cast<double>(key.layers);
  const std::size_t half = (kinds.size() + differs) / 2, each = half - differs;
  const auto plain = static_cast<std::size_t>(PlainKinds(different));
  for (std::size_t i = 0; i < each; ++i) {
    MicroBatchPlan::LayerKind& taken = kinds[differs + i];
    MicroBatchPlan::LayerKind& kept = kinds[half + (i + each - plain) % each];
    kept.count = (1 - share) * taken.count;
    kept.plain = taken.plain;
    taken.count *= share;
  }
  if (decoders > 0) kinds.insert(kinds.end(), {{share * decoders}, {(1 - share) * decoders}});
  return kinds;
}

// Of all chunks; of an encoder and a decoder, which are a stack each.
int64_t RecomputedLayers(const ModelSpec& model, const Strategy& s) {
  int64_t taken = s.recompute.Taken(model.decoder_layers);
  const ChunkSplit split(model.layers, s);
  for (int64_t chunk = 0; chunk < split.chunks(); ++chunk)
    taken += s.recompute.Taken(split.Layers(chunk));
  return taken;
}

Strategy SmallStrategy(const MicroBatchKey& key, const ModelSpec& small, Fp8 recipe) {
  Strategy strategy;
  strategy.tp = key.tp;
  strategy.cp = key.cp;
  strategy.context = key.context;
  strategy.micro_batch = key.micro_batch;
  strategy.sequence_parallel = key.sequence_parallel;
  strategy.recompute = {key.recompute.modules};
  if (key.recompute.partial()) strategy.recompute.first = static_cast<int>((small.layers + 1) / 2);
  strategy.flash_attention = key.flash_attention;
  strategy.fp32_grads = key.fp32_grads;
  strategy.recompute_unread = key.recompute_unread;
  strategy.whole_logits = key.whole_logits;
  strategy.whole_embedding = key.whole_embedding;
  strategy.whole_head = key.whole_head;
  strategy.split_products = key.split_products;
  strategy.adapter_split = key.adapter_split;
  strategy.adapter_gathers = key.adapter_gathers;
  strategy.gathers_kept = key.gathers_kept;
  strategy.reduces_apart = key.reduces_apart;
  strategy.fp8_weights = key.fp8_weights && GathersCodes(recipe);
  return strategy;
}

void SetSpans(const MicroBatchKey& key, MicroBatchPlan* out) {
  if (key.cp == 1) return;
  const CpMethod method = key.context.method;
  const int inner = method == CpMethod::kA2aRing ? key.context.inner : 1;
  if (method == CpMethod::kAllGather || method == CpMethod::kUlysses) {
    out->context = {key.cp, key.tp};
  } else {
    out->context = {inner, key.tp};
    out->ring = {key.cp / inner, key.tp * inner};
  }
}

}  // namespace

MicroBatchKey KeyOf(const ModelSpec& model, const Strategy& strategy) {
  MicroBatchKey key;
  key.tp = strategy.tp;
  key.cp = strategy.cp;
  if (strategy.cp > 1) key.context = strategy.context;
  key.micro_batch = strategy.micro_batch;
  key.sequence_parallel = strategy.sequence_parallel && strategy.tp > 1;
  key.recompute = strategy.recompute;
  if (key.recompute.partial()) {
    key.recomputed = RecomputedLayers(model, strategy);
    key.layers = model.layers + model.decoder_layers;
    // Whichever layers are taken: their number tells the prices.
    key.recompute.first = 1;
    key.recompute.every = 1;
  }
  key.flash_attention = strategy.flash_attention;
  key.fp32_grads = strategy.fp32_grads;
  key.recompute_unread = strategy.recompute_unread;
  key.scatter_gather = strategy.scatter_gather;
  key.whole_logits = strategy.whole_logits && strategy.tp > 1;
  key.whole_embedding = strategy.whole_embedding && strategy.tp > 1;
  key.whole_head = strategy.whole_head && strategy.tp > 1;
  key.split_products = strategy.split_products;
  if (strategy.tp > 1) key.adapter_split = strategy.adapter_split;
  key.adapter_gathers =
      key.adapter_split != AdapterSplit::kRows && key.sequence_parallel && strategy.adapter_gathers;
  key.gathers_kept = key.sequence_parallel && strategy.gathers_kept;
  key.reduces_apart = strategy.tp > 1 && strategy.reduces_apart;
  key.fp8_weights = strategy.fp8_weights;
  return key;
}

MicroBatchKey PlanKey(MicroBatchKey key) {
  if (key.recompute.partial()) key.recomputed = 1, key.layers = 2;
  return key;
}

std::vector<MicroBatchPlan::LayerKind> LayerKinds(const ModelSpec& model, const Workload& work,
                                                  const MicroBatchKey& key) {
  return Kinds(model, OneLayerOfEach(model, work, key.recompute.partial()), work, key);
}

std::variant<MicroBatchPlan, Refusal> LowerMicroBatch(const ModelSpec& model, const Workload& work,
                                                      const MicroBatchKey& key) {
  Workload local = work;
  local.global_batch = key.micro_batch;
  local.clip_norm = 0;
  const ModelSpec small = OneLayerOfEach(model, work, key.recompute.partial(), &local.fp8_skip);
  const Strategy strategy = SmallStrategy(key, small, local.fp8);
  LowerResult lowered = Lower(small, local, strategy);
  if (auto* refusal = std::get_if<Refusal>(&lowered)) return std::move(*refusal);
  MicroBatchPlan out;
  out.plan = std::move(std::get<ir::Plan>(lowered));
  out.kinds = LayerKinds(model, work, key);
  const std::vector<double> kept = KeptBytes(out.plan.programs.front(), 1, 2);
  for (std::size_t i = 0; i < std::min(kept.size(), out.kinds.size()); ++i)
    out.kinds[i].kept_bytes = kept[i];
  out.layer_ranks = key.tp;
  out.table_ranks = HoldsWholeTable(model, strategy) ? 1 : key.tp;
  out.head_ranks = HoldsWholeHead(model, strategy) ? 1 : key.tp;
  SetSpans(key, &out);
  const double element =
      work.precision == Precision::kFp32 || work.precision == Precision::kTf32 ? 4.0 : 2.0;
  const bool scattered = key.sequence_parallel || key.scatter_gather;
  out.gathers_boundary = key.scatter_gather && key.tp > 1 && !key.sequence_parallel;
  out.boundary_bytes = static_cast<double>(local.seq_len / key.cp * key.micro_batch) *
                       static_cast<double>(model.hidden) * element / (scattered ? key.tp : 1);
  return out;
}

}  // namespace orrery
