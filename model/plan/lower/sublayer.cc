// SPDX-License-Identifier: Apache-2.0
// Attention, cross-attention and MLP on this rank: projections, norms of queries and keys, positions, activations.
#include "model/plan/lower/sublayer.h"

#include <string_view>
#include <utility>

#include "model/plan/lower/adapters.h"
#include "model/plan/lower/context.h"
#include "model/plan/lower/inner_products.h"

namespace orrery {

using ir::Attr;
using ir::OpKind;
using ir::Phase;
using ir::ViewId;

SublayerShape ShapeOf(const StageBuilder& stage, const Sublayer& sub) {
  const LowerContext& ctx = stage.ctx();
  const ModelSpec& model = ctx.model;
  const int64_t tp = ctx.strategy.tp;
  SublayerShape shape{ctx.Rows(), ctx.ShardRows(),  model.hidden,        0,
                      0,          model.heads / tp, model.kv_heads / tp, model.head_dim};
  switch (sub.kind) {
    case SubKind::kAttention:
      shape.in_width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
      shape.inner_width = shape.heads * shape.head_dim;
      break;
    case SubKind::kCrossAttention:
      shape.in_width = shape.inner_width = shape.heads * shape.head_dim;
      break;
    case SubKind::kMlp:
      shape.inner_width = model.ffn / tp;
      shape.in_width = shape.inner_width * (model.gated ? 2 : 1);
      break;
  }
  return shape;
}

std::string Name(const std::string& prefix, const Layer& layer, const Sublayer& sub,
                 const char* what, const char* of_what) {
  const std::string index = std::to_string(layer.index);
  const std::string_view of = what, part = of_what;
  std::string name;  // made for each view: in one piece
  name.reserve(prefix.size() + index.size() + sub.tag.size() + of.size() + part.size() + 3);
  name.append(prefix).append("l").append(index).append(".");
  return std::move(name.append(sub.tag).append(".").append(of).append(part));
}

double DropoutRate(const StageBuilder& stage, bool attention) {
  const Workload& work = stage.ctx().work;
  return attention ? work.AttentionDropout() : work.dropout;
}

int16_t DropoutGroup(const StageBuilder& stage, bool attention) {
  return DropoutRate(stage, attention) > 0 ? kGroupData : -1;
}

void SetDropout(const StageBuilder& stage, const Layer& layer, const Sublayer& sub, bool attention,
                ir::Attrs& attrs) {
  const double rate = DropoutRate(stage, attention);
  if (rate <= 0) return;
  const auto which = static_cast<int>(sub.kind) * 2 + (attention ? 1 : 0);
  attrs.Set(Attr::kRate, rate);
  attrs.Set(Attr::kSite, 8.0 * (layer.index + 1) + which);
  attrs.Set(Attr::kBatch, double(stage.ctx().batch()));
  const bool sharded = attention ? stage.ctx().strategy.tp > 1 : stage.ctx().sp();
  attrs.Set(Attr::kAxis, sharded ? kAxisTp : -1);
  if (!attention) SetPositions(stage, attrs);
}

double GradientSite(const Layer& layer, int which) { return -(8.0 * (layer.index + 1) + which); }

namespace {

struct AttentionOutput {
  ViewId context, stats;
  ViewId mask = -1, dropped = -1;  // materialised attention with dropout

  std::vector<ViewId> Saved() const {
    return mask < 0 ? std::vector<ViewId>{context, stats}
                    : std::vector<ViewId>{context, stats, mask, dropped};
  }
};

// Of context and statistics.
std::string AttentionPrefix(const StageBuilder& stage, const Layer& layer,
                            const std::string& prefix) {
  return PrefixOf(stage, layer.Recomputes(kRecomputeCoreAttention), prefix);
}

// The cast of attention's context is kept beside it, as the output projection does in TransformerEngine.
bool InnerAgain(const Layer& layer, const Sublayer& sub) {
  return sub.kind == SubKind::kMlp &&
         (layer.Recomputes(kRecomputeMlp) || layer.Recomputes(kRecomputeActivation));
}

ViewId ActivationOf(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                    const std::string& prefix) {
  const SublayerShape shape = ShapeOf(stage, sub);
  return stage.Act(Name(PrefixOf(stage, InnerAgain(layer, sub), prefix), layer, sub, "act"),
                   shape.rows * shape.inner_width);
}

AttentionOutput AttentionBuffers(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                                 const std::string& prefix) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const std::string own = AttentionPrefix(stage, layer, prefix);
  const ViewId context = stage.Act(Name(own, layer, sub, "ctx"), shape.rows * shape.inner_width);
  if (stage.ctx().strategy.flash_attention) {
    return {context,
            stage.Make(Name(own, layer, sub, "lse"), shape.rows * shape.heads, stage.ctx().full)};
  }
  const int64_t seq = stage.ctx().work.seq_len,
                scores = stage.ctx().batch() * shape.heads * seq * seq;
  AttentionOutput out{context, stage.Act(Name(own, layer, sub, "probs"), scores)};
  if (DropoutRate(stage, true) > 0) {
    out.mask = stage.Make(Name(own, layer, sub, "pmask"), scores, stage.ctx().mask);
    out.dropped = stage.Act(Name(own, layer, sub, "pdrop"), scores);
  }
  return out;
}

ir::Attrs AttentionAttrs(const StageBuilder& stage, const Layer& layer, const Sublayer& sub) {
  const SublayerShape shape = ShapeOf(stage, sub);
  ir::Attrs attrs{{Attr::kBatch, double(stage.ctx().batch())},
                  {Attr::kSeq, double(stage.ctx().work.seq_len)},
                  {Attr::kNh, double(shape.heads)},
                  {Attr::kHd, double(shape.head_dim)},
                  {Attr::kFlash, double(stage.ctx().strategy.flash_attention)}};
  SetDropout(stage, layer, sub, true, attrs);
  if (stage.ctx().model.positions == Positions::kRelativeBias) attrs.Set(Attr::kScale, 1.0);
  if (sub.kind == SubKind::kCrossAttention) {
    attrs.Set(Attr::kSeqKv, double(stage.ctx().work.seq_len));
    return attrs;
  }
  attrs.Set(Attr::kKv, double(shape.kv_heads));
  attrs.Set(Attr::kCausal, sub.causal);
  const int64_t window = sub.causal ? stage.ctx().model.Window(layer.index) : 0;
  if (window < stage.ctx().work.seq_len) attrs.Set(Attr::kWindow, double(window));
  attrs.Set(Attr::kCap, stage.ctx().model.attention_cap);
  if (stage.ctx().model.attention_scale > 0)
    attrs.Set(Attr::kScale, stage.ctx().model.attention_scale);
  if (stage.ctx().model.positions == Positions::kAlibi) {
    attrs.Set(Attr::kAlibi, double(stage.ctx().model.heads));
    if (stage.ctx().strategy.tp > 1) attrs.Set(Attr::kAxis, kAxisTp);
  }
  if (sub.relative_bias) attrs.Set(Attr::kBuckets, double(stage.ctx().model.relative_buckets));
  return attrs;
}

// Of ranks that share the sequence.
ContextAttention ContextOf(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                           const std::string& prefix, ViewId in) {
  const AttentionOutput out = AttentionBuffers(stage, layer, sub, prefix);
  return {prefix,    AttentionPrefix(stage, layer, prefix), in, out.context,
          out.stats, AttentionAttrs(stage, layer, sub)};
}

// `again`: recomputed by itself.
void EmitAttention(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                   const std::string& prefix, bool again) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const ViewId in = InnerIn(stage, layer, sub, prefix);
  if (stage.ctx().strategy.cp > 1)
    return EmitContextAttention(stage, layer, sub, ContextOf(stage, layer, sub, prefix, in), again);
  const AttentionOutput out = AttentionBuffers(stage, layer, sub, prefix);
  if (sub.kind == SubKind::kCrossAttention) {
    const ViewId kv = stage.Act(Name(prefix, layer, sub, "kv"), shape.rows * 2 * shape.inner_width);
    stage.Emit(OpKind::kCrossAttn, out.Saved(), {in, kv}, AttentionAttrs(stage, layer, sub)).group =
        DropoutGroup(stage, true);
    return;
  }
  std::vector<ViewId> operands{in};
  if (sub.relative_bias) operands.push_back(stage.Weight(sub.relative_bias));
  stage.Emit(OpKind::kAttn, out.Saved(), operands, AttentionAttrs(stage, layer, sub)).group =
      DropoutGroup(stage, true);
}

// The activation of `elements` inner columns: plain, or of pairs (gate, up), which may be two tensors.
void EmitActivation(StageBuilder& stage, const std::vector<ViewId>& out,
                    const std::vector<ViewId>& in, int64_t elements, bool backward) {
  const ModelSpec& model = stage.ctx().model;
  const bool relu = model.activation == Activation::kRelu || model.activation == Activation::kRelu2;
  ir::Attrs attrs{{Attr::kElements, double(elements)}};
  if (model.activation == Activation::kRelu2) attrs.Set(Attr::kPower, 2);
  OpKind kind = backward ? OpKind::kGeluBwd : OpKind::kGelu;
  if (model.gated) {
    kind = backward ? OpKind::kSwigluBwd : OpKind::kSwiglu;
    const ir::GateKind gate = model.activation == Activation::kSwiglu ? ir::GateKind::kSilu
                              : relu                                  ? ir::GateKind::kRelu
                                                                      : ir::GateKind::kGelu;
    attrs.Set(Attr::kGate, static_cast<double>(gate));
  } else if (relu) {
    kind = backward ? OpKind::kReluBwd : OpKind::kRelu;
  }
  stage.Emit(kind, out, in, attrs);
}

// Encoder output and the gradient of keys and values, as products of cross-attention read them.
CastSource MemorySource(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                        const std::string& prefix, ViewId memory) {
  const SublayerShape shape = ShapeOf(stage, sub);
  CastSource source{.name = Name(prefix, layer, sub, "mem"), .x = memory};
  source.rows = shape.rows;
  source.width = shape.hidden;
  return source;
}

CastSource KeyValueGrad(StageBuilder& stage, const Layer& layer, const Sublayer& sub) {
  const SublayerShape shape = ShapeOf(stage, sub);
  CastSource source{.name = Name("d.", layer, sub, "kv")};
  source.x = stage.Act(source.name, shape.rows * 2 * shape.inner_width);
  source.rows = shape.rows;
  source.width = 2 * shape.inner_width;
  source.gradient = true;
  source.site = GradientSite(layer, 6);
  source.columns = true;
  return source;
}

}  // namespace

std::string PrefixOf(const StageBuilder& stage, bool again, const std::string& prefix) {
  if (!again) return prefix;
  return stage.phase() == Phase::kForward ? "t." : "r.";
}

CastNeed NeedOf(const StageBuilder& stage, const Layer& layer, bool again) {
  const bool gone =
      stage.phase() == Phase::kForward && (again || layer.Recomputes(kRecomputeLayer));
  return {true, !gone && !stage.ctx().frozen()};
}

ViewId InnerForward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                    const std::string& prefix, const Factor& normed, ViewId own, ViewId memory) {
  const SublayerShape shape = ShapeOf(stage, sub);
  for (const InnerProduct& product : InnerProducts(stage, layer, sub))
    EmitProduct(stage, layer, sub, product, prefix, normed);
  const std::vector<ViewId> outputs = OutputsOf(stage, layer, sub, prefix);
  InAdapterForward(stage, layer, sub, prefix, own, outputs.front());
  if (sub.kind == SubKind::kMlp) {
    const ViewId inner = ActivationOf(stage, layer, sub, prefix);
    EmitActivation(stage, {inner}, outputs, shape.rows * shape.inner_width, false);
    return inner;
  }
  const ViewId in = InnerIn(stage, layer, sub, prefix);
  if (sub.kind == SubKind::kCrossAttention) {
    const ViewId kv = stage.Act(Name(prefix, layer, sub, "kv"), shape.rows * 2 * shape.inner_width);
    const Factor read =
        CastTensor(stage, MemorySource(stage, layer, sub, prefix, memory), NeedOf(stage, layer));
    Multiply(stage, kv, read, WeightFactor(stage, sub.kv_w, 2 * shape.inner_width, shape.hidden),
             {shape.rows, 2 * shape.inner_width, shape.hidden, false, true},
             OptionalWeight(stage, sub.kv_b));
  }
  EmitQkNorm(stage, layer, sub, prefix, in);
  EmitRope(stage, layer, sub, {in}, outputs, false);
  EmitAttention(stage, layer, sub, prefix, false);
  return AttentionBuffers(stage, layer, sub, prefix).context;
}

CastSource InnerSource(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                       const std::string& prefix) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const bool mlp = sub.kind == SubKind::kMlp;
  CastSource source{.name = Name(PrefixOf(stage, InnerAgain(layer, sub), prefix), layer, sub,
                                 mlp ? "act" : "ctx")};
  source.again = InnerAgain(layer, sub);
  source.rows = shape.rows;
  source.width = shape.inner_width;
  if (mlp) source.from = ir::CastFrom::kActivation;
  source.x = mlp ? ActivationOf(stage, layer, sub, prefix)
                 : AttentionBuffers(stage, layer, sub, prefix).context;
  return source;
}

void ColumnSums(StageBuilder& stage, ParamRef bias, ViewId dy, int64_t rows, int64_t width) {
  if (!bias) return;
  const ViewId target = stage.Grad(bias);
  stage.Emit(OpKind::kColSum, {target}, {target, dy},
             {{Attr::kRows, double(rows)}, {Attr::kH, double(width)}});
}

std::vector<ViewId> InnerBackward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                                  const Saved& saved, ViewId dinner, ViewId dmemory) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const std::vector<ViewId> gradients = GradientsOf(stage, layer, sub);
  if (sub.kind == SubKind::kMlp) {
    std::vector<ViewId> operands = OutputsOf(stage, layer, sub, saved.prefix);
    operands.insert(operands.begin(), dinner);
    EmitActivation(stage, gradients, operands, shape.rows * shape.inner_width, true);
    return gradients;
  }
  const ViewId in = InnerIn(stage, layer, sub, saved.prefix);
  const ViewId din = stage.Act(Name("d.", layer, sub, "in"), shape.rows * shape.in_width);
  const auto turn_back = [&]() -> std::vector<ViewId> {
    EmitRope(stage, layer, sub, gradients, {din}, true);
    if (gradients.size() > 1) return gradients;
    return {EmitQkNormBackward(stage, layer, sub, saved, din)};
  };
  const AttentionOutput out = AttentionBuffers(stage, layer, sub, saved.prefix);
  if (sub.kind == SubKind::kCrossAttention) {
    const ViewId kv =
        stage.Act(Name(saved.prefix, layer, sub, "kv"), shape.rows * 2 * shape.inner_width);
    const ViewId dkv = stage.Act(Name("d.", layer, sub, "kv"), shape.rows * 2 * shape.inner_width);
    std::vector<ViewId> operands{dinner, in, kv};
    for (ViewId saved_view : out.Saved()) operands.push_back(saved_view);
    stage.Emit(OpKind::kCrossAttnBwd, {din, dkv}, operands, AttentionAttrs(stage, layer, sub))
        .group = DropoutGroup(stage, true);
    const Factor cast = CastTensor(stage, KeyValueGrad(stage, layer, sub), {});
    Multiply(stage, dmemory, cast,
             WeightFactor(stage, sub.kv_w, 2 * shape.inner_width, shape.hidden),
             {shape.rows, shape.hidden, 2 * shape.inner_width, false, false, true});
    stage.MarkPartial();
    return {din};
  }
  if (stage.ctx().strategy.cp > 1) {
    EmitContextAttentionBackward(stage, layer, sub, ContextOf(stage, layer, sub, saved.prefix, in),
                                 dinner, din);
    return turn_back();
  }
  std::vector<ViewId> operands{dinner, in}, results{din};
  for (ViewId saved_view : out.Saved()) operands.push_back(saved_view);
  if (sub.relative_bias) {
    operands.push_back(stage.Weight(sub.relative_bias));
    const ViewId dbias = stage.Grad(sub.relative_bias);
    operands.push_back(dbias);
    results.push_back(dbias);
  }
  stage.Emit(OpKind::kAttnBwd, results, operands, AttentionAttrs(stage, layer, sub)).group =
      DropoutGroup(stage, true);
  return turn_back();
}

void InnerWeightGrads(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                      const Saved& saved, const Factor& normed, const std::vector<Factor>& din,
                      ViewId memory) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const std::vector<InnerProduct> products = InnerProducts(stage, layer, sub);
  for (std::size_t i = 0; i < products.size(); ++i) {
    Multiply(stage, stage.Grad(products[i].weight), din[i], normed,
             {products[i].width, shape.hidden, shape.rows, true, false, true});
    ColumnSums(stage, products[i].bias, din[i].plain, shape.rows, products[i].width);
  }
  if (sub.kind != SubKind::kCrossAttention) return;
  const ViewId dkv = stage.Act(Name("d.", layer, sub, "kv"), shape.rows * 2 * shape.inner_width);
  Multiply(stage, stage.Grad(sub.kv_w), CastOf(stage, KeyValueGrad(stage, layer, sub)),
           CastOf(stage, MemorySource(stage, layer, sub, saved.prefix, memory)),
           {2 * shape.inner_width, shape.hidden, shape.rows, true, false, true});
  ColumnSums(stage, sub.kv_b, dkv, shape.rows, 2 * shape.inner_width);
}

void RecomputeInner(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                    const std::string& prefix) {
  const bool mlp = sub.kind == SubKind::kMlp;
  if (!layer.Recomputes(mlp ? kRecomputeActivation : kRecomputeCoreAttention)) return;
  const Phase before = stage.phase();
  stage.SetPhase(Phase::kRecompute);
  if (mlp) {
    const SublayerShape shape = ShapeOf(stage, sub);
    EmitActivation(stage, {ActivationOf(stage, layer, sub, prefix)},
                   OutputsOf(stage, layer, sub, prefix), shape.rows * shape.inner_width, false);
    (void)CastTensor(stage, InnerSource(stage, layer, sub, prefix), {false, true});
  } else {
    EmitAttention(stage, layer, sub, prefix, true);
  }
  stage.SetPhase(before);
}

}  // namespace orrery
