// SPDX-License-Identifier: Apache-2.0
// The closed form itself.
#include "model/engine/closed/closed_form.h"

#include <algorithm>
#include <cmath>

#include "model/base/check.h"

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

// Seconds per parameter; of a measured kernel those of large tensors.
double OptimizerTime(const CostSetting& setting, const Workload& work) {
  constexpr double kElements = 1 << 20,
                   kBytes = 28;  // weight, gradient, two moments; three of them written
  const StackProfile& stack = *setting.stack;
  const KernelTable& measured = setting.gpu->kernels[static_cast<std::size_t>(work.precision)];
  const bool adam = work.optimizer == Optimizer::kAdam || work.optimizer == Optimizer::kAdamW;
  if (adam && work.precision == Precision::kFp32) {
    if (const auto time = measured.Seconds("adam", {kElements * kBytes, 1, 1, 1}))
      return *time / kElements;
  }
  const double rate = setting.gpu->memory_bandwidth.value * setting.gpu->memory_efficiency;
  return OptimizerTraffic(stack, work.optimizer) / rate;
}

// One layer's pass with a collective beside it.
struct Overlap {
  double time = 0;     // of the pass, collective included
  double exposed = 0;  // time - pass
  double hidden = 0;   // part of the collective that compute hides
};

// `moving`: seconds of the collective that compute is slower for.
Overlap RunBeside(double pass, double collective, bool overlapped, double slowdown, double moving) {
  if (collective <= 0) return {pass, 0, 0};
  if (!overlapped) return {pass + collective, collective, 0};
  const double time = SmoothMax(pass, collective) + slowdown * std::min({pass, collective, moving});
  return {time, time - pass, std::max(0.0, collective - (time - pass))};
}

// Seconds of one micro-batch, per layer.
struct LayerPass {
  double forward = 0, backward = 0;  // of the device, waits for gathers included
  double host_forward = 0, host_backward = 0;
  double device = 0, tensor = 0, gather = 0;
  double tensor_hidden = 0, gather_hidden = 0;
  double step_extra = 0;  // once per step and layer
};

LayerPass PassOfLayer(const ClosedForm& form, const LayerTable& table, const LayoutShape& layout) {
  const LayerTime& layer = table.layer;
  const double adding = layout.accumulates ? layer.accumulate : 0.0;
  LayerPass pass;
  pass.forward = layer.forward.busy();
  pass.backward = layer.backward.busy() + adding;
  pass.host_forward = layer.forward.host;
  pass.host_backward = layer.backward.host;
  pass.device = layer.forward.device + layer.backward.device + adding;
  pass.tensor = layer.forward.tensor + layer.backward.tensor;
  pass.tensor_hidden = layer.forward.tensor_hidden + layer.backward.tensor_hidden;
  if (layout.zero >= 2 && layout.data->dp > 1) {
    const DataGroup& data = *layout.data;
    const double gather =
        data.latency + data.layer_gather.Time(table.layer_parameters * layout.weight_bytes);
    const double scatter =
        data.latency + data.layer_scatter.Time(table.layer_parameters * layout.gradient_bytes);
    const bool every_pass = layout.zero == 3;
    const auto moving = [&](double seconds, double bytes) {
      return std::max(0.0, seconds - bytes * data.slower_per_byte);
    };
    const double gather_moves = moving(gather, table.layer_parameters * layout.weight_bytes);
    const double scatter_moves = moving(scatter, table.layer_parameters * layout.gradient_bytes);
    const Overlap f = RunBeside(pass.forward, gather, layout.overlap_param_gather,
                                form.overlap_slowdown, gather_moves);
    const Overlap b =
        RunBeside(pass.backward, scatter + (every_pass ? gather : 0.0), layout.overlap_grad_reduce,
                  form.overlap_slowdown, scatter_moves + (every_pass ? gather_moves : 0.0));
    if (every_pass) {
      pass.forward = f.time;
      pass.gather += f.exposed;
      pass.gather_hidden += f.hidden;
      pass.step_extra =
          2.0 * gather / std::max(table.layers, 1.0);  // the first gathers have nothing beside them
    } else {
      pass.step_extra = f.exposed;  // ZeRO 2 gathers once per step
    }
    pass.backward = b.time;
    pass.gather += b.exposed;
    pass.gather_hidden += b.hidden;
  }
  return pass;
}

// One micro-batch on one stage: what the device does and what the host issues for it, in this order.
struct StageWork {
  double forward = 0, head = 0, backward = 0;
  double host_forward = 0, host_head = 0, host_backward = 0;
};

StageWork WorkOf(const LayerTable& table, const LayoutShape& layout, const LayerPass& layer,
                 double layers, bool first, bool last) {
  const auto adding = [&](const LayerTime& t) { return layout.accumulates ? t.accumulate : 0.0; };
  StageWork work{layers * layer.forward,      0, layers * layer.backward,
                 layers * layer.host_forward, 0, layers * layer.host_backward};
  if (first) {
    const LayerTime& t = table.embedding;
    work.forward += t.forward.busy();
    work.backward += t.backward.busy() + adding(t);
    work.host_forward += t.forward.host;
    work.host_backward += t.backward.host;
  }
  if (last) {
    const LayerTime& t = table.head;
    work.head = t.forward.busy() + t.backward.busy() + adding(t);
    work.host_head = t.forward.host + t.backward.host;
  }
  return work;
}

// Device and host side by side. The device works on what the host has issued; the host runs ahead
// of it, without end or up to its next wait: for a micro-batch to load and, between stages, for
// what the neighbour sends.
double Together(const StageWork& w, bool host_waits, bool pipeline) {
  const double device = w.forward + w.head + w.backward;
  const double host = w.host_forward + w.host_head + w.host_backward;
  if (!host_waits) return std::max(device, host);
  if (pipeline) {
    return std::max(w.forward, w.host_forward) +
           std::max({w.head + w.backward, w.host_head + w.backward, w.host_head + w.host_backward});
  }
  return std::max({device, w.host_forward + w.head + w.backward,
                   w.host_forward + w.host_head + w.backward, host});
}

// What the host issues for one micro-batch on the stage where that takes longest.
double IssueTime(const LayerTable& table, const LayoutShape& layout, const LayerPass& layer) {
  const auto host = [&](double layers, bool first, bool last) {
    const StageWork work = WorkOf(table, layout, layer, layers, first, last);
    return work.host_forward + work.host_head + work.host_backward;
  };
  if (layout.pp == 1) return host(table.layers, true, true);
  return std::max({host(layout.first_layers, true, false), host(layout.last_layers, false, true),
                   host(layout.middle_layers, false, false)});
}

struct StageTimes {
  double sum = 0;                  // of all stages
  double busiest = 0;              // the longest
  double layers = 0;               // of that one
  bool first = true, last = true;  // it is
};

StageTimes TimeStages(const ClosedForm& form, const LayerTable& table, const LayoutShape& layout,
                      const LayerPass& layer) {
  const bool pipeline = layout.pp > 1;
  const auto time = [&](double layers, bool first, bool last) {
    return Together(WorkOf(table, layout, layer, layers, first, last), form.host_waits, pipeline);
  };
  if (!pipeline) {
    const double all = time(table.layers, true, true);
    return {all, all, layout.first_layers, true, true};
  }
  const double first = time(layout.first_layers, true, false);
  const double last = time(layout.last_layers, false, true);
  const double middle = time(layout.middle_layers, false, false);
  const double between = table.layers - layout.first_layers - layout.last_layers;
  StageTimes times;
  times.sum = first + last + between * time(1, false, false);
  times.busiest = std::max({first, last, middle});
  times.first = times.busiest == first;
  times.last = !times.first && times.busiest == last;
  times.layers = times.first  ? layout.first_layers
                 : times.last ? layout.last_layers
                              : layout.middle_layers;
  return times;
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

// Of so many bytes, in as many equal messages as the software's buckets make of them.
double Bucketed(const PreparedCollective& collective, double bytes, double bucket) {
  const double messages = std::max(1.0, std::ceil(bytes / bucket));
  return messages * collective.Time(bytes / messages);
}

// Of the gradients of so many parameters; ZeRO 2 and 3 reduce inside the passes.
double Reduction(const ClosedForm& form, const LayoutShape& layout, double parameters) {
  const DataGroup& data = *layout.data;
  const double gradient = parameters * layout.gradient_bytes;
  double time = 0;
  if (layout.zero == 0) time = Bucketed(data.all_reduce, gradient, form.bucket);
  if (layout.zero == 1) time = Bucketed(data.reduce_scatter, gradient, form.bucket);
  if (data.dp_outer > 1 && layout.zero > 0)
    time += Bucketed(data.outer_all_reduce, gradient / data.dp, form.bucket);
  return time;
}

double WeightGather(const ClosedForm& form, const LayoutShape& layout, double parameters) {
  if (layout.zero != 1) return 0;
  return Bucketed(layout.data->all_gather, parameters * layout.weight_bytes, form.bucket);
}

// What is longer than the passes beside it. With interleaved chunks the passes of all but the last
// micro-batches of a round are still to come when the first chunk has its gradients (or until the
// last one wants its weights); one chunk in vpp has its own pass only.
double Beyond(const LayoutShape& layout, double collective, double pass) {
  const double chunks = layout.vpp;
  const double round = chunks > 1 ? std::min<double>(layout.micro_batches, layout.pp) : 1.0;
  const double beside = pass * (round * (chunks - 1.0) + 1.0) / chunks;
  return std::max({0.0, collective - beside, (collective - pass) / chunks});
}

// What is not hidden of a reduction beside the last backward passes: the share that slows them
// down, the embedding's gradients, which are ready at their very end, and what is longer.
double ExposedReduction(const ClosedForm& form, const LayerTable& table, const LayoutShape& layout,
                        double reduction, double backward) {
  if (!layout.overlap_grad_reduce) return reduction;
  const double last = std::min(reduction, Reduction(form, layout, table.embedding_parameters));
  const double share = VisibleShare(form.visible_reduction, layout.whole_replicas);
  const double beside = last + share * (reduction - last);
  return std::min(reduction, std::max(beside, Beyond(layout, reduction, backward)));
}

double ExposedGather(const ClosedForm& form, const LayoutShape& layout, double gather,
                     double forward) {
  if (!layout.overlap_param_gather) return gather;
  return std::max(form.data_exposed * gather, Beyond(layout, gather, forward));
}

}  // namespace

ClosedForm::ClosedForm(const CostSetting& setting, const Workload& work) {
  const StackProfile& stack = *setting.stack;
  optimizer_traffic = OptimizerTime(setting, work);
  crowding = setting.cluster->Crowding();
  overlap_slowdown = setting.gpu->overlap_slowdown;
  host_waits = stack.host_waits > 0.5;
  timer_waits = stack.timer_waits > 0.5;
  bucket = stack.bucket.value;
  data_exposed = stack.data_exposed;
  visible_reduction = VisibleReductionOf(stack);
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
  if (window == Window::kMicrostep && !timer_waits && !host_waits) {
    StepTime printed;
    printed.host = printed.total = IssueTime(table, shape, layer);
    printed.low = printed.total * residual_low;
    printed.high = printed.total * residual_high;
    return printed;
  }
  const StageTimes stages = TimeStages(*this, table, shape, layer);
  const double busiest_layers = stages.layers;

  StepTime time;
  time.compute = busiest_layers * layer.device;
  time.tensor = busiest_layers * layer.tensor;
  const auto add_end = [&](const LayerTime& end) {
    time.compute +=
        end.forward.device + end.backward.device + (shape.accumulates ? end.accumulate : 0.0);
    time.tensor += end.forward.tensor + end.backward.tensor;
  };
  if (stages.first) add_end(table.embedding);
  if (stages.last) add_end(table.head);
  time.compute *= M;
  time.tensor *= M;
  time.data = M * busiest_layers * layer.gather;
  time.host = M * stages.busiest - time.compute - time.tensor - time.data;
  time.tensor_hidden = M * busiest_layers * layer.tensor_hidden;
  time.data_hidden = M * busiest_layers * layer.gather_hidden;
  if (shape.pp > 1) {
    time.bubble =
        (stages.sum - stages.busiest) * BubbleShare(table, shape, layer.forward + layer.backward);
    const double message = pipeline_latency + shape.pipeline->send.Time(table.boundary_bytes);
    const double transfers = 2.0 * (shape.pp - 1) * (1.0 + M * shape.vpp / shape.pp) * message;
    time.pipeline = pipeline_exposed * transfers;
    time.pipeline_hidden = (1.0 - pipeline_exposed) * transfers;
  }
  if (whole_step) {
    const double parameters = FullestParameters(table, shape);
    const double reduction = Reduction(*this, shape, parameters);
    const double gather = WeightGather(*this, shape, parameters);
    const double exposed =
        ExposedReduction(*this, table, shape, reduction, busiest_layers * layer.backward) +
        ExposedGather(*this, shape, gather, busiest_layers * layer.forward);
    time.data += exposed;
    time.data_hidden += reduction + gather - exposed;
    time.data += busiest_layers * layer.step_extra;
    const double shards = shape.zero > 0 ? shape.data->dp : 1.0;
    time.optimizer = optimizer_traffic * parameters / shards;
    time.fixed = step_fixed + step_per_layer * table.layers;
  }
  if (crowding > 1) {
    // Ranks that share cores: what one of them waits for in a bubble, others use.
    const double kernels = time.compute + time.optimizer;
    time.compute += std::max(0.0, (crowding - 1) * kernels - time.bubble);
  }
  time.total = time.Total();
  time.low = time.total * residual_low;
  time.high = time.total * residual_high;
  return time;
}

}  // namespace orrery
