// SPDX-License-Identifier: Apache-2.0
// Derives the outline from a layout, by the rules of the lowering.
#include "model/plan/lower/outline.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "model/plan/lower/balance.h"
#include "model/plan/lower/lower.h"
#include "model/plan/lower/overlap.h"

namespace orrery {

namespace {

int UsedChunks(const Strategy& s, const std::vector<int>& layout, int stage) {
  const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
  int used = 0;
  for (int chunk = 0; chunk < s.vpp; ++chunk)
    used += layout[static_cast<std::size_t>(VirtualStage(in_a_v, s.pp, stage, chunk))] > 0;
  return used;
}

// Of a pipeline whose layers are known. Of other stages with as many layers the busiest is the one that recomputes most.
void FindRecomputed(const Strategy& s, const std::vector<int>& layers, PipelineLayers* split) {
  const std::vector<int>& layout = *split->layout;
  if (!s.recompute.partial() ||
      std::ranges::adjacent_find(layout, std::not_equal_to()) == layout.end())
    return;
  int64_t all = 0, taken = 0;
  for (const int chunk : layout) all += chunk, taken += s.recompute.Taken(chunk);
  split->recomputed = static_cast<double>(taken) / static_cast<double>(all);
  std::vector<double> more(layers.size(), 0);
  for (int place = 0; place < static_cast<int>(layout.size()); ++place) {
    const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
    more[static_cast<std::size_t>(ChunkAt(in_a_v, s.pp, place).stage)] +=
        split->MoreRecomputed(s.recompute, layout[static_cast<std::size_t>(place)]);
  }
  split->first_more = more.front();
  split->last_more = more.back();
  for (int stage = 1; stage + 1 < s.pp; ++stage) {
    const auto i = static_cast<std::size_t>(stage), most = static_cast<std::size_t>(split->fullest);
    if (layers[i] == layers[most] && more[i] > more[most]) split->fullest = stage;
  }
  if (s.pp > 2) split->middle_more = more[static_cast<std::size_t>(split->fullest)];
}

// Of other stages with as many layers the busiest is taken for the one with most of those.
void FindPlain(const Workload& work, const Strategy& s, PlanOutline* outline) {
  const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
  const std::vector<int>& layout = *outline->layout;
  const int64_t all = std::accumulate(layout.begin(), layout.end(), int64_t{0});
  const SkippedLayers& skip = work.fp8_skip;
  const double share = static_cast<double>(skip.first + skip.last) / static_cast<double>(all);
  std::vector<double> more(layout.size()), by_stage(static_cast<std::size_t>(s.pp), 0.0);
  std::vector<int> layers(by_stage.size(), 0);
  int64_t layer = 0;
  for (std::size_t chunk = 0; chunk < layout.size(); ++chunk) {
    const int64_t end = layer + layout[chunk];
    const int64_t at_start = std::max<int64_t>(0, std::min<int64_t>(end, skip.first) - layer);
    const int64_t at_end = std::max<int64_t>(0, end - std::max(layer, all - skip.last));
    more[chunk] = static_cast<double>(at_start + at_end) - share * layout[chunk];
    const auto stage =
        static_cast<std::size_t>(ChunkAt(in_a_v, s.pp, static_cast<int>(chunk)).stage);
    by_stage[stage] += more[chunk];
    layers[stage] += layout[chunk];
    layer = end;
  }
  outline->first_plain = by_stage.front();
  outline->last_plain = by_stage.back();
  for (std::size_t stage = 1; stage + 1 < by_stage.size(); ++stage) {
    const auto most = static_cast<std::size_t>(outline->fullest);
    if (layers[stage] == layers[most] && by_stage[stage] > by_stage[most])
      outline->fullest = static_cast<int>(stage);
  }
  if (s.pp > 2) outline->middle_plain = by_stage[static_cast<std::size_t>(outline->fullest)];
  outline->middle_used = UsedChunks(s, layout, outline->fullest);
  outline->plain = std::make_shared<const std::vector<double>>(std::move(more));
}

}  // namespace

PipelineLayers LayersOf(const ModelSpec& model, const Strategy& s) {
  PipelineLayers split;
  const int64_t all = model.layers + model.decoder_layers;
  if (s.pp == 1) {
    split.first_layers = split.last_layers = static_cast<double>(all);
    return split;
  }
  split.layout = s.layout;
  if (!split.layout) {
    std::vector<int> counts;
    const ChunkSplit chunks(all, s);
    counts.reserve(static_cast<std::size_t>(chunks.chunks()));
    for (int64_t chunk = 0; chunk < chunks.chunks(); ++chunk)
      counts.push_back(static_cast<int>(chunks.Layers(chunk)));
    split.layout = std::make_shared<const std::vector<int>>(std::move(counts));
  }
  const int* chunk = split.layout->data();
  std::vector<int> layers(static_cast<std::size_t>(s.pp), 0);
  ChunkLayers& by_chunk = split.chunk_layers;
  for (int c = 0; c < s.vpp; ++c, chunk += s.pp) {
    for (int i = 0; i < s.pp; ++i) {
      const bool in_a_v = s.schedule == PipelineSchedule::kZeroBubbleV;
      const StageChunk at = ChunkAt(in_a_v, s.pp, c * s.pp + i);
      layers[static_cast<std::size_t>(at.stage)] += chunk[i];
    }
    if (c == 0) {
      by_chunk.first = chunk[0];
      by_chunk.entry = std::accumulate(chunk, chunk + s.pp, 0);
      by_chunk.entry_most = *std::max_element(chunk + 1, chunk + s.pp);
    } else if (c + 1 < s.vpp) {
      by_chunk.inner += *std::max_element(chunk, chunk + s.pp);
    }
    if (c + 1 == s.vpp) {
      by_chunk.last = chunk[s.pp - 1];
      by_chunk.exit_most = *std::max_element(chunk, chunk + s.pp - 1);
    }
  }
  split.first_layers = layers.front();
  split.last_layers = layers.back();
  if (s.pp > 2) {
    const auto fullest = std::max_element(layers.begin() + 1, layers.end() - 1);
    split.fullest = static_cast<int>(fullest - layers.begin());
    split.middle_layers = *fullest;
  }
  FindRecomputed(s, layers, &split);
  split.first_used = UsedChunks(s, *split.layout, 0);
  split.middle_used = UsedChunks(s, *split.layout, split.fullest);
  split.last_used = UsedChunks(s, *split.layout, s.pp - 1);
  return split;
}

PlanOutline OutlineOf(const ModelSpec& model, const Workload& work, const Strategy& s,
                      const PipelineLayers& layers) {
  PlanOutline outline{layers};
  outline.stages = s.pp;
  outline.chunks = s.vpp;
  outline.micro_batches = static_cast<double>(MicroBatches(work, s));
  outline.accumulates = outline.micro_batches > 1;
  outline.order = RulesOf(s.schedule);
  outline.waits_for_round = s.vpp == 1 && s.schedule == PipelineSchedule::k1F1B;
  const bool replicas = s.data_parallel() * s.cp > 1;
  outline.gathers_weights = s.zero == 3;
  outline.frees_head = s.zero == 3 && s.free_head;
  outline.scatters_gradients = s.zero >= 2 && !s.reduce_once;
  outline.gather_overlaps = s.overlap_param_gather && (s.zero != 3 || s.prefetch > 0);
  // It concerns a pass's first gather alone, hence little in chunks of more layers: there it moved no term by 2 % of a step.
  constexpr int kShortChunk = 2;  // layers, on average
  if (s.zero == 3 && s.rings && s.overlap_param_gather &&
      model.layers <= kShortChunk * s.pp * s.vpp)
    outline.gather_slots = s.prefetch + 1;
  outline.scatter_overlaps = s.overlap_grad_reduce;
  const bool groups = s.zero > 0 && s.dp_outer > 1;
  if (groups && outline.scatters_gradients) {
    outline.reduction = PlanOutline::Reduction::kBetweenGroups;
  } else if (replicas && !outline.scatters_gradients) {
    outline.reduction =
        s.zero == 0 ? PlanOutline::Reduction::kAllReduce : PlanOutline::Reduction::kReduceScatter;
  }
  // Whole gradients are summed in place: on a stream of its own a layer's sum begins when its last gradient is there,
  // but no earlier than it is issued. Shards of ZeRO 1 take memory that the backward pass still holds, unless a reducer
  // keeps some for them: they follow it on the stream of the kernels.
  outline.reduction_overlaps =
      s.overlap_grad_reduce && (s.reduce_in_backward || s.zero == 0 || outline.scatters_gradients);
  outline.reduction_behind =
      outline.reduction_overlaps && !s.reduce_in_backward && !outline.scatters_gradients;
  outline.reduction_in_line = !s.overlap_grad_reduce && s.reduce_in_backward;
  outline.whole_replicas = HoldsWholeReplicas(s);
  outline.gathers_at_end = s.zero == 1 || s.zero == 2;
  outline.end_gather_overlaps = s.overlap_param_gather;
  outline.reduces_outer = groups;
  outline.shards = s.zero > 0 ? s.dp * s.cp : 1;
  outline.ties_stages = s.pp > 1 && s.schedule != PipelineSchedule::kZeroBubbleV &&
                        model.tied_embeddings && model.family != Family::kMlp && !work.lora.on();
  outline.norm_messages = work.optimizer == Optimizer::kLamb && (outline.shards > 1 || s.tp > 1);
  const bool half = work.precision == Precision::kFp16 || work.precision == Precision::kBf16;
  outline.recompute = s.recompute;
  if (layers.layout && work.fp8 != Fp8::kOff && work.fp8_skip.any()) FindPlain(work, s, &outline);
  outline.states_on_host = s.offload.optimizer;
  outline.gradients_on_host = StreamsGradients(s);
  outline.weights_on_host = s.offload.weights;
  outline.moves_activations = s.offload.activations;
  outline.moved_layers = s.offload.activation_layers;
  outline.weight_bytes = half ? 2 : 4;
  outline.gradient_bytes = half && !s.fp32_grads ? 2 : 4;
  return outline;
}

}  // namespace orrery
