// SPDX-License-Identifier: Apache-2.0
// Prepares the messages of data and pipeline axes, and the prices that all layouts share.
#include <algorithm>

#include "model/engine/closed/closed_form.h"

namespace orrery {

DataMessages PrepareData(const CostSetting& setting, int dp, int dp_outer, int inner) {
  const MessagePrices prices(setting);
  const int local = setting.cluster->domain_gpus();
  const GroupShape shards = ShapeOfAxis(dp, inner, local);
  DataMessages data;
  data.dp = dp;
  data.all_reduce = prices.Prepare(MessageRole::kStep, Collective::kAllReduce,
                                   ShapeOfAxis(dp * dp_outer, inner, local));
  data.reduce_scatter = prices.Prepare(MessageRole::kStep, Collective::kReduceScatter, shards);
  data.all_gather = prices.Prepare(MessageRole::kStep, Collective::kAllGather, shards);
  data.layer_gather = prices.Prepare(MessageRole::kShard, Collective::kAllGather, shards);
  data.layer_scatter = prices.Prepare(MessageRole::kShard, Collective::kReduceScatter, shards);
  data.outer_all_reduce = prices.Prepare(MessageRole::kStep, Collective::kAllReduce,
                                         ShapeOfAxis(dp_outer, inner * dp, local));
  return data;
}

StageMessages PrepareStages(const CostSetting& setting, int pp, int inner) {
  const MessagePrices prices(setting);
  const int local = setting.cluster->domain_gpus();
  StageMessages stages;
  if (pp < 2) return stages;
  const int on_node = std::clamp(local / std::max(inner, 1), 1, pp);
  stages.on_node = on_node;
  stages.hops_between = (pp + on_node - 1) / on_node - 1;
  stages.hops_inside = pp - 1 - stages.hops_between;
  const auto send = [&](int per_node) {
    return prices.Prepare(MessageRole::kStage, Collective::kSendRecv,
                          GroupShape{2, per_node, std::clamp(inner, 1, local)});
  };
  if (stages.hops_inside > 0) stages.inside = send(2);
  if (stages.hops_between > 0) stages.between = send(1);
  // Between the first and the last stage, which are on one node where all stages are.
  stages.tied = prices.Prepare(MessageRole::kStep, Collective::kAllReduce,
                               on_node == pp ? GroupShape{2, 2, std::clamp(inner, 1, local)}
                                             : ShapeOfAxis(2, inner * (pp - 1), local));
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
  const int ranks = static_cast<int>(setting.cluster->ranks());
  constexpr double kScalar = 4;  // bytes
  control = messages
                .Prepare(MessageRole::kControl, Collective::kAllReduce,
                         ShapeOfAxis(ranks, 1, setting.cluster->domain_gpus()))
                .Time(kScalar);
  host_waits = ops.HostWaits();
  timer_waits = ops.TimerWaits();
  awaited = messages.Awaited(false);
  awaited_replicas = messages.Awaited(true);
  fixed = FixedCosts(setting, layers);
  crowding = setting.cluster->Crowding();
  residuals = ResidualsOf(setting);
}

}  // namespace orrery
