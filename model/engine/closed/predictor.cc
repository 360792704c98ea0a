// SPDX-License-Identifier: Apache-2.0
// From a strategy to the closed form's numbers: groups, stage shares, cached layer tables.
#include <algorithm>
#include <cmath>

#include "model/engine/closed/closed_form.h"
#include "model/plan/lower/balance.h"

namespace orrery {

MicroBatchKey KeyOf(const Strategy& strategy) {
  MicroBatchKey key;
  key.tp = strategy.tp;
  key.cp = strategy.cp;
  key.micro_batch = strategy.micro_batch;
  key.sequence_parallel = strategy.sequence_parallel && strategy.tp > 1;
  key.recompute = strategy.recompute;
  key.flash_attention = strategy.flash_attention;
  key.fp32_grads = strategy.fp32_grads;
  key.recompute_unread = strategy.recompute_unread;
  key.scatter_gather = strategy.scatter_gather;
  return key;
}

DataGroup MakeDataGroup(const CostSetting& s, int dp, int dp_outer, int inner) {
  DataGroup group;
  group.dp = dp;
  group.dp_outer = dp_outer;
  const int local = s.cluster->gpus_per_node;
  const auto view = [&](int ranks, int inside, const BandwidthUse& use) {
    return ViewNetwork(*s.cluster, *s.gpu, *s.fabric, ShapeOfAxis(ranks, inside, local), use);
  };
  const auto reduction = [&](int ranks, int inside) {
    const bool apart = EndsApart(*s.cluster, ShapeOfAxis(ranks, inside, local));
    return view(ranks, inside,
                {s.stack->data_scaleup_use, ReductionNicUse(*s.stack, apart), s.stack->algorithm});
  };
  const BandwidthUse layer{s.stack->gather_scaleup_use, s.stack->gather_nic_use,
                           s.stack->algorithm};
  group.all_reduce = Prepare(Collective::kAllReduce, reduction(dp * dp_outer, inner));
  group.reduce_scatter = Prepare(Collective::kReduceScatter, reduction(dp, inner));
  group.all_gather = Prepare(Collective::kAllGather, reduction(dp, inner));
  group.layer_gather = Prepare(Collective::kAllGather, view(dp, inner, layer));
  group.layer_scatter = Prepare(Collective::kReduceScatter, view(dp, inner, layer));
  group.outer_all_reduce = Prepare(Collective::kAllReduce, reduction(dp_outer, inner * dp));
  const int nodes = ShapeOfAxis(dp, inner, local).nodes();
  const double inside = ScaleUpRing(*s.cluster, *s.gpu, *s.fabric, layer).value;
  const double between = view(dp, inner, layer).inter_ring.value;
  if (nodes > 1 && inside > between)
    group.slower_per_byte = (1.0 - 1.0 / dp) * (1.0 / between - 1.0 / inside);
  group.latency =
      s.stack->gather_latency.value * (1.0 + s.stack->gather_latency_growth * std::log2(nodes));
  return group;
}

PipelineGroup MakePipelineGroup(const CostSetting& s, int pp, int inner) {
  const GroupShape shape = ShapeOfAxis(pp, inner, s.cluster->gpus_per_node);
  const Network network =
      ViewNetwork(*s.cluster, *s.gpu, *s.fabric, shape, {1.0, s.stack->pipeline_nic_use});
  return {Prepare(Collective::kSendRecv, network)};
}

LayoutShape MakeLayoutShape(const ModelSpec& model, const Workload& work, const Strategy& strategy,
                            const DataGroup* data, const PipelineGroup* pipeline) {
  LayoutShape shape;
  shape.pp = strategy.pp;
  shape.vpp = strategy.vpp;
  shape.schedule = strategy.vpp > 1 ? PipelineSchedule::kInterleaved : strategy.schedule;
  shape.micro_batches = static_cast<double>(MicroBatches(work, strategy));
  shape.accumulates = shape.micro_batches > 1;
  shape.zero = strategy.zero;
  shape.whole_replicas = HoldsWholeReplicas(strategy);
  shape.overlap_grad_reduce = strategy.overlap_grad_reduce;
  shape.overlap_param_gather = strategy.overlap_param_gather;
  const bool half = work.precision == Precision::kFp16 || work.precision == Precision::kBf16;
  shape.weight_bytes = half ? 2 : 4;
  shape.gradient_bytes = half && !strategy.fp32_grads ? 2 : 4;
  std::vector<double> layers(strategy.pp, 0.0);
  const std::vector<LayerRange> chunks =
      BalanceLayers(model.layers + model.decoder_layers, strategy);
  for (std::size_t i = 0; i < chunks.size(); ++i)
    layers[i % strategy.pp] += static_cast<double>(chunks[i].count);
  shape.first_layers = layers.front();
  shape.last_layers = layers.back();
  for (int i = 1; i + 1 < strategy.pp; ++i)
    shape.middle_layers = std::max(shape.middle_layers, layers[i]);
  shape.data = data;
  shape.pipeline = pipeline;
  return shape;
}

StepPredictor::StepPredictor(const ModelSpec& model, const Workload& work,
                             const CostSetting& setting, ShapeCache* shapes)
    : model_(model), work_(work), setting_(setting), closed_form_(setting, work), shapes_(shapes) {}

std::variant<const LayerTable*, Refusal> StepPredictor::Table(const MicroBatchKey& key) {
  auto found = tables_.find(key);
  if (found == tables_.end()) {
    ShapeCache own;
    ShapeCache& shapes = shapes_ != nullptr ? *shapes_ : own;
    auto shaped = shapes.find(key);
    if (shaped == shapes.end())
      shaped = shapes.emplace(key, ShapeMicroBatch(model_, work_, key)).first;
    std::variant<LayerTable, Refusal> entry;
    if (const auto* refusal = std::get_if<Refusal>(&shaped->second)) {
      entry = *refusal;
    } else {
      entry = CostLayers(std::get<MicroBatchOps>(shaped->second), model_, work_, key, setting_);
    }
    found = tables_.emplace(key, std::move(entry)).first;
  }
  if (const auto* refusal = std::get_if<Refusal>(&found->second)) return *refusal;
  return &std::get<LayerTable>(found->second);
}

const DataGroup* StepPredictor::Data(int dp, int dp_outer, int inner) {
  const std::array<int, 3> key{dp, dp_outer, inner};
  auto found = data_.find(key);
  if (found == data_.end())
    found = data_.emplace(key, MakeDataGroup(setting_, dp, dp_outer, inner)).first;
  return &found->second;
}

const PipelineGroup* StepPredictor::Pipeline(int pp, int inner) {
  const std::array<int, 2> key{pp, inner};
  auto found = pipelines_.find(key);
  if (found == pipelines_.end())
    found = pipelines_.emplace(key, MakePipelineGroup(setting_, pp, inner)).first;
  return &found->second;
}

std::variant<StepTime, Refusal> StepPredictor::Predict(const Strategy& strategy, Window window) {
  Strategy legal = strategy;
  legal.cp = 1;  // costed, not lowered: the other rules still hold
  if (auto refusal = CheckStrategy(model_, work_, legal)) return *refusal;
  const auto table = Table(KeyOf(strategy));
  if (const auto* refusal = std::get_if<Refusal>(&table)) return *refusal;
  const int inner = strategy.tp * strategy.cp;
  // Context-parallel ranks hold the same weights: they reduce gradients together with data-parallel
  // ones.
  const DataGroup* data = Data(strategy.dp * strategy.cp, strategy.dp_outer, strategy.tp);
  const PipelineGroup* pipeline = Pipeline(strategy.pp, inner * strategy.dp * strategy.dp_outer);
  const LayoutShape shape = MakeLayoutShape(model_, work_, strategy, data, pipeline);
  return closed_form_.Evaluate(*std::get<const LayerTable*>(table), shape, window);
}

}  // namespace orrery
