// SPDX-License-Identifier: Apache-2.0
// Assembles the plan: mesh, groups, streams, one program per pipeline stage.
#include "model/plan/lower/lower.h"

#include <fmt/format.h>

#include "model/plan/lower/ends.h"
#include "model/plan/lower/names.h"

namespace orrery {
namespace {

ir::Dtype ActivationType(Precision precision) {
  switch (precision) {
    case Precision::kFp32:
      return ir::Dtype::kF32;
    case Precision::kTf32:
      return ir::Dtype::kTf32;
    case Precision::kFp16:
      return ir::Dtype::kF16;
    case Precision::kBf16:
      return ir::Dtype::kBf16;
  }
  return ir::Dtype::kF32;
}

std::string GroupName(const ir::Mesh& mesh, uint16_t axes) {
  std::string name;
  for (std::size_t axis = 0; axis < mesh.axes.size(); ++axis) {
    if (axes & (1u << axis)) name += (name.empty() ? "" : "+") + mesh.axes[axis].name;
  }
  return name;
}

std::vector<ir::Group> MakeGroups(const ir::Mesh& mesh, const LowerContext& ctx) {
  const auto bit = [](int axis) { return static_cast<uint16_t>(1u << axis); };
  const uint16_t data = bit(kAxisDpOuter) | bit(kAxisDp), context = ctx.ContextAxes();
  const uint16_t shards = bit(kAxisDp) | context;
  const uint16_t sharded = ctx.sharded() ? shards : 0;
  std::vector<ir::Group> groups(kLoweredGroups + (context == 0 ? 0 : ctx.two_level() ? 3 : 2));
  const auto set = [&](int group, uint16_t axes, const char* suffix = "") {
    groups[group].axes = axes;
    groups[group].name = GroupName(mesh, axes) + suffix;
  };
  set(kGroupTp, bit(kAxisTp));
  set(kGroupDp, shards);
  set(kGroupDpOuter, bit(kAxisDpOuter));
  set(kGroupData, data);
  set(kGroupLoss, bit(kAxisPp) | data | context);
  set(kGroupNorm, bit(kAxisPp) | bit(kAxisTp));
  set(kGroupNormSharded, bit(kAxisPp) | shards | bit(kAxisTp));
  set(kGroupShardedTensor, sharded | bit(kAxisTp), ":tensor");
  set(kGroupTied, bit(kAxisPp));
  groups[kGroupTied].name = "emb";
  groups[kGroupTied].restricted_axis = kAxisPp;
  groups[kGroupTied].allowed = {0, mesh.axes[kAxisPp].size - 1};
  if (mesh.axes[kAxisPp].size == 1) groups[kGroupTied].allowed = {0};
  if (context != 0) {
    set(kGroupReplicas, data | context);
    set(kGroupContext, context, ":context");
    if (ctx.two_level()) set(kGroupHeads, bit(kAxisCp));
  }
  if (ctx.work.fp8 == Fp8::kDelayed) {
    groups.emplace_back();
    set(static_cast<int>(groups.size()) - 1, data | context | bit(kAxisTp), ":scales");
  }
  return groups;
}

// Of ranks that share sequences: the ring of groups stands where the expert axis has one rank.
ir::Mesh MakeMesh(const LowerContext& ctx) {
  const Strategy& s = ctx.strategy;
  ir::Mesh mesh;
  mesh.program_axis = kAxisPp;
  mesh.axes = {{"pp", s.pp}, {"dpo", s.dp_outer}, {"dp", s.dp},
               {"ep", s.ep}, {"cp", s.cp},        {"tp", s.tp}};
  if (s.stages_inside()) mesh.order = {kAxisDpOuter, kAxisDp, kAxisPp, kAxisEp, kAxisCp, kAxisTp};
  if (s.cp == 1) return mesh;
  const uint16_t context = ctx.ContextAxes();
  if (ctx.two_level()) {
    mesh.axes[kAxisEp] = {"cpo", s.cp / s.context.inner};
    mesh.axes[kAxisCp] = {"cpi", s.context.inner};
    mesh.axes.push_back({"cp", s.cp, context});
  }
  mesh.axes.push_back(
      {"dpc", static_cast<int>(s.shards()), static_cast<uint16_t>(context | 1u << kAxisDp)});
  return mesh;
}

std::string ContextWords(const Strategy& s) {
  std::string words = fmt::format(" cp {} {}", s.cp, NameIn(kCpMethodNames, s.context.method));
  if (s.context.inner > 1) words += fmt::format(" inner {}", s.context.inner);
  return words + (s.context.zigzag ? " zigzag" : "");
}

std::string Title(const LowerContext& ctx) {
  const Strategy& s = ctx.strategy;
  return fmt::format("{}: tp {} pp {} dp {}x{} zero {} vpp {} micro-batch {} x {}", ctx.model.name,
                     s.tp, s.pp, s.dp_outer, s.dp, s.zero, s.vpp, s.micro_batch,
                     ctx.micro_batches) +
         (s.cp > 1 ? ContextWords(s) : "") +
         (s.offload.on() ? " offload " + OffloadText(s.offload) : "") +
         (s.layout ? " layers " + LayoutWords(*s.layout) : "") +
         (s.placement ? " placement " + PlacementText(*s.placement) : "");
}

std::vector<ir::Item> ScheduleOf(const Workload& work, const Strategy& s, int stage,
                                 int micro_batches) {
  return StageSchedule(s, stage, micro_batches, work.fp8 != Fp8::kOff);
}

void EmitStage(StageBuilder& stage) {
  switch (stage.ctx().model.family) {
    case Family::kDecoder:
    case Family::kEncoder:
      EmitTransformerStage(stage);
      break;
    case Family::kEncoderDecoder:
      EmitEncoderDecoder(stage);
      break;
    case Family::kMlp:
      EmitMlpStage(stage);
      break;
  }
}

}  // namespace

LowerContext MakeContext(const ModelSpec& model, const Workload& work, const Strategy& strategy,
                         const LowerOptions& options) {
  LowerContext ctx{.model = model, .work = work, .strategy = strategy, .options = options};
  if (strategy.shards() == 1) ctx.strategy.zero = 0;  // a shard of one rank is the whole
  ctx.hooked = strategy.zero == 3 && strategy.shards() == 1 && !strategy.offload.weights;
  ctx.micro_batches = MicroBatches(work, strategy);
  ctx.low_precision = work.precision == Precision::kFp16 || work.precision == Precision::kBf16;
  ctx.activation = options.uniform_dtype.value_or(ActivationType(work.precision));
  ctx.full = options.uniform_dtype.value_or(ir::Dtype::kF32);
  ctx.mask = options.uniform_dtype.value_or(ir::Dtype::kU8);
  ctx.gradient = strategy.fp32_grads ? ctx.full : ctx.activation;
  const bool copies = ctx.low_precision && work.master_weights;
  ctx.state = copies || !ctx.low_precision ? ctx.full : ctx.activation;
  ctx.master = copies || ctx.strategy.zero == 1 || ctx.strategy.zero == 2;
  ctx.loss_scaling = work.precision == Precision::kFp16 && options.loss_scaling;
  ctx.clip = work.clip_norm > 0 || ctx.loss_scaling;
  ctx.tied_across_stages = model.tied_embeddings && strategy.pp > 1 &&
                           strategy.schedule != PipelineSchedule::kZeroBubbleV &&
                           model.family != Family::kMlp;
  ctx.chunks = BalanceLayers(model.layers, strategy);
  return ctx;
}

LowerResult Lower(const ModelSpec& model, const Workload& work, const Strategy& strategy,
                  const LowerOptions& options) {
  if (auto refused = CheckStrategy(model, work, strategy)) return *refused;
  const LowerContext ctx = MakeContext(model, work, strategy, options);
  ir::Plan plan;
  const Strategy& s = ctx.strategy;
  plan.mesh = MakeMesh(ctx);
  plan.groups = MakeGroups(plan.mesh, ctx);
  plan.streams = {"compute",  "tp",       "dp",        "gather",
                  "send_act", "recv_act", "send_grad", "recv_grad"};
  if (ctx.rings_keys()) plan.streams.insert(plan.streams.end(), {"cp_send", "cp_recv"});
  if (s.schedule == PipelineSchedule::kZeroBubbleV)
    plan.streams.insert(plan.streams.end(),
                        {"send_act_back", "recv_act_back", "send_grad_back", "recv_grad_back"});
  if (s.offload.on())
    plan.streams.insert(plan.streams.end(), std::begin(kHostStreamNames),
                        std::end(kHostStreamNames));
  if (ctx.reduces_between_groups()) plan.streams.push_back("dpo");
  plan.micro_batches = static_cast<int>(ctx.micro_batches);
  plan.frame_pool = s.frame_pool;
  if (s.placement) plan.nodes = s.placement->nodes;
  plan.title = Title(ctx);
  for (int stage = 0; stage < s.pp; ++stage) {
    StageBuilder builder(ctx, &plan, stage);
    EmitStage(builder);
    builder.EmitBegin();
    builder.EmitEnd();
    plan.programs.push_back(builder.Finish(ScheduleOf(work, s, stage, plan.micro_batches)));
  }
  return plan;
}

ir::Plan WithMicroBatches(ir::Plan plan, const Workload& work, const Strategy& strategy,
                          int64_t micro_batches) {
  plan.micro_batches = static_cast<int>(micro_batches);
  for (ir::Program& program : plan.programs)
    program.schedule = ScheduleOf(work, strategy, program.stage, plan.micro_batches);
  return plan;
}

}  // namespace orrery
