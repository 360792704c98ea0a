// SPDX-License-Identifier: Apache-2.0
// Predicts layouts of one model and workload on one cluster in closed form; layer tables and messages are kept.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <span>
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
  explicit StepPredictor(Job job, ShapeCache* shapes = nullptr);

  // Of the job, from here on; no table or message depends on it.
  void SetGlobalBatch(int64_t sequences) { job_.work.global_batch = sequences; }

  // Refusal: the strategy cannot be lowered. Context parallelism is costed although it is not
  // lowered.
  std::variant<StepTime, Refusal> Predict(const Strategy& strategy, Window window = Window::kStep);

  // The layout of `strategy` where a placement stretches its messages and slows replicas down (PlacedTraffic::SlowReplicas);
  // its own placement says the order of axes alone. The slowest replica's.
  std::variant<StepTime, Refusal> Predict(const Strategy& strategy, const Stretches& stretches,
                                          const std::vector<std::vector<double>>& slow_replicas,
                                          Window window = Window::kStep);

  // The parts, for callers that evaluate many strategies. Pointers stay valid.
  std::variant<const LayerTable*, Refusal> Table(const MicroBatchKey& key);
  const DataMessages* Data(int dp, int dp_outer, int inner);
  const StageMessages* Stages(int pp, int inner);
  const DataMessages* DataOf(const Strategy& strategy);
  const StageMessages* StagesOf(const Strategy& strategy);
  const ClosedForm& closed_form() const { return closed_form_; }

 private:
  StepTime Slowest(const LayerTable& table, PlanOutline outline, const DataMessages& data,
                   const StageMessages& stages, Window window,
                   const std::vector<std::vector<double>>& slow_replicas) const;
  StepPredictor& Stretched(double stretch);

  Job job_;
  ClosedForm closed_form_;
  ShapeCache* shapes_;
  ShapeCache own_shapes_;  // without one of others
  using Tables = std::map<MicroBatchKey, std::variant<LayerTable, Refusal>>;
  Tables tables_;
  const Tables::value_type* last_ = nullptr;  // that was looked up: searches ask for one many times
  std::map<std::array<int, 3>, DataMessages> data_;
  std::map<std::array<int, 2>, StageMessages> stages_;
  std::map<double, std::unique_ptr<StepPredictor>> stretched_;  // all messages between nodes
};

}  // namespace orrery
