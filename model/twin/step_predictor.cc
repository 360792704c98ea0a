// SPDX-License-Identifier: Apache-2.0
// Looks up layer tables and prepared messages of a strategy.
#include "model/twin/step_predictor.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

namespace orrery {
namespace {

MicroBatchOps WithCounts(MicroBatchOps ops, const std::vector<MicroBatchPlan::LayerKind>& kinds) {
  for (std::size_t i = 0; i < ops.layers.size(); ++i) ops.layers[i].count = kinds[i].count;
  return ops;
}

PlanOutline OutlineOf(const Job& job, const Strategy& strategy) {
  return OutlineOf(job.model, job.work, strategy, LayersOf(job.model, strategy));
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

StepPredictor::StepPredictor(Job job, ShapeCache* shapes)
    : job_(std::move(job)),
      closed_form_(job_.prices(), job_.work,
                   static_cast<double>(job_.model.layers + job_.model.decoder_layers)),
      shapes_(shapes) {}

std::variant<const LayerTable*, Refusal> StepPredictor::Table(const MicroBatchKey& key) {
  if (last_ != nullptr && last_->first == key) return TableOr(last_->second);
  auto found = tables_.find(key);
  if (found == tables_.end()) {
    ShapeCache& shapes = shapes_ != nullptr ? *shapes_ : own_shapes_;
    const MicroBatchKey of_plan = PlanKey(key);
    auto shaped = shapes.find(of_plan);
    if (shaped == shapes.end())
      shaped = shapes.emplace(of_plan, ShapeMicroBatch(job_.model, job_.work, of_plan)).first;
    std::variant<LayerTable, Refusal> entry;
    if (const auto* refusal = std::get_if<Refusal>(&shaped->second)) {
      entry = *refusal;
    } else {
      const auto& ops = std::get<MicroBatchOps>(shaped->second);
      entry = of_plan == key ? CostLayers(ops, job_.model, job_.work, job_.prices())
                             : CostLayers(WithCounts(ops, LayerKinds(job_.model, job_.work, key)),
                                          job_.model, job_.work, job_.prices());
    }
    found = tables_.emplace(key, std::move(entry)).first;
  }
  last_ = &*found;
  return TableOr(found->second);
}

const DataMessages* StepPredictor::Data(int dp, int dp_outer, int inner) {
  const std::array<int, 3> key{dp, dp_outer, inner};
  auto found = data_.find(key);
  if (found == data_.end())
    found = data_.emplace(key, PrepareData(job_.prices(), dp, dp_outer, inner)).first;
  return &found->second;
}

const StageMessages* StepPredictor::Stages(int pp, int inner) {
  const std::array<int, 2> key{pp, inner};
  auto found = stages_.find(key);
  if (found == stages_.end())
    found = stages_.emplace(key, PrepareStages(job_.prices(), pp, inner)).first;
  return &found->second;
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
    const auto slow = traffic.SlowReplicas(slowdown, StagesWait(strategy));
    if (strategy.placement != nullptr && job_.cluster.domain_nodes == 1)
      return Predict(strategy,
                     traffic.StretchesOf(order, UplinksOf(*job_.topology, job_.cluster.nodes),
                                         job_.cluster.node_rate()),
                     slow, window);
    return Slowest(*std::get<const LayerTable*>(table), OutlineOf(job_, strategy),
                   *DataOf(strategy), *StagesOf(strategy), window, slow);
  }
  return closed_form_.Evaluate(*std::get<const LayerTable*>(table), OutlineOf(job_, strategy),
                               *DataOf(strategy), *StagesOf(strategy), window);
}

std::variant<StepTime, Refusal> StepPredictor::Predict(
    const Strategy& strategy, const Stretches& stretches,
    const std::vector<std::vector<double>>& slow_replicas, Window window) {
  const int local = job_.cluster.gpus_per_node;
  const bool on_node = local % (strategy.tp * strategy.cp) == 0;
  StepPredictor& tables = on_node ? *this : Stretched(stretches[kTensorMessages]);
  const auto table = tables.Table(KeyOf(job_.model, strategy));
  if (const auto* refusal = std::get_if<Refusal>(&table)) return *refusal;
  return Slowest(*std::get<const LayerTable*>(table), OutlineOf(job_, strategy),
                 *Stretched(stretches[kDataMessages]).DataOf(strategy),
                 *Stretched(stretches[kStageMessages]).StagesOf(strategy), window, slow_replicas);
}

const DataMessages* StepPredictor::DataOf(const Strategy& s) {
  // Context-parallel ranks hold the same weights: they reduce gradients together with data-parallel
  // ones.
  return Data(s.dp * s.cp, s.dp_outer, s.inside_data());
}

const StageMessages* StepPredictor::StagesOf(const Strategy& s) {
  return Stages(s.pp, s.inside_stages());
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

// Every message between nodes as if the NICs had its share of the uplinks, whatever its algorithm.
StepPredictor& StepPredictor::Stretched(double stretch) {
  std::unique_ptr<StepPredictor>& stretched = stretched_[stretch];
  if (!stretched) {
    Job job = job_;
    job.cluster.oversubscription = 1;
    job.cluster.nic_rate = job.cluster.nic_rate * (1 / stretch);
    stretched = std::make_unique<StepPredictor>(job, shapes_ != nullptr ? shapes_ : &own_shapes_);
  }
  return *stretched;
}

}  // namespace orrery
