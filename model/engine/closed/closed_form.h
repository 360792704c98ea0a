// SPDX-License-Identifier: Apache-2.0
// Step time of a strategy in closed form: a few dozen multiplications once the layer tables exist.
//
//   layer      forward f, backward b (with recomputation) from the layer table; with ZeRO 3 a pass
//              also waits for its gathers and reductions: SmoothMax(f, c) + kappa min(f, c, w), w: c
//              without what a slower network than the links inside a node adds, for compute loses
//              processors and memory bandwidth to bytes that move, not to waiting for them
//   stage      S_i: layers_i (f + b) (+ embedding on the first, + head on the last) of the device, or
//              what the host issues where that takes longer; the host runs ahead up to its waits
//   pipeline   M max S + (sum of the other S) / v, plus exposed transfers between stages
//              2 (p-1) (1 + M v / p) t_p2p x exposed share; zero-bubble puts off weight gradients
//   data       reduction r (ZeRO 0: all-reduce; 1: reduce-scatter) beside the last backward pass B:
//              max(l + x (r - l), r - B), l: that of the embedding, ready last; gather (ZeRO 1) x
//              x: exposed share of the software
//   optimizer  bytes per parameter x parameters of the fullest stage / shards / bandwidth
//   fixed      per step, per layer, per doubling of the nodes
//   micro-step as printed where the timer does not wait for the device: what the host issues
//   crowding   r ranks per processor core: compute + max(0, (r - 1) (compute + optimizer) - bubble)
// Symbols as in the step-time study: M micro-batches, p stages, v chunks per stage. More bandwidth,
// more FLOP/s or less latency never makes a step longer.
#pragma once

#include <map>
#include <memory>
#include <variant>
#include <vector>

#include "model/collectives/select.h"
#include "model/price/breakdown.h"
#include "model/price/layer_table.h"

namespace orrery {

enum class Window {
  kStep,       // one optimizer step
  kMicrostep,  // forward and backward of one micro-batch, as the software's timer prints it: no
               // reduction, no optimizer
  kSustained,  // the same in the long run; differs where that timer does not wait for the device
};

// Collectives of the data-parallel axes, prepared once per (dp, dp_outer, inner ranks).
struct DataGroup {
  PreparedCollective all_reduce, reduce_scatter, all_gather;  // whole gradients and weights
  PreparedCollective layer_gather, layer_scatter;             // ZeRO 3: one layer
  PreparedCollective outer_all_reduce;                        // between hybrid-sharding groups
  double dp = 1, dp_outer = 1;
  double latency = 0;  // extra seconds per layer gather
  double slower_per_byte =
      0;  // seconds per byte that a network slower than a node's links adds to a layer gather
};

// Transfers between neighbouring stages, prepared once per (pp, inner ranks).
struct PipelineGroup {
  PreparedCollective send;
};

// What the closed form needs of one strategy; plain numbers only.
struct LayoutShape {
  int pp = 1;
  int vpp = 1;
  PipelineSchedule schedule = PipelineSchedule::k1F1B;
  double micro_batches = 1;
  bool accumulates =
      false;  // gradients of several micro-batches add up; seen in one of them alone too
  int zero = 0;
  bool whole_replicas = true;  // HoldsWholeReplicas()
  bool overlap_grad_reduce = true;
  bool overlap_param_gather = true;
  double gradient_bytes = 2;  // per element
  double weight_bytes = 2;
  // Layers of the first, the last and the fullest other stage.
  double first_layers = 0, middle_layers = 0, last_layers = 0;
  const DataGroup* data = nullptr;
  const PipelineGroup* pipeline = nullptr;
};

// Seconds of one window on the rank that computes longest; the parts add up to `total`.
struct StepTime : Breakdown {
  double total = 0;
  double low = 0, high = 0;  // 80 % interval
};

// Seconds and rates that do not depend on the strategy.
struct ClosedForm {
  ClosedForm(const CostSetting& setting, const Workload& work);

  StepTime Evaluate(const LayerTable& table, const LayoutShape& layout,
                    Window window = Window::kStep) const;

  double optimizer_traffic = 0;  // seconds per parameter
  double overlap_slowdown = 0;
  bool host_waits = true, timer_waits = true;
  double bucket = 1;  // bytes
  double data_exposed = 1;
  VisibleReduction visible_reduction;
  double pipeline_exposed = 0, pipeline_latency = 0;
  double step_fixed = 0, step_per_layer = 0;
  double crowding = 1;  // ranks per core, at least 1
  double residual_low = 1, residual_high = 1;
};

DataGroup MakeDataGroup(const CostSetting& setting, int dp, int dp_outer, int inner);
PipelineGroup MakePipelineGroup(const CostSetting& setting, int pp, int inner);
LayoutShape MakeLayoutShape(const ModelSpec& model, const Workload& work, const Strategy& strategy,
                            const DataGroup* data, const PipelineGroup* pipeline);

// Predicts strategies of one model and workload on one cluster; layer tables and groups are kept.
// Not for concurrent use. The profiles and the cluster must outlive it.
class StepPredictor {
 public:
  // `shapes`: where to look for shapes and to leave new ones; null: each predictor makes its own.
  StepPredictor(const ModelSpec& model, const Workload& work, const CostSetting& setting,
                ShapeCache* shapes = nullptr);

  // Refusal: the strategy cannot be lowered. Context parallelism is costed although it is not
  // lowered.
  std::variant<StepTime, Refusal> Predict(const Strategy& strategy, Window window = Window::kStep);

  // The parts, for callers that evaluate many strategies. Pointers stay valid.
  std::variant<const LayerTable*, Refusal> Table(const MicroBatchKey& key);
  const DataGroup* Data(int dp, int dp_outer, int inner);
  const PipelineGroup* Pipeline(int pp, int inner);
  const ClosedForm& closed_form() const { return closed_form_; }

 private:
  ModelSpec model_;
  Workload work_;
  CostSetting setting_;
  ClosedForm closed_form_;
  ShapeCache* shapes_;
  std::map<MicroBatchKey, std::variant<LayerTable, Refusal>> tables_;
  std::map<std::array<int, 3>, DataGroup> data_;
  std::map<std::array<int, 2>, PipelineGroup> pipelines_;
};

MicroBatchKey KeyOf(const Strategy& strategy);

}  // namespace orrery
