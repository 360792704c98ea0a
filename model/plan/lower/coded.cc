// SPDX-License-Identifier: Apache-2.0
// Units of weights in 8 bits, their scales, and what happens to both behind the update.
#include "model/plan/lower/coded.h"

#include <fmt/format.h>

namespace orrery {

using ir::Attr;
using ir::BufferClass;
using ir::CastFormat;
using ir::Dtype;
using ir::Life;
using ir::OpKind;
using ir::Packed;
using ir::Phase;
using ir::ViewId;

namespace {

CastFormat CodeFormat(const LowerContext& ctx) {
  return ctx.options.exact_casts ? CastFormat::kExact : CastFormat::kE4m3;
}
ProductType Product(const LowerContext& ctx) { return FormOf(ctx.work.fp8).product; }
bool Delayed(const LowerContext& ctx) { return ctx.work.fp8 == Fp8::kDelayed; }

// The same codes in the order that products of gradients on Hopper read.
void EmitTransposed(StageBuilder& stage, ViewId copy, ViewId codes, int64_t out, int64_t in) {
  const LowerContext& ctx = stage.ctx();
  stage.Emit(OpKind::kQuantize, {copy}, {codes},
             {{Attr::kRows, double(out)},
              {Attr::kH, double(in)},
              {Attr::kProduct, double(static_cast<int>(Product(ctx)))},
              {Attr::kFmt, double(static_cast<int>(CodeFormat(ctx)))},
              {Attr::kFrom, double(static_cast<int>(ir::CastFrom::kWeight))},
              {Attr::kAcross, 1}});
}

}  // namespace

Dtype CodeDtype(const LowerContext& ctx) {
  return ctx.options.uniform_dtype.value_or(ctx.options.exact_casts ? ctx.activation
                                                                    : Dtype::kE4m3);
}

int64_t CodedParameters(const ModelSpec& model) {
  const int64_t attention = model.heads * model.head_dim;
  const int64_t each =
      2 * attention + 2 * model.kv_heads * model.head_dim + model.ffn * (model.gated ? 3 : 2);
  // A layer of a decoder behind an encoder meets keys and values of its own once more.
  return model.hidden *
         ((model.layers + model.decoder_layers) * each + model.decoder_layers * 4 * attention);
}

std::vector<ParamRef> AddCodedUnit(StageBuilder& stage, const std::string& layers,
                                   std::vector<ParamDecl> linear) {
  const bool blocks = FormOf(stage.ctx().work.fp8).block > 0;
  for (ParamDecl& decl : linear) decl.packing = blocks ? Packed::kE4m3Blocks : Packed::kE4m3;
  return stage.AddUnit("q" + layers, linear, false, true);
}

std::vector<ParamRef> AddOnceUnit(StageBuilder& stage, const std::string& layers,
                                  std::vector<ParamDecl> linear) {
  for (ParamDecl& decl : linear) decl.once = true;
  return stage.AddUnit("q" + layers, linear, false, true);
}

Factor CodedFactor(StageBuilder& stage, ParamRef ref, int64_t out, int64_t in) {
  const ViewId codes = stage.Weight(ref), scales = stage.CodeScales(ref);
  const std::string name = stage.NameOf(codes) + "@t";
  const bool there = stage.Has(name), backward = stage.phase() == Phase::kBackward;
  Factor factor;
  factor.rows_share = FormOf(stage.ctx().work.fp8).weight_block;
  factor.along = {codes, scales};
  if (!backward && stage.ctx().fetches_weights()) return factor;
  factor.across = {stage.MakeWeightCast(name, out * in, CodeDtype(stage.ctx())), scales};
  if (there) return factor;
  // Once per step, in the first forward pass behind the gather (TransformerEngine drops the copy at each update).
  if (backward) {
    EmitTransposed(stage, factor.across.data, codes, out, in);
  } else {
    stage.OncePerStep([&] { EmitTransposed(stage, factor.across.data, codes, out, in); });
  }
  return factor;
}

void StageBuilder::DeclareCodes(int index) {
  UnitState& unit = units_[static_cast<std::size_t>(index)];
  WeightScales& scales = weight_scales_;
  unit.codes = ir::CodedSegments(program_.units[static_cast<std::size_t>(index)], plan_->params,
                                 FormOf(ctx_.work.fp8).block);
  if (scales.amax < 0) {
    // Scales outlive the step, as the codes do.
    scales.scale = Make("scale.weights", 0, ctx_.full, BufferClass::kOptimizer, Life::kStep);
    if (Delayed(ctx_))
      scales.history = Make("history.weights", 0, ctx_.full, BufferClass::kOptimizer, Life::kStep);
    scales.amax = Make("amax.weights", 0, ctx_.full, BufferClass::kScalar);
  }
  unit.first_scale = scales.count;
  scales.count += ir::ScalesOf(unit.codes);
  Grow(scales.amax, scales.count);
  Grow(scales.scale, scales.count);
  if (scales.history >= 0) Grow(scales.history, scales.count * ctx_.options.amax_history);
}

ViewId StageBuilder::ScalesOfUnit(ViewId whole, int index) {
  const UnitState& unit = units_[static_cast<std::size_t>(index)];
  return Sub(whole, program_.units[static_cast<std::size_t>(index)].name, unit.first_scale,
             ir::ScalesOf(unit.codes));
}

ViewId StageBuilder::CodeScales(ParamRef ref) {
  const UnitState& unit = units_[static_cast<std::size_t>(ref.unit)];
  const ir::CodedSegment& segment = unit.codes[static_cast<std::size_t>(ref.segment)];
  const ir::Unit& flat = program_.units[static_cast<std::size_t>(ref.unit)];
  const int32_t param = flat.segments[static_cast<std::size_t>(ref.segment)].param;
  return Sub(weight_scales_.scale, plan_->params[static_cast<std::size_t>(param)].name,
             unit.first_scale + segment.first, segment.scales);
}

// Largest magnitudes of the master copies, over the ranks that hold a tensor.
void StageBuilder::EmitCodeScales() {
  const int block = FormOf(ctx_.work.fp8).block;
  const auto axes =
      static_cast<uint16_t>((ctx_.sharded() ? (1u << kAxisDp) | ctx_.ContextAxes() : 0u) |
                            (Delayed(ctx_) ? 1u << kAxisTp : 0u));
  for (std::size_t i = 0; i < units_.size(); ++i) {
    if (!units_[i].coded) continue;
    const int index = static_cast<int>(i);
    Emit(OpKind::kUnitAmax, {ScalesOfUnit(weight_scales_.amax, index)}, {units_[i].master},
         {{Attr::kElements, double(units_[i].shard)},
          {Attr::kZaxis, double(ctx_.sharded() ? ctx_.ShardAxis() : -1)},
          {Attr::kBlock, double(block)},
          {Attr::kLength, Delayed(ctx_) ? double(ctx_.options.amax_history) : 0.0}})
        .yields = axes;
  }
  if (Delayed(ctx_)) {
    AllReduce(weight_scales_.amax, static_cast<int>(plan_->groups.size()) - 1, kCompute, 1);
  } else if (ctx_.sharded()) {
    AllReduce(weight_scales_.amax, kGroupDp, kCompute, 1);
  }
  ViewId source = weight_scales_.amax;
  ir::Attrs attrs{{Attr::kElements, double(weight_scales_.count)},
                  {Attr::kProduct, double(static_cast<int>(Product(ctx_)))},
                  {Attr::kFmt, double(static_cast<int>(CodeFormat(ctx_)))}};
  if (Delayed(ctx_)) {
    source = weight_scales_.history;
    attrs.Set(Attr::kLength, double(ctx_.options.amax_history));
    Emit(OpKind::kAmaxRoll, {source}, {source, weight_scales_.amax},
         {{Attr::kElements, double(weight_scales_.count)},
          {Attr::kLength, double(ctx_.options.amax_history)}});
  }
  Emit(OpKind::kScaleUpdate, {weight_scales_.scale}, {source}, attrs);
}

// From what the codes in use were cast from, in front of the update that replaces it: TransformerEngine takes these
// magnitudes when it casts, and they give the next cast its scale.
void StageBuilder::EmitDelayedCodeScales() {
  if (weight_scales_.amax < 0 || !Delayed(ctx_)) return;
  SetPhase(Phase::kOptimizer);
  EmitCodeScales();
}

void StageBuilder::EmitCodes() {
  if (weight_scales_.amax < 0) return;
  SetPhase(Phase::kOptimizer);
  if (!Delayed(ctx_)) EmitCodeScales();
  const bool gathers = ctx_.strategy.zero == 1 || ctx_.strategy.zero == 2;
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const UnitState& unit = units_[i];
    if (!unit.coded) continue;
    const int index = static_cast<int>(i);
    ViewId target = unit.weight;
    if (gathers) {
      target = Make("Wo." + program_.units[i].name, unit.shard, unit.dtype, BufferClass::kParam);
      ir::Buffer& buffer = BufferOf(target);
      buffer.unit = index;
      buffer.unit_shard_axis = static_cast<int8_t>(ctx_.ShardAxis());
    }
    SetPhase(Phase::kOptimizer);
    Emit(OpKind::kUnitCast, {target}, {unit.master, ScalesOfUnit(weight_scales_.scale, index)},
         {{Attr::kElements, double(unit.shard)},
          {Attr::kZaxis, double(ctx_.sharded() ? ctx_.ShardAxis() : -1)},
          {Attr::kProduct, double(static_cast<int>(Product(ctx_)))},
          {Attr::kFmt, double(static_cast<int>(CodeFormat(ctx_)))},
          {Attr::kBlock, double(FormOf(ctx_.work.fp8).block)}});
    if (!gathers) continue;
    SetPhase(Phase::kParamGather);
    ir::Op& op = Emit(OpKind::kAllGather, {unit.weight}, {target});
    op.group = kGroupDp;
    op.stream = ctx_.strategy.overlap_param_gather ? kGatherStream : kCompute;
    op.tag = next_tag_++;
  }
}

std::optional<Refusal> CheckCodedWeights(const Workload& work, const Strategy& s) {
  if (!s.fp8_weights) return std::nullopt;
  const char* const off = "--fp8-weights off";
  if (work.fp8 == Fp8::kOff)
    return Refusal{"weights held in 8 bits, and products in 16 bits",
                   "--fp8 NAME, or --fp8-weights off"};
  if (work.lora.on())
    return Refusal{"weights held in 8 bits that adapters freeze",
                   "--lora-base fp8, or --fp8-weights off"};
  if (work.fp8 == Fp8::kNvfp4)
    return Refusal{
        "weights held in 4 bits (fp8 nvfp4) are not lowered: flat units have whole bytes",
        "--fp8-weights off: held in 16 bits, cast to 4 once a step"};
  if (work.fp8 == Fp8::kMxfp8 && (s.zero < 1 || s.zero > 2 || s.shards() == 1))
    return Refusal{
        fmt::format("weights held in 8 bits with mxfp8 and ZeRO {} on {} shards: both casts come "
                    "from 16 bits, which the rank {}",
                    s.zero, s.shards(), s.zero == 3 ? "gathers for each pass" : "has"),
        "--zero 1 or 2 over several ranks, or --fp8-weights off"};
  if (!work.master_weights)
    return Refusal{"weights held in 8 bits without an fp32 master copy", off};
  if (s.offload.optimizer > 0 || s.offload.weights)
    return Refusal{"weights held in 8 bits with states or weights on the host are not lowered",
                   off};
  return std::nullopt;
}

}  // namespace orrery
