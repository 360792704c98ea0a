// SPDX-License-Identifier: Apache-2.0
// Flat parameter units of one stage: placement by ZeRO stage, gathers before use, gradient reductions.
#include <algorithm>

#include "model/base/check.h"
#include "model/plan/lower/coded.h"
#include "model/plan/lower/packed.h"
#include "model/plan/lower/stage_builder.h"

namespace orrery {

using ir::Attr;
using ir::BufferClass;
using ir::Life;
using ir::OpKind;
using ir::Phase;
using ir::ViewId;

namespace {

int64_t Product(const std::vector<int64_t>& shape) {
  int64_t product = 1;
  for (int64_t extent : shape) product *= extent;
  return product;
}

int64_t RoundUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

std::vector<ParamRef> StageBuilder::AddUnit(const std::string& name,
                                            const std::vector<ParamDecl>& params, bool partial_tail,
                                            bool layer_unit) {
  const int unit_index = static_cast<int>(units_.size());
  ir::Unit unit;
  unit.name = name;
  UnitState state;
  state.layer_unit = layer_unit;
  SetKind(params.front(), &state);
  state.trained = !ctx_.frozen() || state.kind == kAdapterUnit;
  std::vector<ParamRef> refs(params.size());
  const uint16_t data_axes = (1u << kAxisDpOuter) | (1u << kAxisDp) | ctx_.ContextAxes();
  const int tp = ctx_.strategy.tp;
  enum Part { kSharded, kComplete, kPartial };
  const auto part_of = [&](const ParamDecl& decl) {
    return decl.shard_dim >= 0 ? kSharded : decl.partial || partial_tail ? kPartial : kComplete;
  };
  for (const Part part : {kSharded, kComplete, kPartial}) {
    const bool sharded = part == kSharded;
    if (part == kPartial) state.tail_from = unit.elements;
    for (std::size_t i = 0; i < params.size(); ++i) {
      const ParamDecl& decl = params[i];
      if (part_of(decl) != part) continue;
      ir::Param param;
      param.name = decl.name;
      param.shape = decl.shape;
      param.shard_dim = static_cast<int8_t>(decl.shard_dim);
      param.shard_axis = static_cast<int8_t>(sharded ? kAxisTp : -1);
      param.frozen = !state.trained;
      if (state.trained) param.partial_over = data_axes | (part == kPartial ? 1u << kAxisTp : 0u);
      param.tie = static_cast<int16_t>(decl.tie);
      if (decl.tie >= 0 && state.trained) param.partial_over |= 1u << kAxisPp;
      param.real_rows = decl.real_rows;
      param.init = decl.init;
      param.decay = decl.decay;
      param.packing = decl.packing;
      param.of = decl.of;
      const int64_t elements = Product(decl.shape) / (sharded ? tp : 1);
      refs[i] = {unit_index, static_cast<int>(unit.segments.size())};
      unit.segments.push_back(
          {static_cast<int32_t>(plan_->params.size()), unit.elements, elements});
      unit.elements += elements;
      state.tied = state.tied || (decl.tie >= 0 && state.trained);
      plan_->params.push_back(std::move(param));
    }
    if (sharded) unit.replicated_from = unit.elements;
  }
  state.partial_tail = state.trained && tp > 1 && state.tail_from < unit.elements;
  const int64_t shards = ctx_.sharded() && state.kind != kScaleUnit ? ctx_.strategy.shards() : 1;
  unit.elements = RoundUp(unit.elements, shards);
  state.shard = unit.elements / shards;
  program_.units.push_back(std::move(unit));
  units_.push_back(state);
  DeclareUnitBuffers(unit_index);
  return refs;
}

void StageBuilder::SetKind(const ParamDecl& first, UnitState* unit) const {
  unit->dtype = ctx_.activation;
  if (first.adapter) unit->kind = kAdapterUnit;
  if (first.common) unit->kind = kCommonUnit;
  if (first.once && ctx_.sharded()) {
    unit->once = true;
    unit->kind = kCodeUnit;
  }
  if (first.packing == ir::Packed::kNone) return;
  if (first.init == ir::Init::kNormal) {
    unit->coded = true;
    unit->kind = kCodeUnit;
    unit->dtype = CodeDtype(ctx_);
    return;
  }
  unit->kind = first.init == ir::Init::kCodes ? kCodeUnit : kScaleUnit;
  unit->dtype = PackedDtype(ctx_, first);
}

void StageBuilder::DeclareUnitBuffers(int index) {
  ORRERY_CHECK(!placed_, "unit {} comes when states are placed", program_.units[index].name);
  UnitState& state = units_[index];
  const int zero = ctx_.strategy.zero;
  const auto declare = [&](const char* prefix, BufferClass cls, ir::Dtype dtype, bool shard) {
    return DeclareOfUnit(index, prefix, cls, dtype, shard);
  };
  const bool cut = Gathered(state);
  state.weight = declare(cut ? "Ws." : "W.", BufferClass::kParam, state.dtype, cut);
  if (ctx_.strategy.offload.weights && Fetched(state))
    BufferOf(state.weight).space = ir::Space::kHost;
  if (!state.trained) return;
  if (state.coded) DeclareCodes(index);
  if (!ctx_.streams_gradients()) DeclareGradients(index);  // else with the place of its states
  if (ctx_.master || state.coded)
    state.master = declare("M.", BufferClass::kMaster, ctx_.state, zero > 0);
  if (ctx_.work.optimizer != Optimizer::kSgd) {
    const bool bytes =
        ctx_.work.optimizer == Optimizer::kAdam8bit && !ctx_.options.uniform_dtype.has_value();
    const ir::Dtype moment = bytes ? ir::Dtype::kU8 : ctx_.state;
    state.first_moment = declare("m.", BufferClass::kOptimizer, moment, zero > 0);
    if (!UsesMuon(state))
      state.second_moment = declare("v.", BufferClass::kOptimizer, moment, zero > 0);
    if (bytes) DeclareMomentScales(index);
  }
  DeclareTail(index);
}

// One fp32 scale for each block of both one-byte moments (bitsandbytes 0.44.0 and torchao after it: blocks of 256 elements,
// its pull request 1365). No op names them: the update reads and writes them with the moments.
void StageBuilder::DeclareMomentScales(int index) {
  constexpr int64_t kBlock = 256, kMoments = 2;
  UnitState& state = units_[index];
  const ir::Buffer like = BufferOf(state.first_moment);
  state.moment_scales =
      Make("ms." + program_.units[index].name, kMoments * RoundUp(state.shard, kBlock) / kBlock,
           ir::Dtype::kF32, BufferClass::kOptimizer, Life::kStep);
  ir::Buffer& buffer = BufferOf(state.moment_scales);
  buffer.unit = like.unit;
  buffer.unit_shard_axis = like.unit_shard_axis;
}

ViewId StageBuilder::DeclareOfUnit(int index, const char* prefix, BufferClass cls, ir::Dtype dtype,
                                   bool shard) {
  const ir::Unit& unit = program_.units[index];
  const ViewId view = Make(prefix + unit.name, shard ? units_[index].shard : unit.elements, dtype,
                           cls, Life::kStep);
  ir::Buffer& buffer = program_.buffers[program_.views[view].buffer];
  buffer.unit = index;
  buffer.unit_shard_axis = static_cast<int8_t>(shard ? ctx_.ShardAxis() : -1);
  return view;
}

// Those that live through the step.
void StageBuilder::DeclareGradients(int index) {
  UnitState& state = units_[index];
  if (state.streams) return;
  if (!ctx_.scatters())
    state.grad = DeclareOfUnit(index, "G.", BufferClass::kGrad, ctx_.gradient, false);
  if (ctx_.scatters() || (ctx_.sharded() && ctx_.strategy.reduce_in_backward))
    state.grad_shard = DeclareOfUnit(index, "Gs.", BufferClass::kGrad, ctx_.gradient, true);
}

void StageBuilder::DeclareTail(int index) {
  UnitState& state = units_[index];
  if (state.grad < 0 || !state.partial_tail) return;
  state.tail =
      Sub(state.grad, "rep", state.tail_from, program_.units[index].elements - state.tail_from);
}

ViewId StageBuilder::ParamView(ViewId whole, ParamRef ref) {
  const ir::UnitSegment& segment = program_.units[ref.unit].segments[ref.segment];
  return Sub(whole, plan_->params[segment.param].name, segment.offset, segment.elements);
}

std::string StageBuilder::ParamName(ParamRef ref) const {
  const ir::UnitSegment& segment = program_.units[ref.unit].segments[ref.segment];
  return plan_->params[segment.param].name;
}

int StageBuilder::RingIndex(const std::string& name, int slots) {
  for (std::size_t i = 0; i < program_.rings.size(); ++i) {
    if (program_.rings[i].name == name) return static_cast<int>(i);
  }
  program_.rings.push_back({name, slots});
  return static_cast<int>(program_.rings.size() - 1);
}

ViewId StageBuilder::Weight(ParamRef ref) {
  UnitState& unit = units_[ref.unit];
  if (!Fetched(unit)) return ParamView(unit.weight, ref);
  BlockState& state = blocks_[block_];
  std::vector<Use>& uses = state.uses[unit.kind];
  const bool again = !uses.empty() && uses.back().freed;
  if (uses.empty() || uses.back().unit != ref.unit || again) {
    const std::string name = "Wg." + program_.units[ref.unit].name + "@" +
                             program_.blocks[block_].name + "." + std::to_string(uses.size());
    const ViewId gathered =
        Make(name, program_.units[ref.unit].elements, unit.dtype, BufferClass::kGathered);
    ir::Buffer& buffer = program_.buffers[program_.views[gathered].buffer];
    buffer.unit = ref.unit;
    if (unit.layer_unit && ctx_.strategy.rings && ctx_.strategy.overlap_param_gather) {
      static constexpr const char* kRings[] = {"gather", "gather.adapters", "gather.codes", ""};
      const char* ring = kRings[unit.kind];
      buffer.ring = static_cast<int16_t>(RingIndex(ring, ctx_.strategy.prefetch + 1));
      buffer.ring_index = static_cast<int16_t>(next_gather_[unit.kind]++);
    }
    uses.push_back({ref.unit, state.ops.size(), gathered, again && uses.back().unit == ref.unit});
  }
  return ParamView(uses.back().gathered, ref);
}

void StageBuilder::FreeWeight(ParamRef ref) {
  std::vector<Use>& uses = blocks_[block_].uses[units_[ref.unit].kind];
  if (!uses.empty() && uses.back().unit == ref.unit) uses.back().freed = true;
}

ir::Op StageBuilder::FetchOp(OpKind kind, ViewId to, ViewId from, const ir::Op& reader) {
  ir::Op op;
  op.kind = kind;
  op.out = {to};
  op.in = {from};
  op.stream = ctx_.strategy.overlap_param_gather ? kGatherStream : kCompute;
  op.phase = Phase::kParamGather;
  op.segment = reader.segment;
  op.layer = reader.layer;
  return op;
}

// Copies from the host stand in the queue of the gathers, as in DeepSpeed (partition_parameters.py).
void StageBuilder::EmitFetch(const Use& use, const ir::Op& reader, std::vector<ir::Op>* ops) {
  const UnitState& unit = units_[use.unit];
  ViewId shard = unit.weight;
  if (ctx_.strategy.offload.weights) {
    if (!Gathered(unit)) {
      ops->push_back(FetchOp(OpKind::kCopy, use.gathered, unit.weight, reader));
      return;
    }
    const ir::Buffer gathered = BufferOf(use.gathered);
    shard = Make("Wf." + gathered.name.substr(3), unit.shard, unit.dtype, BufferClass::kGathered);
    ir::Buffer& buffer = BufferOf(shard);
    buffer.unit = use.unit;
    buffer.unit_shard_axis = static_cast<int8_t>(ctx_.ShardAxis());
    if (gathered.ring >= 0) {
      const std::string ring = "shard." + program_.rings[gathered.ring].name;
      buffer.ring = static_cast<int16_t>(RingIndex(ring, 1));
    }
    ops->push_back(FetchOp(OpKind::kCopy, shard, unit.weight, reader));
  }
  ir::Op gather = FetchOp(OpKind::kAllGather, use.gathered, shard, reader);
  gather.group = kGroupDp;
  gather.tag = next_tag_++;
  if (unit.once) gather.when = ir::kWhenFirst;
  ops->push_back(std::move(gather));
}

// What fetches use k goes in front of use k - prefetch; what was freed before comes when it is used, and nothing
// behind it comes earlier.
void StageBuilder::InsertGathers(BlockState& state) {
  std::size_t gathers = 0;
  for (const std::vector<Use>& uses : state.uses) gathers += uses.size();
  if (gathers == 0) return;
  std::vector<ir::Op> ops;
  ops.reserve(state.ops.size() + gathers);
  std::array<std::size_t, kUnitKinds> next{};
  const auto prefetch = static_cast<std::size_t>(ctx_.strategy.prefetch);
  const auto position = [&](const std::vector<Use>& uses, std::size_t use) {
    const std::size_t ahead = use < prefetch ? 0 : use - prefetch;
    for (std::size_t k = use; k > ahead; --k) {
      if (uses[k].again) return uses[k].at;
    }
    return uses[ahead].at;
  };
  for (std::size_t i = 0; i < state.ops.size(); ++i) {
    for (std::size_t kind = 0; kind < next.size(); ++kind) {
      const std::vector<Use>& uses = state.uses[kind];
      for (; next[kind] < uses.size() && position(uses, next[kind]) == i; ++next[kind]) {
        const Use& use = uses[next[kind]];
        EmitFetch(use, state.ops[use.at], &ops);
      }
    }
    ops.push_back(std::move(state.ops[i]));
  }
  state.ops = std::move(ops);
}

void StageBuilder::BeginGrad(int unit) {
  PlaceStates();
  if (!units_[unit].trained || !Transient(units_[unit])) return;
  BlockState& state = blocks_[block_];
  const std::string name = "Gt." + program_.units[unit].name + "@" + program_.blocks[block_].name +
                           "." + std::to_string(next_use_++);
  const ViewId transient =
      Make(name, program_.units[unit].elements, ctx_.gradient, BufferClass::kGradTransient);
  ir::Buffer& buffer = program_.buffers[program_.views[transient].buffer];
  buffer.unit = unit;
  if (units_[unit].layer_unit && ctx_.strategy.rings && ctx_.strategy.overlap_grad_reduce) {
    const UnitKind kind = units_[unit].kind;
    // Without a reduction into another buffer: one that goes to the host, one that is added to, one that is written.
    const int slots = ctx_.sharded() ? 2 : 3;
    buffer.ring = static_cast<int16_t>(RingIndex(kind == kCodeUnit ? "grad.codes" : "grad", slots));
    buffer.ring_index = static_cast<int16_t>(next_grad_[kind]++);
  }
  state.open_grads[unit] = transient;
  Emit(OpKind::kZero, {transient}, {});
}

ViewId StageBuilder::Grad(ParamRef ref) {
  if (!Transient(units_[ref.unit])) return ParamView(units_[ref.unit].grad, ref);
  return ParamView(blocks_[block_].open_grads.at(ref.unit), ref);
}

void StageBuilder::ReduceTail(ViewId tail, uint8_t stream) { AllReduce(tail, kGroupTp, stream); }

void StageBuilder::EndGrad(int index, bool final_touch) {
  UnitState& unit = units_[index];
  if (!unit.trained) return;
  const Phase before = phase_;
  phase_ = Phase::kGradReduce;
  if (!Transient(unit)) {
    if (ctx_.strategy.reduce_in_backward && final_touch) ReduceUnit(index, ir::kWhenLast);
  } else {
    BlockState& state = blocks_[block_];
    const ViewId transient = state.open_grads.at(index);
    if (unit.partial_tail) {
      ReduceTail(
          Sub(transient, "rep", unit.tail_from, program_.units[index].elements - unit.tail_from),
          ctx_.strategy.overlap_grad_reduce ? kDpStream : kCompute);
    }
    const ViewId reduced = ctx_.scatters() ? Scatter(index, transient) : transient;
    if (unit.streams) {
      StreamGradient(index, reduced, final_touch);
    } else {
      AddReduced(&unit, reduced, final_touch);
    }
    state.open_grads.erase(index);
  }
  phase_ = before;
}

// The whole gradient of a unit into the rank's shard of it.
ViewId StageBuilder::Scatter(int index, ViewId transient) {
  const UnitState& unit = units_[index];
  const std::string suffix = program_.views[transient].name.substr(3);
  const ViewId reduced =
      Make("Gr." + suffix, unit.shard, ctx_.gradient, BufferClass::kGradTransient);
  ir::Buffer& buffer = program_.buffers[program_.views[reduced].buffer];
  buffer.unit = index;
  buffer.unit_shard_axis = static_cast<int8_t>(ctx_.ShardAxis());
  const ir::Buffer& source = program_.buffers[program_.views[transient].buffer];
  if (source.ring >= 0) {
    const int16_t slot = source.ring_index;
    buffer.ring = static_cast<int16_t>(
        RingIndex(unit.kind == kCodeUnit ? "gradshard.codes" : "gradshard", 2));
    buffer.ring_index = slot;
  }
  ir::Op& op = Emit(OpKind::kReduceScatter, {reduced}, {transient});
  op.group = kGroupDp;
  op.stream = ctx_.strategy.overlap_grad_reduce ? kDpStream : kCompute;
  op.tag = next_tag_++;
  return reduced;
}

// Behind the next reduction (or at the end of the block): put right behind its own, the sum would make compute
// wait for what runs beside it. In the last micro-batch the sum is complete, and sharding groups reduce it between them
// while earlier layers are still at work, on a stream of their own (PyTorch FSDP: _runtime_utils.py _reduce_grad, torch.distributed.fsdp fully_shard:
// foreach_reduce; DeepSpeed: zero/mics.py allreduce_mics_shard_grads). PyTorch does so in every micro-batch unless its
// user accumulates under no_sync.
void StageBuilder::AddReduced(UnitState* unit, ViewId reduced, bool final_touch) {
  BlockState& state = blocks_[block_];
  const std::size_t first = state.ops.size();
  Emit(OpKind::kAdd, {unit->grad_shard}, {unit->grad_shard, reduced},
       {{Attr::kElements, double(unit->shard)}});
  if (!ctx_.strategy.overlap_grad_reduce) return;
  if (final_touch && ctx_.reduces_between_groups()) {
    AllReduce(unit->grad_shard, kGroupDpOuter, ctx_.StreamBetweenGroups());
    state.ops.back().when = ir::kWhenLast;
    unit->reduced_in_backward = true;
  }
  PutOff(first, &state.pending_adds[unit->coded ? 1 : 0]);
}

// The ops of a block from `first` on: those that were put off before them come first.
void StageBuilder::PutOff(std::size_t first, std::vector<ir::Op>* pending) {
  std::vector<ir::Op>& ops = blocks_[block_].ops;
  const auto from = ops.begin() + static_cast<std::ptrdiff_t>(first);
  std::vector<ir::Op> added(std::make_move_iterator(from), std::make_move_iterator(ops.end()));
  ops.erase(from, ops.end());
  std::ranges::move(*pending, std::back_inserter(ops));
  *pending = std::move(added);
}

// Behind the passes shards take memory that those have freed: without a reducer nothing is reduced into them earlier.
void StageBuilder::ReduceUnit(int index, uint8_t when) {
  UnitState& unit = units_[index];
  const std::size_t first = blocks_[block_].ops.size();
  const bool beside = ctx_.strategy.overlap_grad_reduce && (when != 0 || ctx_.strategy.zero == 0);
  const uint8_t stream = beside ? kDpStream : kCompute;
  if (unit.tail >= 0) ReduceTail(unit.tail, stream);
  if (ctx_.strategy.zero == 0) {
    AllReduce(unit.grad, ctx_.ReplicaGroup(), stream);
  } else {
    if (unit.grad_shard < 0) {
      unit.grad_shard =
          Make("Gs." + program_.units[index].name, unit.shard, ctx_.gradient, BufferClass::kGrad);
      ir::Buffer& buffer = program_.buffers[program_.views[unit.grad_shard].buffer];
      buffer.unit = index;
      buffer.unit_shard_axis = static_cast<int8_t>(ctx_.ShardAxis());
    }
    ir::Op& op = Emit(OpKind::kReduceScatter, {unit.grad_shard}, {unit.grad});
    op.group = kGroupDp;
    op.stream = stream;
    op.tag = next_tag_++;
    AllReduce(unit.grad_shard, kGroupDpOuter, stream);
  }
  for (std::size_t i = first; i < blocks_[block_].ops.size(); ++i)
    blocks_[block_].ops[i].when = when;
  unit.reduced_in_backward = when != 0;
}

}  // namespace orrery
