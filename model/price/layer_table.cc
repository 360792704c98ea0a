// SPDX-License-Identifier: Apache-2.0
// Adds up op times per layer and pass.
#include "model/price/layer_table.h"

#include <algorithm>
#include <cmath>

#include "model/arch/parameters.h"
#include "model/collectives/select.h"
#include "model/price/layer_factors.h"

namespace orrery {
namespace {

template <class... Ts>
struct Overloaded : Ts... {
  using Ts::operator()...;
};

// Tensor-parallel collectives of one group, with what the training software adds to them.
struct TensorCost {
  PreparedCollective all_reduce, all_gather, reduce_scatter;
  double extra = 0;  // seconds per collective

  double Time(const CollectiveShape& shape) const {
    switch (shape.kind) {
      case Collective::kAllGather:
        return 0.5 * extra + all_gather.Time(shape.bytes);
      case Collective::kReduceScatter:
        return 0.5 * extra + reduce_scatter.Time(shape.bytes);
      case Collective::kAllReduce:
      case Collective::kAllToAll:
      case Collective::kSendRecv:
      case Collective::kBroadcast:
        return extra + all_reduce.Time(shape.bytes);
    }
    return 0;
  }
};

TensorCost MakeTensorCost(int tp, const CostSetting& s) {
  TensorCost cost;
  if (tp == 1) return cost;
  const GroupShape shape = ShapeOfAxis(tp, 1, s.cluster->gpus_per_node);
  const Network network = ViewNetwork(*s.cluster, *s.gpu, *s.fabric, shape,
                                      {s.stack->scaleup_use, 1.0, s.stack->algorithm});
  cost.all_reduce = Prepare(Collective::kAllReduce, network);
  cost.all_gather = Prepare(Collective::kAllGather, network);
  cost.reduce_scatter = Prepare(Collective::kReduceScatter, network);
  cost.extra = s.stack->tensor_latency.value + (tp - 1) * s.stack->tensor_latency_per_rank.value;
  return cost;
}

// Sums over one list of operations.
struct Sum {
  double device = 0, tensor = 0, host = 0, weight_gradient = 0, accumulated = 0;
  bool all_reduces = false;  // all-reduces, not the pairs of sequence parallelism

  void Add(const std::vector<ShapedOp>& ops, const OpCost& cost, const TensorCost& tensor_cost,
           double host_op) {
    for (const ShapedOp& op : ops) {
      const double time =
          std::visit(Overloaded{
                         [&](const GemmShape& s) { return cost.Gemm(s); },
                         [&](const AttentionShape& s) {
                           host += cost.UnfusedSoftmaxHost(s);
                           return cost.Attention(s);
                         },
                         [&](const TrafficShape& s) { return cost.Traffic(s); },
                         [&](const LossShape& s) { return cost.Loss(s); },
                         [&](const CollectiveShape& s) {
                           tensor += tensor_cost.Time(s);
                           const bool whole = s.kind == Collective::kAllReduce;
                           host += (whole ? 1.0 : 0.5) * cost.stack().host_collective.value;
                           all_reduces |= whole;
                           return 0.0;
                         },
                     },
                     op.shape);
      device += time;
      if (!std::holds_alternative<CollectiveShape>(op.shape)) host += host_op;
      if (op.weight_gradient) weight_gradient += time;
      accumulated += op.accumulated;
    }
  }
};

PassTime Finish(const Sum& sum, double hidden_share, double host_factor) {
  PassTime pass;
  pass.device = sum.device;
  pass.tensor = sum.tensor * (1.0 - hidden_share);
  pass.tensor_hidden = sum.tensor * hidden_share;
  pass.host = sum.host * host_factor;
  return pass;
}

struct SegmentCosting {
  const OpCost& cost;
  const TensorCost& tensor;
  double host_factor;

  LayerTime operator()(const SegmentOps& ops) const {
    const StackProfile& stack = cost.stack();
    Sum forward, recompute, backward;
    forward.Add(ops.forward, cost, tensor, stack.host_forward_op.value);
    recompute.Add(ops.recompute, cost, tensor, stack.host_forward_op.value);
    backward.Add(ops.backward, cost, tensor, stack.host_backward_op.value);
    LayerTime time;
    const auto pairs = [&](const Sum& sum) {
      return sum.all_reduces ? 0.0 : stack.sequence_overlap;
    };
    time.forward = Finish(forward, pairs(forward), host_factor);
    // A backward pass has its own products to run collectives beside: the weight gradient beside an
    // all-reduce or a scatter, the input gradient beside the second gather.
    const double hidden = std::max(stack.tensor_overlap, pairs(backward));
    const PassTime again = Finish(recompute, pairs(recompute), host_factor);
    time.backward = Finish(backward, hidden, host_factor);
    time.backward.device += again.device;
    time.backward.tensor += again.tensor;
    time.backward.tensor_hidden += again.tensor_hidden;
    time.backward.host += again.host;
    time.recompute_device = again.device;
    time.weight_gradient = backward.weight_gradient;
    time.accumulate = cost.Stream(backward.accumulated * stack.accumulation_traffic);
    return time;
  }
};

void Scale(double factor, const PassTime& from, PassTime* to) {
  to->device += factor * from.device;
  to->tensor += factor * from.tensor;
  to->tensor_hidden += factor * from.tensor_hidden;
  to->host += factor * from.host;
}

void Scale(double factor, const LayerTime& from, LayerTime* to) {
  Scale(factor, from.forward, &to->forward);
  Scale(factor, from.backward, &to->backward);
  to->recompute_device += factor * from.recompute_device;
  to->weight_gradient += factor * from.weight_gradient;
  to->accumulate += factor * from.accumulate;
}

// A measured layer: what its kernels and their issuing take, not its collectives.
void ScaleOwnWork(double factor, LayerTime* layer) {
  for (PassTime* pass : {&layer->forward, &layer->backward}) {
    pass->device *= factor;
    pass->host *= factor;
  }
  layer->recompute_device *= factor;
  layer->weight_gradient *= factor;
}

// What kernels take where the slowest of so many nodes sets the pace.
void Straggle(double factor, LayerTime* time) {
  for (double* seconds : {&time->forward.device, &time->backward.device, &time->recompute_device,
                          &time->weight_gradient, &time->accumulate})
    *seconds *= factor;
}

void CountShard(const ModelSpec& model, int tp, LayerTable* table) {
  const ParameterCount count = CountParameters(model);
  const double outside =
      static_cast<double>(count.embedding + count.pooler + count.head + count.final_norm);
  table->layer_parameters = (static_cast<double>(count.total) - outside) / table->layers / tp;
  table->embedding_parameters = static_cast<double>(count.embedding) / tp;
  table->head_parameters = static_cast<double>(count.head + count.pooler + count.final_norm) / tp;
  table->tied = model.tied_embeddings && model.family != Family::kMlp;
}

}  // namespace

double StragglerFactor(const StackProfile& stack, int64_t nodes) {
  return 1.0 + stack.straggling * std::log2(static_cast<double>(std::max<int64_t>(1, nodes)));
}

double SmoothMax(double x, double y) {
  const double high = x > y ? x : y;
  const double low = x > y ? y : x;
  if (high <= 0) return 0;
  const double r = low / high;
  const double r3 = r * r * r;
  return high * std::pow(1.0 + r3 * r3, 1.0 / 6.0);
}

LayerTable CostLayers(const MicroBatchOps& ops, const ModelSpec& model, const Workload& work,
                      const MicroBatchKey& key, const CostSetting& setting) {
  const OpCost cost(*setting.gpu, *setting.stack, work.precision);
  const TensorCost tensor = MakeTensorCost(key.tp, setting);
  const bool many_nodes = setting.cluster->nodes > 1;
  const SegmentCosting costing{cost, tensor,
                               many_nodes ? 1.0 + setting.stack->host_multi_node : 1.0};
  LayerTable table;
  table.tp = key.tp;
  for (const LayerKind& kind : ops.layers) table.layers += kind.count;
  for (const LayerKind& kind : ops.layers) {
    Scale(kind.scale * kind.count / table.layers, costing(kind.ops), &table.layer);
  }
  ScaleOwnWork(LayerFactor(*setting.gpu, *setting.stack, model, work, key), &table.layer);
  table.embedding = costing(ops.embedding);
  table.embedding.forward.device += setting.stack->embedding_fixed.value;
  table.head = costing(ops.head);
  table.head.forward.device += setting.stack->head_fixed.value;
  const double pace = StragglerFactor(*setting.stack, setting.cluster->nodes);
  for (LayerTime* time : {&table.layer, &table.embedding, &table.head}) Straggle(pace, time);
  table.boundary_bytes =
      ops.boundary_bytes / (key.sequence_parallel || key.scatter_gather ? key.tp : 1);
  CountShard(model, key.tp, &table);
  return table;
}

}  // namespace orrery
