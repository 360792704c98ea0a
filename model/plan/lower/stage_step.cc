// SPDX-License-Identifier: Apache-2.0
// The blocks around the micro-batches: P clears, E reduces, measures the gradient norm and updates the weights.
#include <algorithm>

#include "model/plan/ir/matrices.h"
#include "model/plan/lower/stage_builder.h"

namespace orrery {

using ir::Attr;
using ir::BufferClass;
using ir::OpKind;
using ir::Phase;
using ir::ViewId;

ViewId StageBuilder::GradOperand(int unit) const {
  return ctx_.sharded() ? units_[unit].grad_shard : units_[unit].grad;
}

void StageBuilder::EmitBegin() {
  SelectBlock(0);
  Label(Phase::kSetup, ir::Segment::kStep);
  Emit(OpKind::kZero, {loss_}, {});
  if (norm_ >= 0 && ctx_.streams_gradients()) Emit(OpKind::kZero, {norm_}, {});
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (!units_[unit].trained || units_[unit].streams) continue;
    Emit(OpKind::kZero, {ctx_.scatters() ? units_[unit].grad_shard : units_[unit].grad}, {});
  }
  EmitScales();
}

void StageBuilder::EmitGradNorm() {
  if (!ctx_.clip) return;
  SetPhase(Phase::kGradNorm);
  if (!ctx_.streams_gradients()) Emit(OpKind::kZero, {norm_}, {});
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const int unit = static_cast<int>(i);
    if (units_[i].trained && !units_[i].streams) EmitSumSq(unit, GradOperand(unit));
  }
  AllReduce(norm_, ctx_.sharded() ? kGroupNormSharded : kGroupNorm, kCompute, 0, kTagNorm);
}

void StageBuilder::EmitSumSq(int index, ViewId gradient) {
  const UnitState& unit = units_[index];
  Emit(OpKind::kSumSq, {norm_}, {norm_, gradient},
       {{Attr::kElements, double(unit.shard)},
        {Attr::kZaxis, double(ctx_.sharded() ? ctx_.ShardAxis() : -1)},
        {Attr::kRep, double(program_.units[index].replicated_from)},
        {Attr::kWt, unit.norm_weight},
        {Attr::kWrep, unit.norm_weight / ctx_.strategy.tp}});
}

void StageBuilder::EmitEnd() {
  SelectBlock(static_cast<int>(blocks_.size()) - 1);
  PlaceStates();
  Label(Phase::kGradReduce, ir::Segment::kStep);
  const uint8_t stream = ctx_.strategy.overlap_grad_reduce ? kDpStream : kCompute;
  for (int unit = static_cast<int>(units_.size()) - 1; unit >= 0; --unit) {
    const UnitState& state = units_[unit];
    if (!state.trained || state.streams || state.reduced_in_backward) continue;
    if (ctx_.scatters()) {
      AllReduce(units_[unit].grad_shard, kGroupDpOuter,
                ctx_.reduces_between_groups() ? ctx_.StreamBetweenGroups() : stream);
    } else {
      ReduceUnit(unit, 0);
    }
  }
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].tied)
      AllReduce(GradOperand(static_cast<int>(unit)), kGroupTied, stream, 0, kTagTied);
  }
  EmitAmaxReduction();
  EmitDelayedCodeScales();
  EmitGradNorm();
  AllReduce(loss_, kGroupLoss, kCompute, 0, kTagLoss);
  for (std::size_t unit = 0; unit < units_.size(); ++unit) {
    if (units_[unit].trained) EmitOptimizer(static_cast<int>(unit));
  }
  EmitCodes();
  SetPhase(Phase::kOptimizer);
  if (loss_scale_ >= 0) Emit(OpKind::kLossScale, {loss_scale_}, {loss_scale_, norm_});
}

// LAMB (You et al. 2020): the trust ratio needs the norms of whole tensors, so the update has two passes with a
// small reduction between them when tensors are sharded.
void StageBuilder::EmitLamb(int index, const std::vector<ViewId>& weights_out, ViewId source,
                            ir::Attrs attrs) {
  const UnitState& unit = units_[index];
  const ir::Unit& flat = program_.units[index];
  const ViewId update = Make("u." + flat.name, unit.shard, ctx_.full, BufferClass::kOptimizer);
  const ViewId norms = Make("nrm." + flat.name, 2 * static_cast<int64_t>(flat.segments.size()),
                            ctx_.full, BufferClass::kScalar);
  ir::Buffer& buffer = program_.buffers[program_.views[update].buffer];
  buffer.unit = index;
  buffer.unit_shard_axis = static_cast<int8_t>(ctx_.sharded() ? ctx_.ShardAxis() : -1);
  std::vector<ViewId> in{GradOperand(index), source, unit.first_moment, unit.second_moment};
  if (norm_ >= 0) in.push_back(norm_);
  if (loss_scale_ >= 0) in.push_back(loss_scale_);
  ir::Attrs direction = attrs;
  direction.Set(Attr::kRep, double(flat.replicated_from));
  direction.Set(Attr::kWt, 1);
  direction.Set(Attr::kWrep, 1.0 / ctx_.strategy.tp);
  Emit(OpKind::kLambDir, {unit.first_moment, unit.second_moment, update, norms}, in, direction);
  AllReduce(norms, kGroupShardedTensor, kCompute);
  std::vector<ViewId> apply_in{update, source, norms};
  if (norm_ >= 0) apply_in.push_back(norm_);
  Emit(OpKind::kLambApply, weights_out, apply_in,
       {{Attr::kElements, double(unit.shard)},
        {Attr::kLr, ctx_.options.optimizer.lr},
        {Attr::kMaster, double(weights_out.size() > 1)},
        {Attr::kZaxis, double(ctx_.sharded() ? ctx_.ShardAxis() : -1)}});
}

// A tensor rank orthogonalises its own part of each matrix. Ranks that share optimizer state share the stage's matrices, each
// whole on one of them (Megatron-Core's layer-wise optimizer): none does less than the largest one takes. Units bear the
// work of the busiest rank in proportion to theirs.
double StageBuilder::MuonWork(int index) const {
  double all = 0, largest = 0;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i].trained || !UsesMuon(units_[i])) continue;
    for (const ir::UnitMatrix& matrix : ir::MatricesOf(program_.units[i], plan_->params)) {
      const double work = ir::NewtonSchulzWork(matrix);
      all += matrix.count * work;
      largest = std::max(largest, work);
    }
  }
  const double shards = ctx_.sharded() ? double(ctx_.strategy.shards()) : 1;
  const double own = ir::NewtonSchulzWork(ir::MatricesOf(program_.units[index], plan_->params));
  return all > 0 ? own * std::max(1 / shards, largest / all) : 0;
}

void StageBuilder::EmitOptimizer(int index) {
  SetPhase(Phase::kOptimizer);
  const UnitState& unit = units_[index];
  const OptimizerSettings& settings = ctx_.options.optimizer;
  // Shards are gathered into W again; of weights held in 8 bits their codes, see EmitCodes().
  const bool rebuilt =
      !unit.coded && !unit.once && (ctx_.strategy.zero == 1 || ctx_.strategy.zero == 2);
  ViewId target = unit.coded ? unit.master : unit.weight;
  if (rebuilt) {
    target = Act("Wo." + program_.units[index].name, unit.shard);
    ir::Buffer& buffer = program_.buffers[program_.views[target].buffer];
    buffer.cls = BufferClass::kParam;
    buffer.unit = index;
    buffer.unit_shard_axis = static_cast<int8_t>(ctx_.ShardAxis());
  }
  const bool master = unit.master >= 0 && !unit.coded;
  const std::string& name = program_.units[index].name;
  const ViewId source = unit.master >= 0 ? unit.master : unit.weight;
  const bool comes_back = unit.on_host && BufferOf(target).space == ir::Space::kDevice;
  const ViewId updated = comes_back ? HostTwin(target, "Wh." + name) : target;
  std::vector<ViewId> out{updated};
  if (master) out.push_back(unit.master);
  const Optimizer kind = ctx_.work.optimizer;
  const bool decays = kind != Optimizer::kSgd && kind != Optimizer::kAdam;
  const bool muon = UsesMuon(unit);
  ir::Attrs attrs{{Attr::kElements, double(unit.shard)},
                  {Attr::kLr, settings.lr},
                  {Attr::kWd, decays ? settings.weight_decay : 0},
                  {Attr::kClip, ctx_.work.clip_norm},
                  {Attr::kMaster, double(master)},
                  {Attr::kZaxis, double(ctx_.sharded() ? ctx_.ShardAxis() : -1)}};
  const auto operand = [&](ViewId view, const std::string& copy) {
    return unit.on_host ? ToHost(view, copy) : view;
  };
  const std::string held = "Gh." + name;
  const ViewId gradient =
      unit.streams ? Make(held, 0, ctx_.gradient) : operand(GradOperand(index), held);
  std::vector<ViewId> in{gradient, source};
  if (kind != Optimizer::kSgd) {
    in.push_back(unit.first_moment);
    if (!muon) in.push_back(unit.second_moment);
    attrs.Set(Attr::kBeta1, settings.beta1);
    attrs.Set(Attr::kBeta2, settings.beta2);
    attrs.Set(Attr::kEps, settings.eps);
  }
  if (norm_ >= 0) in.push_back(operand(norm_, "gnorm.host"));
  if (loss_scale_ >= 0) in.push_back(operand(loss_scale_, "lscale.host"));
  switch (kind) {
    case Optimizer::kSgd:
      Emit(OpKind::kSgd, out, in, attrs);
      break;
    case Optimizer::kMuon:
      if (muon) {
        attrs.Set(Attr::kWork, MuonWork(index));
        out.push_back(unit.first_moment);
        Emit(OpKind::kMuon, out, in, attrs);
        break;
      }
      [[fallthrough]];
    case Optimizer::kAdam8bit:
    case Optimizer::kAdamW:
      attrs.Set(Attr::kDecoupled, 1);
      [[fallthrough]];
    case Optimizer::kAdam:
      out.insert(out.end(), {unit.first_moment, unit.second_moment});
      Emit(OpKind::kAdam, out, in, attrs);
      break;
    case Optimizer::kLamb:
      EmitLamb(index, out, source, attrs);
      break;
  }
  if (unit.on_host) {
    blocks_[block_].ops.back().stream = ctx_.StreamOf(HostStream::kCpu);
    if (comes_back) Copy(target, updated, HostStream::kUp);
  }
  if (!rebuilt) return;
  SetPhase(Phase::kParamGather);
  ir::Op& op = Emit(OpKind::kAllGather, {unit.weight}, {target});
  op.group = kGroupDp;
  op.stream = ctx_.strategy.overlap_param_gather ? kGatherStream : kCompute;
  op.tag = next_tag_++;
}

}  // namespace orrery
