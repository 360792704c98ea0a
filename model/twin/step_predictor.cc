// SPDX-License-Identifier: Apache-2.0
// Looks up layer tables and prepared messages of a strategy.
#include "model/twin/step_predictor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include "model/arch/parameters.h"
#include "model/price/message_prices.h"

namespace orrery {
namespace {

MicroBatchOps WithCounts(MicroBatchOps ops, const std::vector<MicroBatchPlan::LayerKind>& kinds) {
  for (std::size_t i = 0; i < ops.layers.size(); ++i) ops.layers[i].count = kinds[i].count;
  return ops;
}

PlanOutline OutlineOf(const Job& job, const Strategy& strategy) {
  return OutlineOf(job.model, job.work, strategy, LayersOf(job.model, strategy));
}

UplinkStretch OfTensors(const Stretches& stretches) {
  return {stretches[kTensorMessages], stretches[kTensorTrees]};
}

// Context-parallel ranks hold the same weights: they reduce gradients together with data-parallel ones.
DataAxes AxesOf(const Strategy& s) {
  return {s.dp * s.cp, s.dp_outer, s.inside_data(), s.stages_inside() ? s.pp : 1};
}

std::variant<const LayerTable*, Refusal> TableOr(const std::variant<LayerTable, Refusal>& entry) {
  if (const auto* refusal = std::get_if<Refusal>(&entry)) return *refusal;
  return &std::get<LayerTable>(entry);
}

}  // namespace

std::vector<double> SlowdownOf(const Job& job) {
  if (job.topology == nullptr || job.topology->slowdown.empty()) return {};
  std::vector<double> slowdown = job.topology->slowdown;
  slowdown.resize(static_cast<std::size_t>(job.cluster.nodes), 1.0);
  return slowdown;
}

std::vector<int32_t> OrderOf(const Job& job, const Strategy& strategy) {
  if (strategy.placement != nullptr && !strategy.placement->nodes.empty()) {
    CheckNodeOrder(strategy.placement->nodes, job.cluster.nodes, job.cluster.domain_nodes);
    return strategy.placement->nodes;
  }
  std::vector<int32_t> order(static_cast<std::size_t>(job.cluster.nodes));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

std::vector<double> InOrder(const std::vector<double>& by_node, std::span<const int32_t> order) {
  std::vector<double> by_place;
  for (const int32_t node : order) by_place.push_back(by_node[static_cast<std::size_t>(node)]);
  return by_place;
}

bool StagesWait(const Strategy& strategy) {
  return strategy.zero >= 2 && strategy.data_parallel() > 1;
}

StepPredictor::StepPredictor(Job job, ShapeCache* shapes, KnownKernels* kernels)
    : job_(std::move(job)),
      closed_form_(job_.prices(), job_.work,
                   static_cast<double>(job_.model.layers + job_.model.decoder_layers)),
      shapes_(shapes),
      kernels_(kernels) {
  if (job_.topology == nullptr || job_.cluster.domain_nodes > 1) return;
  uplinks_ = NarrowUplinks(*job_.topology, job_.cluster);
}

CostSetting StepPredictor::Prices(const UplinkStretch& stretch) const {
  CostSetting setting = job_.prices();
  // Without a topology, and where nodes share scale-up domains, prices go by the summary of the cluster.
  if (job_.topology != nullptr && job_.cluster.domain_nodes == 1) setting.stretch = stretch;
  return setting;
}

// Messages in layers leave nodes, and how much longer they take depends on the order of nodes.
bool StepPredictor::StretchesLayers(const MicroBatchKey& key) const {
  return tensor_.ring == 0 && !uplinks_.empty() &&
         job_.cluster.gpus_per_node % (key.tp * key.cp) != 0;
}

std::variant<const LayerTable*, Refusal> StepPredictor::LeastTable(const MicroBatchKey& key) {
  return StretchesLayers(key) ? Stretched({1, 1}).Table(key) : Table(key);
}

std::variant<const LayerTable*, Refusal> StepPredictor::Table(const MicroBatchKey& key) {
  if (StretchesLayers(key)) return Stretched(OfTensors(OfDefault(key.tp, key.cp, 1, 1))).Table(key);
  if (last_ != nullptr && last_->first == key) return TableOr(last_->second);
  auto found = tables_.find(key);
  if (found == tables_.end()) {
    ShapeCache& shapes = shapes_ != nullptr ? *shapes_ : own_shapes_;
    const MicroBatchKey of_plan = PlanKey(key);
    const auto& shaped = shapes.Of(job_.model, job_.work, of_plan);
    std::variant<LayerTable, Refusal> entry;
    if (const auto* refusal = std::get_if<Refusal>(&shaped)) {
      entry = *refusal;
    } else {
      const auto& ops = std::get<MicroBatchOps>(shaped);
      const CostSetting prices = Prices(tensor_.ring > 0 ? tensor_ : UplinkStretch{1, 1});
      const std::vector<double>* kernels =
          kernels_ != nullptr ? &kernels_->Of(of_plan, ops, prices, job_.work.precision) : nullptr;
      entry = of_plan == key ? CostLayers(ops, job_.model, job_.work, prices, kernels)
                             : CostLayers(WithCounts(ops, LayerKinds(job_.model, job_.work, key)),
                                          job_.model, job_.work, prices, kernels);
    }
    found = tables_.emplace(key, std::move(entry)).first;
  }
  last_ = &*found;
  return TableOr(found->second);
}

const DataMessages* StepPredictor::Data(const DataAxes& axes, const StageStretches& of,
                                        const DataShapes& shapes) {
  const auto [found, fresh] = data_alike_.try_emplace({axes, of, shapes});
  if (!fresh) return &found->second;
  const auto at = [&](unsigned kind) { return of[kind - kDataMessages]; };
  found->second = PrepareData(Prices({at(kDataMessages), at(kDataTrees)}),
                              Prices({at(kGroupMessages), at(kGroupTrees)}), axes, shapes);
  return &found->second;
}

// Of the weights of a layer, or their gradients, in 16 bits: most of what is sent between data ranks goes layer by layer.
double StepPredictor::SecondsOfLayer(Collective collective, const GroupShape& shape,
                                     int cut) const {
  if (shape.ranks < 2) return 0;
  const int64_t layers = std::max<int64_t>(1, job_.model.layers + job_.model.decoder_layers);
  const double bytes = 2.0 * static_cast<double>(CountParameters(job_.model).total / layers) / cut;
  return MessagePrices(Prices({1, 1})).Prepare(MessageRole::kShard, collective, shape).Time(bytes);
}

// Of all stages what the slowest has, where they lie otherwise or cross other uplinks.
const DataMessages* StepPredictor::Data(const DataAxes& axes, const Stretches& stretches) {
  StageStretches of;
  std::copy_n(stretches.of.begin() + kDataMessages, of.size(), of.begin());
  const auto [found, fresh] = data_.try_emplace({axes, of, stretches.stages});
  if (!fresh) return found->second.get();
  const GroupSeconds seconds = [&](Collective collective, const GroupShape& shape) {
    return SecondsOfLayer(collective, shape, axes.inner / axes.stages_inside);
  };
  const std::vector<DataShapes> shapes =
      ShapesByStage(axes, job_.cluster.domain_gpus(), job_.cluster.ranks(), seconds);
  DataShapes slow = shapes.front(), fast = slow;
  const auto follow = [&](GroupShape DataShapes::*kind, Collective collective) {
    if (std::ranges::all_of(shapes, [&](const DataShapes& one) { return one.*kind == slow.*kind; }))
      return;
    std::vector<GroupShape> kinds;
    GroupShape best = slow.*kind;
    for (const DataShapes& of_stage : shapes) {
      kinds.push_back(of_stage.*kind);
      best = FastestOf(best, kinds.back());
    }
    const auto by = [&](const GroupShape& shape) { return seconds(collective, shape); };
    slow.*kind = *std::ranges::max_element(kinds, {}, by);
    kinds.push_back(best);  // a bound: no stage is faster
    fast.*kind = *std::ranges::min_element(kinds, {}, by);
  };
  follow(&DataShapes::shards, Collective::kAllGather);
  follow(&DataShapes::replicas, Collective::kAllReduce);
  follow(&DataShapes::between, Collective::kAllReduce);
  auto data = std::make_unique<DataMessages>(*Data(axes, of, slow));
  StageStretches fastest = of;
  for (std::size_t stage = 0; stage < std::max(stretches.stages.size(), shapes.size()); ++stage) {
    if (stretches.stages.empty() && shapes.size() == 1) break;
    const StageStretches& by = stretches.stages.empty() ? of : stretches.stages[stage];
    data->of_stage.push_back(Data(axes, by, shapes.size() == 1 ? slow : shapes[stage]));
    for (std::size_t kind = 0; kind < by.size(); ++kind)
      fastest[kind] = std::min(fastest[kind], by[kind]);
  }
  if (!data->of_stage.empty()) data->fastest = Data(axes, fastest, fast);
  found->second = std::move(data);
  return found->second.get();
}

// Ranks of a layer wait for each other; where they are on one node they hand over together.
StageAxes StepPredictor::StageAxesOf(int pp, int inner, int layer) const {
  const bool on_node = job_.cluster.domain_gpus() % layer == 0;
  return {pp, inner, on_node ? 1 : layer};
}

const StageMessages* StepPredictor::Stages(const StageAxes& axes, const Stretches& stretches) {
  const double ends = stretches[kEndMessages];  // of two ranks a tree is a ring
  const auto [found, fresh] = stages_.try_emplace({axes, ends, stretches.hops});
  if (fresh)
    found->second = PrepareStages(Prices({1, 1}), Prices({ends, ends}), stretches.hops, axes);
  return &found->second;
}

const DataMessages* StepPredictor::Data(int dp, int dp_outer, int inner) {
  return Data({dp, dp_outer, inner}, OfDefault(inner, 1, dp, dp_outer));
}

const StageMessages* StepPredictor::Stages(int pp, int inner, int layer) {
  return Stages(StageAxesOf(pp, inner, layer), OfDefault(inner, 1, 1, 1));
}

// Ranks of the axes from the innermost; stages are around them.
const Stretches& StepPredictor::OfDefault(int tensor, int context, int data, int groups) {
  const auto [known, fresh] = of_default_.try_emplace({tensor, context, data, groups});
  if (!fresh) return known->second;
  if (uplinks_.empty()) return known->second;
  Strategy layout;
  layout.tp = tensor, layout.cp = context, layout.dp = data, layout.dp_outer = groups;
  layout.pp = std::max(1, static_cast<int>(job_.cluster.ranks() / layout.ranks()));
  return known->second = StretchesOf(layout, OrderOf(job_, layout));
}

Stretches StepPredictor::StretchesOf(const Strategy& strategy,
                                     std::span<const int32_t> order) const {
  return PlacedTraffic(strategy, job_.cluster.gpus_per_node)
      .StretchesOf(order, uplinks_, job_.cluster.node_rate());
}

std::variant<StepTime, Refusal> StepPredictor::Predict(const Strategy& strategy, Window window) {
  if (auto refusal = CheckStrategy(job_.model, job_.work, strategy)) return *refusal;
  if (strategy.offload.on()) RequireHostPrices(job_.prices(), strategy.offload.optimizer > 0);
  const auto table = Table(KeyOf(job_.model, strategy));
  if (const auto* refusal = std::get_if<Refusal>(&table)) return *refusal;
  if (strategy.placement != nullptr || !SlowdownOf(job_).empty()) {
    const std::vector<int32_t> order = OrderOf(job_, strategy);
    const PlacedTraffic traffic(strategy, job_.cluster.gpus_per_node);
    std::vector<double> slowdown = SlowdownOf(job_);
    if (!slowdown.empty()) slowdown = InOrder(slowdown, order);
    return Predict(strategy, traffic.StretchesOf(order, uplinks_, job_.cluster.node_rate()),
                   traffic.SlowReplicas(slowdown, StagesWait(strategy)), window);
  }
  return closed_form_.Evaluate(*std::get<const LayerTable*>(table), OutlineOf(job_, strategy),
                               *DataOf(strategy), *StagesOf(strategy), window);
}

std::variant<StepTime, Refusal> StepPredictor::Predict(
    const Strategy& strategy, const Stretches& stretches,
    const std::vector<std::vector<double>>& slow_replicas, Window window) {
  const bool on_node = job_.cluster.gpus_per_node % (strategy.tp * strategy.cp) == 0;
  StepPredictor& tables = on_node ? *this : Stretched(OfTensors(stretches));
  const auto table = tables.Table(KeyOf(job_.model, strategy));
  if (const auto* refusal = std::get_if<Refusal>(&table)) return *refusal;
  return Slowest(
      *std::get<const LayerTable*>(table), OutlineOf(job_, strategy),
      *Data(AxesOf(strategy), stretches),
      *Stages(StageAxesOf(strategy.pp, strategy.inside_stages(), strategy.tp * strategy.cp),
              stretches),
      window, slow_replicas);
}

const DataMessages* StepPredictor::DataOf(const Strategy& s) {
  const DataAxes axes = AxesOf(s);
  if (s.placement) return Data(axes, StretchesOf(s, OrderOf(job_, s)));
  return Data(axes.dp, axes.dp_outer, axes.inner);
}

const StageMessages* StepPredictor::StagesOf(const Strategy& s) {
  const int layer = s.tp * s.cp;
  if (s.placement)
    return Stages(StageAxesOf(s.pp, s.inside_stages(), layer), StretchesOf(s, OrderOf(job_, s)));
  return Stages(s.pp, s.inside_stages(), layer);
}

StepTime StepPredictor::Slowest(const LayerTable& table, PlanOutline outline,
                                const DataMessages& data, const StageMessages& stages,
                                Window window,
                                const std::vector<std::vector<double>>& slow_replicas) const {
  std::optional<StepTime> slowest;
  for (const std::vector<double>& replica : slow_replicas) {
    outline.slowdown = &replica;
    const StepTime time = closed_form_.Evaluate(table, outline, data, stages, window);
    if (!slowest || time.total > slowest->total) slowest = time;
  }
  return slowest ? *slowest : closed_form_.Evaluate(table, outline, data, stages, window);
}

// Layers whose messages between nodes are stretched so.
StepPredictor& StepPredictor::Stretched(const UplinkStretch& stretch) {
  std::unique_ptr<StepPredictor>& stretched = stretched_[stretch];
  if (!stretched) {
    stretched = std::make_unique<StepPredictor>(job_, shapes_ != nullptr ? shapes_ : &own_shapes_,
                                                kernels_);
    stretched->tensor_ = stretch;
  }
  return *stretched;
}

}  // namespace orrery
