// SPDX-License-Identifier: Apache-2.0
// Predicts layouts of one model and workload on one cluster in closed form; layer tables and messages are kept.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <variant>
#include <vector>

#include "model/engine/closed/closed_form.h"
#include "model/price/layer_ops.h"
#include "model/twin/job.h"
#include "model/twin/placed_traffic.h"

namespace orrery {

// Of kernels, by node in use; empty: all are alike.
std::vector<double> SlowdownOf(const Job& job);
// Nodes by place. Throws the InputError of CheckNodeOrder().
std::vector<int32_t> OrderOf(const Job& job, const Strategy& strategy);
std::vector<double> InOrder(const std::vector<double>& by_node, std::span<const int32_t> order);
// Replicas wait for each other within the passes: gradients are scattered there, or weights gathered.
bool StagesWait(const Strategy& strategy);

// Not for concurrent use. The profiles must outlive it.
class StepPredictor {
 public:
  // `shapes`: of the job's model and workload, where to look for shapes and to leave new ones; null: its own.
  // `kernels`: likewise of its GPU and framework; null: each is priced for itself.
  explicit StepPredictor(Job job, ShapeCache* shapes = nullptr, KnownKernels* kernels = nullptr);

  // Of the job, from here on; no table or message depends on it.
  void SetGlobalBatch(int64_t sequences) { job_.work.global_batch = sequences; }

  // Refusal: the strategy cannot be lowered. Context parallelism is costed although it is not
  // lowered.
  std::variant<StepTime, Refusal> Predict(const Strategy& strategy, Window window = Window::kStep);

  // Each order of ranks has one price: the default one stretches messages as a placement that spells it does.
  // The layout of `strategy` where a placement stretches its messages and slows replicas down (PlacedTraffic::SlowReplicas);
  // its own placement says the order of axes alone. The slowest replica's.
  std::variant<StepTime, Refusal> Predict(const Strategy& strategy, const Stretches& stretches,
                                          const std::vector<std::vector<double>>& slow_replicas,
                                          Window window = Window::kStep);

  // The parts, for callers that evaluate many strategies. Pointers stay valid.
  std::variant<const LayerTable*, Refusal> Table(const MicroBatchKey& key);
  // Of any order of nodes, no pass takes less: messages in layers cross no narrow uplinks.
  std::variant<const LayerTable*, Refusal> LeastTable(const MicroBatchKey& key);
  const DataMessages* Data(int dp, int dp_outer, int inner);
  // `layer`: ranks that share a layer, of the `inner` ones of a stage.
  const StageMessages* Stages(int pp, int inner, int layer);
  const DataMessages* DataOf(const Strategy& strategy);
  const StageMessages* StagesOf(const Strategy& strategy);
  const ClosedForm& closed_form() const { return closed_form_; }
  // Some nodes are below uplinks that can hold messages up.
  bool narrow() const { return !uplinks_.empty(); }

 private:
  StepTime Slowest(const LayerTable& table, PlanOutline outline, const DataMessages& data,
                   const StageMessages& stages, Window window,
                   const std::vector<std::vector<double>>& slow_replicas) const;
  // Of its placement, or of ranks in the order of nodes.
  Stretches StretchesOf(const Strategy& strategy, std::span<const int32_t> order) const;
  const Stretches& OfDefault(int tensor, int context, int data, int groups);
  const DataMessages* Data(const DataAxes& axes, const Stretches& stretches);
  const DataMessages* Data(const DataAxes& axes, const StageStretches& of,
                           const DataShapes& shapes);
  // `cut`: ranks that share a layer.
  double SecondsOfLayer(Collective collective, const GroupShape& shape, int cut) const;
  StageAxes StageAxesOf(int pp, int inner, int layer) const;
  const StageMessages* Stages(const StageAxes& axes, const Stretches& stretches);
  bool StretchesLayers(const MicroBatchKey& key) const;
  CostSetting Prices(const UplinkStretch& stretch) const;
  StepPredictor& Stretched(const UplinkStretch& stretch);

  Job job_;
  ClosedForm closed_form_;
  ShapeCache* shapes_;
  ShapeCache own_shapes_;  // without one of others
  KnownKernels* kernels_;
  using Tables = std::map<MicroBatchKey, std::variant<LayerTable, Refusal>>;
  Tables tables_;
  const Tables::value_type* last_ = nullptr;  // that was looked up: searches ask for one many times
  std::map<std::tuple<DataAxes, StageStretches, std::vector<StageStretches>>,
           std::unique_ptr<DataMessages>>
      data_;
  std::map<std::tuple<DataAxes, StageStretches, DataShapes>, DataMessages> data_alike_;
  std::map<std::tuple<StageAxes, double, std::vector<double>>, StageMessages> stages_;
  std::map<std::array<int, 4>, Stretches>
      of_default_;                // by ranks of each axis, in the order of nodes
  std::vector<Uplinks> uplinks_;  // that can hold messages up
  UplinkStretch tensor_;          // of messages in layers, known or (0) as the layout has them
  std::map<UplinkStretch, std::unique_ptr<StepPredictor>> stretched_;  // by that
};

}  // namespace orrery
