// SPDX-License-Identifier: Apache-2.0
// Casts, their scales and the products that read them.
#include "model/plan/lower/low_precision.h"

#include "model/plan/lower/coded.h"
#include "model/plan/lower/context.h"
#include "model/plan/lower/packed.h"

namespace orrery {

using ir::Attr;
using ir::CastFormat;
using ir::CastFrom;
using ir::Dtype;
using ir::OpKind;
using ir::Phase;
using ir::ViewId;

namespace {

RecipeForm FormIn(const StageBuilder& stage) { return FormOf(stage.recipe()); }
bool Casts(const StageBuilder& stage) { return stage.recipe() != Fp8::kOff; }

// Gradients have the wider range where one scale holds for a whole tensor (TransformerEngine's Format.HYBRID).
CastFormat FormatOf(const StageBuilder& stage, bool gradient) {
  if (stage.ctx().options.exact_casts) return CastFormat::kExact;
  switch (FormIn(stage).product) {
    case ProductType::kNvfp4:
      return CastFormat::kE2m1;
    case ProductType::kFp8:
      return gradient ? CastFormat::kE5m2 : CastFormat::kE4m3;
    case ProductType::kPlain:
    case ProductType::kFp8Block:
    case ProductType::kMxfp8:
      break;
  }
  return CastFormat::kE4m3;
}

// A norm can write casts itself where it need not know the whole tensor first.
CastFrom Fusible(const StageBuilder& stage, CastFrom from) {
  const Fp8 recipe = stage.recipe();
  const bool late = recipe == Fp8::kCurrent || recipe == Fp8::kNvfp4;
  return late && from == CastFrom::kNorm ? CastFrom::kElsewhere : from;
}

// Activations and gradients of nvfp4 (TransformerEngine common/recipe/__init__.py, NVFP4BlockScaling: transforms for the
// weight gradient alone, none of weights). Frozen weights have no such product.
bool Transforms(const StageBuilder& stage, bool weight) {
  return FormIn(stage).product == ProductType::kNvfp4 && !weight && !stage.ctx().frozen();
}

ViewId MakeData(StageBuilder& stage, const std::string& name, int64_t elements, bool gradient,
                bool weight) {
  const bool exact = stage.ctx().options.exact_casts;
  const bool pairs = FormIn(stage).product == ProductType::kNvfp4 && !exact;
  const Dtype stored = exact                                            ? stage.ctx().activation
                       : pairs                                          ? Dtype::kE2m1x2
                       : FormatOf(stage, gradient) == CastFormat::kE5m2 ? Dtype::kE5m2
                                                                        : Dtype::kE4m3;
  const Dtype dtype = stage.ctx().options.uniform_dtype.value_or(stored);
  const int64_t n = pairs && dtype == stored ? elements / 2 : elements;
  return weight ? stage.MakeWeightCast(name, n, dtype) : stage.Make(name, n, dtype);
}

ViewId MakeScales(StageBuilder& stage, const std::string& name, int64_t n, bool weight) {
  Dtype stored = stage.ctx().full;
  if (FormIn(stage).product == ProductType::kMxfp8) stored = Dtype::kE8m0;
  if (FormIn(stage).product == ProductType::kNvfp4) stored = Dtype::kE4m3;
  const Dtype dtype = stage.ctx().options.uniform_dtype.value_or(stored);
  return weight ? stage.MakeWeightCast(name, n, dtype) : stage.Make(name, n, dtype);
}

struct Shape {
  int64_t rows, width;
  int share;  // rows of a block
};
int64_t ScalesAlong(const RecipeForm& form, const Shape& s) {
  return s.rows / s.share * (s.width / form.block);
}
int64_t ScalesAcross(const RecipeForm& form, const Shape& s) {
  return s.rows / form.block * (s.width / s.share);
}

// One scale of the whole tensor: from its own largest magnitude, or from those of earlier steps.
ViewId TensorScaleOf(StageBuilder& stage, const CastSource& source, bool weight) {
  const LowerContext& ctx = stage.ctx();
  const double elements = static_cast<double>(source.rows * source.width);
  if (stage.recipe() == Fp8::kDelayed) {
    const ScaleSlot slot = stage.SlotOf(source.name, source.gradient);
    if (slot.recorded || stage.phase() == Phase::kRecompute) return slot.scale;
    ir::Op& op = stage.Emit(OpKind::kAmax, {slot.amax}, {source.x, slot.amax},
                            {{Attr::kElements, elements},
                             {Attr::kAcc, 1},
                             {Attr::kFrom, double(static_cast<int>(source.from))}});
    op.yields = static_cast<uint16_t>((weight ? 0u : (1u << kAxisDpOuter) | (1u << kAxisDp)) |
                                      1u << kAxisTp);
    return slot.scale;
  }
  const bool transforms = Transforms(stage, weight);
  const int64_t scales = transforms ? 2 : 1;
  const auto scalar = [&](const char* suffix) {
    return weight ? stage.MakeWeightCast(source.name + suffix, 1, ctx.full)
                  : stage.Make(source.name + suffix, scales, ctx.full, ir::BufferClass::kScalar);
  };
  const bool known = weight && stage.Has(source.name + ".ts");  // of this use's other cast
  const ViewId amax = scalar(".am"), scale = scalar(".ts");
  if (known) return scale;
  ir::Op& scan = stage.Emit(
      OpKind::kAmax, {amax}, {source.x},
      {{Attr::kElements, elements}, {Attr::kFrom, double(static_cast<int>(source.from))}});
  if (transforms) {
    scan.attrs.Set(Attr::kH, double(source.width));
    scan.attrs.Set(Attr::kHadamard, 1);
  }
  if (source.part) {
    stage.MarkPartial();
    stage.AllReduce(amax, kGroupTp, ctx.strategy.tp_async ? kTpStream : kCompute, 1);
  }
  stage.Emit(OpKind::kScaleUpdate, {scale}, {amax},
             {{Attr::kElements, double(scales)},
              {Attr::kProduct, double(static_cast<int>(FormIn(stage).product))},
              {Attr::kFmt, double(static_cast<int>(FormatOf(stage, source.gradient)))}});
  return scale;
}

bool ScalesTensors(const StageBuilder& stage) {
  const ProductType product = FormIn(stage).product;
  return product == ProductType::kFp8 || product == ProductType::kNvfp4;
}

Factor FactorOf(StageBuilder& stage, const CastSource& source, CastNeed need, bool weight) {
  const RecipeForm form = FormIn(stage);
  const Shape shape{source.rows, source.width, weight ? form.weight_block : 1};
  Factor factor{.plain = source.x, .rows_share = shape.share};
  factor.transformed = Transforms(stage, weight);
  const auto view = [&](const char* data, const char* scale, int64_t scales) {
    CastView cast;
    cast.data =
        MakeData(stage, source.name + data, source.rows * source.width, source.gradient, weight);
    if (form.block > 0) cast.scale = MakeScales(stage, source.name + scale, scales, weight);
    return cast;
  };
  if (need.along) factor.along = view(".q", ".qs", form.block > 0 ? ScalesAlong(form, shape) : 0);
  if (need.across)
    factor.across = view(".qa", ".qas", form.block > 0 ? ScalesAcross(form, shape) : 0);
  return factor;
}

void TakeTensorScale(const RecipeForm& form, ViewId scale, Factor* factor) {
  if (form.product == ProductType::kNvfp4) {
    factor->tensor_scale = scale;
  } else if (form.product == ProductType::kFp8) {
    factor->along.scale = factor->across.scale = scale;
  }
}

// Gradients are rounded up or down at random: rounding to nearest would bias their sums (NVIDIA 2025, arXiv:2509.25149).
void SetDraws(const StageBuilder& stage, const CastSource& source, ir::Op* op) {
  op->attrs.Set(Attr::kStochastic, 1);
  op->attrs.Set(Attr::kSite, source.site);
  op->attrs.Set(Attr::kBatch, double(stage.ctx().batch()));
  if (source.part) op->attrs.Set(Attr::kAxis, kAxisTp);
  if (source.columns && stage.ctx().strategy.tp > 1) op->attrs.Set(Attr::kColumns, kAxisTp);
  SetPositions(stage, op->attrs);
  op->group = kGroupData;
}

Factor Quantize(StageBuilder& stage, const CastSource& source, CastNeed need, bool weight) {
  const RecipeForm form = FormIn(stage);
  Factor factor = FactorOf(stage, source, need, weight);
  std::vector<ViewId> out, in{source.x};
  if (ScalesTensors(stage)) in.push_back(TensorScaleOf(stage, source, weight));
  for (const auto& [needed, cast] :
       {std::pair{need.along, factor.along}, {need.across, factor.across}}) {
    if (!needed) continue;
    out.push_back(cast.data);
    if (cast.scale >= 0) out.push_back(cast.scale);
  }
  ir::Op& op = stage.Emit(OpKind::kQuantize, out, in,
                          {{Attr::kRows, double(source.rows)},
                           {Attr::kH, double(source.width)},
                           {Attr::kProduct, double(static_cast<int>(form.product))},
                           {Attr::kFmt, double(static_cast<int>(FormatOf(stage, source.gradient)))},
                           {Attr::kBlock, double(form.block)},
                           {Attr::kBlock2, double(factor.rows_share)},
                           {Attr::kAlong, double(need.along)},
                           {Attr::kAcross, double(need.across)},
                           {Attr::kFrom, double(static_cast<int>(Fusible(stage, source.from)))}});
  if (factor.transformed) op.attrs.Set(Attr::kHadamard, 1);
  if (source.gradient && form.product == ProductType::kNvfp4) SetDraws(stage, source, &op);
  if (in.size() > 1) TakeTensorScale(form, in[1], &factor);
  return factor;
}

// What an earlier Quantize() of this name left.
Factor Existing(StageBuilder& stage, const CastSource& source, CastNeed need, bool weight) {
  Factor factor = FactorOf(stage, source, need, weight);
  if (!ScalesTensors(stage)) return factor;
  const ViewId scale = stage.recipe() == Fp8::kDelayed
                           ? stage.SlotOf(source.name, source.gradient).scale
                           : stage.Make(source.name + ".ts", factor.transformed ? 2 : 1,
                                        stage.ctx().full, ir::BufferClass::kScalar);
  TakeTensorScale(FormIn(stage), scale, &factor);
  return factor;
}

void GatherCast(StageBuilder& stage, const CastView& part, const CastView& full) {
  stage.GatherTensor(full.data, part.data);
  if (full.scale >= 0 && full.scale != part.scale) stage.GatherTensor(full.scale, part.scale);
}

}  // namespace

Factor CastTensor(StageBuilder& stage, const CastSource& source, CastNeed need) {
  if (!Casts(stage)) return {.plain = source.x};
  return Quantize(stage, source, need, false);
}

Factor CastOf(StageBuilder& stage, const CastSource& source) {
  if (!Casts(stage)) return {.plain = source.x};
  return Existing(stage, source, {false, true}, false);
}

Factor GatheredBefore(StageBuilder& stage, const Factor& part, const CastSource& source,
                      const std::string& full, CastNeed need) {
  if (!source.part) return part;
  CastSource whole = source;
  whole.name = full;
  whole.rows = stage.ctx().Rows();
  if (!Casts(stage)) return {.plain = stage.Act(full, whole.rows * whole.width)};
  const RecipeForm form = FormIn(stage);
  Factor factor = FactorOf(stage, whole, need, false);
  factor.plain = -1;
  const ViewId tensor_scale = form.block == 0 ? part.along.scale : part.tensor_scale;
  if (tensor_scale >= 0) TakeTensorScale(form, tensor_scale, &factor);
  return factor;
}

Factor GatherFactor(StageBuilder& stage, const Factor& part, const CastSource& source,
                    const std::string& full, CastNeed need) {
  if (!source.part) return part;
  const Factor factor = GatheredBefore(stage, part, source, full, need);
  if (!Casts(stage)) {
    stage.GatherTensor(factor.plain, part.plain);
    return factor;
  }
  const RecipeForm form = FormIn(stage);
  if (need.along) GatherCast(stage, part.along, factor.along);
  if (need.across && form.block == 0 && need.along) {
    // The same numbers: a transposed copy, as products on Hopper want it, instead of a second message.
    stage.Emit(OpKind::kQuantize, {factor.across.data}, {factor.along.data},
               {{Attr::kRows, double(stage.ctx().Rows())},
                {Attr::kH, double(source.width)},
                {Attr::kProduct, double(static_cast<int>(form.product))},
                {Attr::kFmt, double(static_cast<int>(FormatOf(stage, source.gradient)))},
                {Attr::kAcross, 1}});
  } else if (need.across) {
    GatherCast(stage, part.across, factor.across);
  }
  return factor;
}

namespace {

// Both casts outlive the numbers they come from.
Factor OnceFactor(StageBuilder& stage, ParamRef ref, int64_t out, int64_t in) {
  CastSource source{"W." + stage.ParamName(ref) + "@cast", -1, out, in, CastFrom::kWeight};
  if (stage.Has(source.name + ".q")) return Existing(stage, source, {}, true);
  Factor factor;
  stage.OncePerStep([&] {
    source.x = stage.Weight(ref);
    factor = Quantize(stage, source, {}, true);
  });
  return factor;
}

}  // namespace

Factor WeightFactor(StageBuilder& stage, ParamRef ref, int64_t out, int64_t in) {
  if (const PackedWeight* packed = stage.PackedAt(ref))
    return PackedFactor(stage, ref, *packed, out, in);
  if (stage.Coded(ref)) return CodedFactor(stage, ref, out, in);
  if (stage.GatheredOnce(ref)) return OnceFactor(stage, ref, out, in);
  const ViewId weight = stage.Weight(ref);
  if (!Casts(stage)) return {.plain = weight};
  CastSource source{stage.NameOf(weight) + "@cast", weight, out, in, CastFrom::kWeight};
  // Of a gathered weight a pass reads one of the two: forward and recomputed ones along, backward ones across.
  const bool gathered = stage.ctx().fetches_weights();
  const bool backward = stage.phase() == Phase::kBackward;
  const CastNeed need = gathered ? CastNeed{!backward, backward} : CastNeed{};
  if (stage.Has(source.name + (need.along ? ".q" : ".qa")))
    return Existing(stage, source, need, true);
  if (gathered) return Quantize(stage, source, need, true);
  // In its first micro-batch (TransformerEngine's is_first_microbatch), so that the gather of an updated weight can hide
  // behind the layers in front of it.
  Factor factor;
  stage.OncePerStep([&] { factor = Quantize(stage, source, need, true); });
  return factor;
}

void Multiply(StageBuilder& stage, ViewId c, const Factor& a, const Factor& b,
              const ProductShape& s, ViewId bias) {
  if (!Casts(stage))
    return stage.Matmul(c, a.plain, b.plain, s.m, s.n, s.k, s.ta, s.tb, s.acc, bias);
  const RecipeForm form = FormIn(stage);
  const CastView& left = s.ta ? a.across : a.along;
  const CastView& right = s.tb ? b.along : b.across;
  stage.Matmul(c, left.data, right.data, s.m, s.n, s.k, s.ta, s.tb, s.acc, bias);
  ir::Op& op = stage.LastOp();
  op.in.insert(op.in.end(), {left.scale, right.scale});
  if (form.product == ProductType::kNvfp4) {
    const auto scale = [&](const Factor& factor, bool across) {
      if (!factor.transformed) return factor.tensor_scale;
      return stage.Sub(factor.tensor_scale, across ? "across" : "along", across ? 1 : 0, 1);
    };
    op.in.insert(op.in.end(), {scale(a, s.ta), scale(b, !s.tb)});
  }
  op.attrs.Set(Attr::kProduct, double(static_cast<int>(form.product)));
  op.attrs.Set(Attr::kBlock, double(form.block));
  op.attrs.Set(Attr::kBlock2, double(b.rows_share));
}

}  // namespace orrery
