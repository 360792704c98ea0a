// SPDX-License-Identifier: Apache-2.0
// Looks up layer tables and prepared messages of a strategy.
#include "model/twin/step_predictor.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace orrery {
namespace {

MicroBatchOps WithCounts(MicroBatchOps ops, const std::vector<MicroBatchPlan::LayerKind>& kinds) {
  for (std::size_t i = 0; i < ops.layers.size(); ++i) ops.layers[i].count = kinds[i].count;
  return ops;
}

}  // namespace

StepPredictor::StepPredictor(Job job, ShapeCache* shapes)
    : job_(std::move(job)),
      closed_form_(job_.prices(), job_.work,
                   static_cast<double>(job_.model.layers + job_.model.decoder_layers)),
      shapes_(shapes) {}

std::variant<const LayerTable*, Refusal> StepPredictor::Table(const MicroBatchKey& key) {
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
  if (const auto* refusal = std::get_if<Refusal>(&found->second)) return *refusal;
  return &std::get<LayerTable>(found->second);
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
  const int inner = strategy.tp * strategy.cp;
  // Context-parallel ranks hold the same weights: they reduce gradients together with data-parallel
  // ones.
  const DataMessages* data = Data(strategy.dp * strategy.cp, strategy.dp_outer, strategy.tp);
  const StageMessages* stages = Stages(strategy.pp, inner * strategy.dp * strategy.dp_outer);
  return closed_form_.Evaluate(
      *std::get<const LayerTable*>(table),
      OutlineOf(job_.model, job_.work, strategy, LayersOf(job_.model, strategy)), *data, *stages,
      window);
}

}  // namespace orrery
