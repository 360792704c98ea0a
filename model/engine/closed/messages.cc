// SPDX-License-Identifier: Apache-2.0
// Prepares the messages of data and pipeline axes, and the prices that all layouts share.
#include <algorithm>
#include <initializer_list>

#include "model/engine/closed/closed_form.h"

namespace orrery {
namespace {

// Ranks along an axis, and the ranks between two neighbours.
struct Axis {
  int size = 1, stride = 1;
};

// Seconds of a number that all ranks of these axes learn.
double ControlTime(const CostSetting& setting, std::initializer_list<Axis> axes) {
  constexpr double kScalar = 4;  // bytes
  const int local = setting.cluster->domain_gpus();
  GroupShape shape;
  for (const Axis& axis : axes) {
    shape.ranks *= axis.size;
    shape.ranks_per_node *= std::clamp(local / std::max(axis.stride, 1), 1, axis.size);
  }
  shape.sharing = std::max(1, local / shape.ranks_per_node);
  if (shape.ranks == 1) return 0;
  return MessagePrices(setting)
      .Prepare(MessageRole::kControl, Collective::kAllReduce, shape)
      .Time(kScalar);
}

// What is narrow for one replica is for all.
void AddWays(const std::vector<ReplicaWay>& ways, StageMessages* stages) {
  for (const ReplicaWay& way : ways) {
    const auto hops_of = [&](const std::vector<char>& leaves) {
      std::vector<int> hops = stages->hops;
      for (std::size_t stage = 0; stage < hops.size(); ++stage) {
        if (hops[stage] < StageMessages::kNarrow)
          hops[stage] = leaves[stage] ? StageMessages::kBetween : StageMessages::kInside;
      }
      return hops;
    };
    StageMessages::Way of{hops_of(way.leaves), way.layers, way.first, hops_of(way.own_leaves), {}};
    stages->ways.push_back(std::move(of));
  }
}

}  // namespace

DataMessages PrepareData(const CostSetting& setting, const CostSetting& between_groups,
                         const DataAxes& axes, const DataShapes& shapes) {
  const auto [dp, dp_outer, inner, stages_inside] = axes;
  const MessagePrices prices(setting);
  const GroupShape& shards = shapes.shards;
  DataMessages data;
  data.dp = dp;
  data.shards_on_nics = shards.nodes() > 1;
  data.all_reduce = prices.Prepare(MessageRole::kStep, Collective::kAllReduce, shapes.replicas);
  data.reduce_scatter = prices.Prepare(MessageRole::kStep, Collective::kReduceScatter, shards);
  data.all_gather = prices.Prepare(MessageRole::kStep, Collective::kAllGather, shards);
  data.layer_gather = prices.Prepare(MessageRole::kShard, Collective::kAllGather, shards);
  data.layer_scatter = prices.Prepare(MessageRole::kShard, Collective::kReduceScatter, shards);
  data.outer_all_reduce = MessagePrices(between_groups)
                              .Prepare(MessageRole::kStep, Collective::kAllReduce, shapes.between);
  // Between replicas of a stage lie the others of its layers; stages are outermost, or right around a layer.
  const int replicas = dp * dp_outer, of_layer = inner / stages_inside;
  const auto stages =
      std::max<int>(1, static_cast<int>(setting.cluster->ranks()) / (of_layer * replicas));
  const Axis layer{of_layer, 1}, sharing{dp, inner};
  const Axis stage{stages, stages_inside > 1 ? of_layer : of_layer * replicas};
  data.loss = ControlTime(setting, {{replicas, inner}, stage});
  data.norm = ControlTime(setting, {layer, stage});
  data.norm_of_shards = ControlTime(setting, {layer, sharing, stage});
  data.norm_of_tensors = ControlTime(setting, {layer, sharing});
  return data;
}

StageMessages PrepareStages(const CostSetting& setting, const CostSetting& ends,
                            const std::vector<double>& hops, const StageAxes& axes) {
  const MessagePrices prices(setting);
  const int local = setting.cluster->domain_gpus();
  const int pp = axes.pp;
  const int inner = axes.inner;
  StageMessages stages;
  if (pp < 2) return stages;
  const int on_node = std::clamp(local / std::max(inner, 1), 1, pp);
  stages.on_node = on_node;
  const int64_t ranks = setting.cluster->ranks();
  const std::vector<ReplicaWay> ways = WaysOfReplicas(axes, local, ranks);
  const auto send = [&](const MessagePrices& by, int per_node) {
    return by.Prepare(MessageRole::kStage, Collective::kSendRecv,
                      GroupShape{2, per_node, std::clamp(inner, 1, local)});
  };
  std::vector<double> kinds;
  for (int stage = 0; stage < pp; ++stage) {
    const auto at = static_cast<std::size_t>(stage);
    const bool leaves =
        ways.empty() ? stage / on_node != (stage + 1) % pp / on_node : ways[0].leaves[at] != 0;
    const bool narrow = at < hops.size() && hops[at] > 1;
    stages.hops.push_back(leaves ? StageMessages::kBetween : StageMessages::kInside);
    if (!narrow) {
      if (stage + 1 < pp) ++(leaves ? stages.hops_between : stages.hops_inside);
      continue;
    }
    const auto kind = std::ranges::find(kinds, hops[at]);
    stages.hops.back() = static_cast<int>(kind - kinds.begin()) + StageMessages::kNarrow;
    if (kind != kinds.end()) continue;
    kinds.push_back(hops[at]);
    stages.narrow.push_back(send(prices.With({hops[at], hops[at]}), 1));
  }
  AddWays(ways, &stages);
  const auto any = [&](int kind) {
    const auto has = [&](const StageMessages::Way& way) {
      return std::ranges::find(way.hops, kind) != way.hops.end() ||
             std::ranges::find(way.own_hops, kind) != way.own_hops.end();
    };
    return std::ranges::find(stages.hops, kind) != stages.hops.end() ||
           std::ranges::any_of(stages.ways, has);
  };
  if (any(StageMessages::kInside)) stages.inside = send(prices, 2);
  if (any(StageMessages::kBetween)) stages.between = send(prices, 1);
  if (kinds.empty() && ways.empty()) stages.hops.clear();
  const auto tied = [&](std::optional<int64_t> of) {
    return MessagePrices(ends).Prepare(MessageRole::kStep, Collective::kAllReduce,
                                       ShapeOfEnds(axes, local, ranks, of));
  };
  stages.tied = tied(std::nullopt);
  for (StageMessages::Way& way : stages.ways) way.tied = tied(way.first);
  return stages;
}

ClosedForm::ClosedForm(const CostSetting& setting, const Workload& work, double layers) {
  const OpPrices ops(setting, work.precision);
  const MessagePrices messages(setting);
  update = ops.UpdatePerElement(work);
  host = ops.OfHost();
  norm = ops.UpdateStream("sumsq");
  fill = ops.Stream(ir::Info(ir::OpKind::kZero).name);
  add = ops.Stream("add");
  code_amax = ops.CastStream(ir::Info(ir::OpKind::kUnitAmax).name);
  code_cast = ops.CastStream(ir::Info(ir::OpKind::kUnitCast).name);
  scans_codes = work.fp8 != Fp8::kDelayed;
  ShapedOp issued;
  issued.shape = CollectiveShape{Collective::kAllGather, 0};
  issue_message = ops.Price(issued, false).host;
  issued.shape = TrafficShape{0, ir::Info(ir::OpKind::kZero).name};
  issued.pass = Pass::kBackward;
  issue_fill = ops.Price(issued, false).host;
  clips = work.clip_norm > 0;
  host_waits = ops.HostWaits();
  timer_waits = ops.TimerWaits();
  awaited = messages.Awaited(false);
  awaited_replicas = messages.Awaited(true);
  fixed = FixedCosts(setting, layers);
  crowding = setting.cluster->Crowding();
  residuals = ResidualsOf(setting);
}

}  // namespace orrery
