// SPDX-License-Identifier: Apache-2.0
// The closed form itself.
#include "model/cost/closed_form.h"

#include <algorithm>
#include <cmath>

#include "model/input/check.h"

namespace orrery {
namespace {

double OptimizerTraffic(const StackProfile& stack, Optimizer optimizer) {
  switch (optimizer) {
    case Optimizer::kSgd:
      return stack.sgd_traffic;
    case Optimizer::kAdam:
    case Optimizer::kAdamW:
      return stack.adam_traffic;
    case Optimizer::kLamb:
      return stack.lamb_traffic;
  }
  ORRERY_CHECK(false, "optimizer {}", static_cast<int>(optimizer));
}

// One layer's pass with a collective beside it.
struct Overlap {
  double time = 0;     // of the pass, collective included
  double exposed = 0;  // time - pass
  double hidden = 0;   // part of the collective that compute hides
};

Overlap RunBeside(double pass, double collective, bool overlapped, double slowdown) {
  if (collective <= 0) return {pass, 0, 0};
  if (!overlapped) return {pass + collective, collective, 0};
  const double time = SmoothMax(pass, collective) + slowdown * std::min(pass, collective);
  return {time, time - pass, std::max(0.0, collective - (time - pass))};
}

// Seconds of one micro-batch, per layer.
struct LayerPass {
  double device = 0, tensor = 0, host = 0, gather = 0, hidden = 0, total = 0;
  double step_extra = 0;  // once per step and layer
};

LayerPass PassOfLayer(const ClosedForm& form, const LayerTable& table, const LayoutShape& layout) {
  const LayerTime& layer = table.layer;
  const double adding = layout.micro_batches > 1 ? layer.accumulate : 0.0;
  double forward = layer.forward.total;
  double backward = layer.backward.total + adding;
  LayerPass pass;
  pass.device = layer.forward.device + layer.backward.device + adding;
  pass.tensor = layer.forward.tensor + layer.backward.tensor;
  pass.hidden = layer.forward.tensor_hidden + layer.backward.tensor_hidden;
  pass.host = forward + backward - pass.device - pass.tensor;
  if (layout.zero >= 2 && layout.data->dp > 1) {
    const DataGroup& data = *layout.data;
    const double gather =
        data.latency + data.layer_gather.Time(table.layer_parameters * layout.weight_bytes);
    const double scatter =
        data.latency + data.layer_scatter.Time(table.layer_parameters * layout.gradient_bytes);
    const bool every_pass = layout.zero == 3;
    const Overlap f =
        RunBeside(forward, gather, layout.overlap_param_gather, form.overlap_slowdown);
    const Overlap b = RunBeside(backward, scatter + (every_pass ? gather : 0.0),
                                layout.overlap_grad_reduce, form.overlap_slowdown);
    if (every_pass) {
      forward = f.time;
      pass.gather += f.exposed;
      pass.hidden += f.hidden;
      pass.step_extra =
          2.0 * gather / std::max(table.layers, 1.0);  // the first gathers have nothing beside them
    } else {
      pass.step_extra = f.exposed;  // ZeRO 2 gathers once per step
    }
    backward = b.time;
    pass.gather += b.exposed;
    pass.hidden += b.hidden;
  }
  pass.total = forward + backward;
  return pass;
}

struct Ends {
  double embedding = 0, head = 0, device = 0, tensor = 0;
};

Ends EndsOf(const LayerTable& table, bool accumulate) {
  Ends ends;
  const auto time = [&](const LayerTime& t) {
    const double adding = accumulate ? t.accumulate : 0.0;
    ends.device += t.forward.device + t.backward.device + adding;
    ends.tensor += t.forward.tensor + t.backward.tensor;
    return t.forward.total + t.backward.total + adding;
  };
  ends.embedding = time(table.embedding);
  ends.head = time(table.head);
  return ends;
}

// Part of the bubble that zero-bubble schedules fill with weight gradients.
double BubbleShare(const LayerTable& table, const LayoutShape& layout, double pass) {
  if (layout.schedule == PipelineSchedule::kInterleaved) return 1.0 / layout.vpp;
  if (layout.schedule != PipelineSchedule::kZeroBubble) return 1.0;
  return std::max(0.1, 1.0 - 2.0 * table.layer.weight_gradient / pass);
}

double FullestParameters(const LayerTable& table, const LayoutShape& layout) {
  const double p = table.layer_parameters;
  const double table_rows = table.embedding_parameters;
  if (layout.pp == 1) return layout.first_layers * p + table_rows + table.head_parameters;
  const double first = layout.first_layers * p + table_rows;
  const double last =
      layout.last_layers * p + table.head_parameters + (table.tied ? table_rows : 0.0);
  return std::max({first, last, layout.middle_layers * p});
}

double Reduction(const LayoutShape& layout, double parameters) {
  const DataGroup& data = *layout.data;
  const double gradient = parameters * layout.gradient_bytes;
  double time = 0;
  if (layout.zero == 0) time = data.all_reduce.Time(gradient);
  if (layout.zero == 1) {
    time =
        data.reduce_scatter.Time(gradient) + data.all_gather.Time(parameters * layout.weight_bytes);
  }
  if (data.dp_outer > 1 && layout.zero > 0) time += data.outer_all_reduce.Time(gradient / data.dp);
  return time;
}

}  // namespace

ClosedForm::ClosedForm(const CostSetting& setting, const Workload& work) {
  const StackProfile& stack = *setting.stack;
  const double rate = setting.gpu->memory_bandwidth.value * setting.gpu->memory_efficiency;
  optimizer_traffic = OptimizerTraffic(stack, work.optimizer) / rate;
  overlap_slowdown = setting.gpu->overlap_slowdown;
  data_exposed = stack.data_exposed;
  pipeline_exposed = stack.pipeline_exposed;
  pipeline_latency = stack.pipeline_latency.value;
  const double doublings =
      std::log2(std::max<double>(1.0, static_cast<double>(setting.cluster->nodes)));
  step_fixed = stack.step_fixed.value + stack.step_per_doubling.value * doublings;
  step_per_layer = stack.step_per_layer.value;
  residual_low = stack.residual_low;
  residual_high = stack.residual_high;
}

StepTime ClosedForm::Evaluate(const LayerTable& table, const LayoutShape& layout,
                              Window window) const {
  const bool whole_step = window == Window::kStep;
  LayoutShape shape = layout;
  if (!whole_step) shape.micro_batches = 1;
  const double M = shape.micro_batches;
  const LayerPass layer = PassOfLayer(*this, table, shape);
  const Ends ends = EndsOf(table, M > 1);
  const double sum = table.layers * layer.total + ends.embedding + ends.head;

  double busiest_layers = shape.first_layers;
  double busiest = sum;
  double ends_share = 1.0;  // of embedding and head, on the busiest stage
  if (shape.pp > 1) {
    const double first = shape.first_layers * layer.total + ends.embedding;
    const double last = shape.last_layers * layer.total + ends.head;
    const double middle = shape.middle_layers * layer.total;
    busiest = std::max({first, last, middle});
    busiest_layers = busiest == last     ? shape.last_layers
                     : busiest == middle ? shape.middle_layers
                                         : shape.first_layers;
    const double at_ends = busiest == last ? ends.head : busiest == middle ? 0.0 : ends.embedding;
    ends_share = ends.embedding + ends.head > 0 ? at_ends / (ends.embedding + ends.head) : 0.0;
  }

  StepTime time;
  time.compute = M * (busiest_layers * layer.device + ends_share * ends.device);
  time.tensor_exposed = M * (busiest_layers * layer.tensor + ends_share * ends.tensor);
  time.gather_exposed = M * busiest_layers * layer.gather;
  time.host = M * busiest - time.compute - time.tensor_exposed - time.gather_exposed;
  time.overlapped = M * busiest_layers * layer.hidden;
  if (shape.pp > 1) {
    time.bubble = (sum - busiest) * BubbleShare(table, shape, layer.total);
    const double message = pipeline_latency + shape.pipeline->send.Time(table.boundary_bytes);
    const double transfers = 2.0 * (shape.pp - 1) * (1.0 + M * shape.vpp / shape.pp) * message;
    time.pipeline_exposed = pipeline_exposed * transfers;
    time.overlapped += (1.0 - pipeline_exposed) * transfers;
  }
  if (whole_step) {
    const double parameters = FullestParameters(table, shape);
    const double reduction = Reduction(shape, parameters);
    const double exposed = shape.overlap_grad_reduce ? data_exposed : 1.0;
    time.data_exposed = exposed * reduction;
    time.overlapped += (1.0 - exposed) * reduction;
    time.gather_exposed += busiest_layers * layer.step_extra;
    const double shards = shape.zero > 0 ? shape.data->dp : 1.0;
    time.optimizer = optimizer_traffic * parameters / shards;
    time.fixed = step_fixed + step_per_layer * table.layers;
  }
  time.total = time.compute + time.host + time.tensor_exposed + time.gather_exposed +
               time.data_exposed + time.pipeline_exposed + time.bubble + time.optimizer +
               time.fixed;
  time.low = time.total * residual_low;
  time.high = time.total * residual_high;
  return time;
}

}  // namespace orrery
