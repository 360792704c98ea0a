// SPDX-License-Identifier: Apache-2.0
// Products of a sublayer's input, in one or several tensors; norms and positions of queries and keys behind them.
#include "model/plan/lower/inner_products.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/plan/lower/context.h"

namespace orrery {

using ir::Attr;
using ir::OpKind;
using ir::ViewId;

namespace {

ir::Attrs HeadAttrs(const StageBuilder& stage, const Sublayer& sub) {
  const SublayerShape shape = ShapeOf(stage, sub);
  return {{Attr::kRows, double(shape.rows)},
          {Attr::kNh, double(shape.heads)},
          {Attr::kKv, double(shape.kv_heads)},
          {Attr::kHd, double(shape.head_dim)}};
}

// As ir::Rotation reads it. YaRN's ramp goes over pairs: to the one that turns `low` times over the original length, from
// the one that turns `high` times (Peng et al. 2023, equation 17).
void SetScaling(const ModelSpec& model, ir::Attrs& attrs) {
  const RopeScaling& rope = model.rope_scaling;
  if (rope.kind == RopeScaling::Kind::kNone || rope.factor == 1) return;
  attrs.Set(Attr::kStretch, rope.factor);
  if (rope.kind == RopeScaling::Kind::kLinear) return;
  if (rope.kind == RopeScaling::Kind::kLlama3) {
    attrs.Set(Attr::kOriginal, rope.original);
    attrs.Set(Attr::kRampFrom, rope.low);
    attrs.Set(Attr::kRampTo, rope.high);
    return;
  }
  const double width = static_cast<double>(model.RotaryWidth());
  const auto pair = [&](double turns) {
    return width * std::log(rope.original / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(model.rope_base));
  };
  double from = pair(rope.high), to = pair(rope.low);
  if (rope.truncate) from = std::floor(from), to = std::ceil(to);
  from = std::max(from, 0.0);
  to = std::min(to, width - 1);
  attrs.Set(Attr::kRampFrom, from);
  attrs.Set(Attr::kRampTo, to > from ? to : from + 0.001);
  attrs.Set(Attr::kMagnify, rope.magnify);
}

// Norms of queries and keys, in place. What they were before is kept for the backward pass.
struct QkNormBuffers {
  ViewId raw, stats;
};
QkNormBuffers BuffersOfQkNorm(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                              const std::string& prefix) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const int64_t heads = shape.heads + shape.kv_heads;
  const bool whole = stage.ctx().model.qk_norm == QkNorm::kWidth;
  return {stage.Act(Name(prefix, layer, sub, "qk"), shape.rows * heads * shape.head_dim),
          stage.Make(Name(prefix, layer, sub, "qks"), shape.rows * (whole ? 2 : heads),
                     stage.ctx().full)};
}

ir::Attrs QkNormAttrs(const StageBuilder& stage, const Sublayer& sub) {
  ir::Attrs attrs = HeadAttrs(stage, sub);
  attrs.Set(Attr::kWhole, stage.ctx().model.qk_norm == QkNorm::kWidth);
  return attrs;
}

ViewId OutputOf(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                const InnerProduct& product, const std::string& prefix) {
  return stage.Act(Name(PrefixOf(stage, product.gone, prefix), layer, sub, product.name),
                   ShapeOf(stage, sub).rows * product.width);
}

}  // namespace

ViewId OptionalWeight(StageBuilder& stage, ParamRef ref) { return ref ? stage.Weight(ref) : -1; }

std::vector<InnerProduct> InnerProducts(const StageBuilder& stage, const Layer& layer,
                                        const Sublayer& sub) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const bool mlp = sub.kind == SubKind::kMlp, whole = mlp && layer.Recomputes(kRecomputeMlp);
  const int site = 2 * static_cast<int>(sub.kind) + 1;
  if (!SplitsProducts(stage.ctx(), sub.kind))
    return {{"in", sub.in_w, sub.in_b, shape.in_width, whole, site}};
  if (mlp) {
    return {{"gate", sub.in_w, sub.in_b, shape.inner_width, whole, site},
            {"up", sub.up_w, sub.up_b, shape.inner_width,
             whole || MakesProductsAgain(stage, layer, sub), 6}};
  }
  // Attention keeps what it reads, joined; where keys are made again, what the others are joined from.
  const bool joined = !MakesProductsAgain(stage, layer, sub);
  const int64_t keys = shape.kv_heads * shape.head_dim;
  return {{"q", sub.in_w, sub.in_b, shape.inner_width, joined, site},
          {"k", sub.k_w, sub.k_b, keys, true, 2},
          {"v", sub.v_w, sub.v_b, keys, joined, 3}};
}

bool MakesProductsAgain(const StageBuilder& stage, const Layer& layer, const Sublayer& sub) {
  return SplitsProducts(stage.ctx(), sub.kind) &&
         layer.Recomputes(sub.kind == SubKind::kMlp ? kRecomputeUp : kRecomputeKeys);
}

void RecomputeProducts(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                       const Factor& normed) {
  for (const InnerProduct& product : InnerProducts(stage, layer, sub))
    if (product.gone) EmitProduct(stage, layer, sub, product, "", normed);
  if (sub.kind == SubKind::kAttention)
    EmitRope(stage, layer, sub, {InnerIn(stage, layer, sub, "")}, OutputsOf(stage, layer, sub, ""),
             false);
}

ViewId InnerIn(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
               const std::string& prefix) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const bool mlp = sub.kind == SubKind::kMlp;
  const bool again = mlp ? layer.Recomputes(kRecomputeMlp) : MakesProductsAgain(stage, layer, sub);
  return stage.Act(Name(PrefixOf(stage, again, prefix), layer, sub, "in"),
                   shape.rows * shape.in_width);
}

std::vector<ViewId> OutputsOf(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                              const std::string& prefix) {
  std::vector<ViewId> outputs;
  for (const InnerProduct& product : InnerProducts(stage, layer, sub))
    outputs.push_back(OutputOf(stage, layer, sub, product, prefix));
  return outputs;
}

std::vector<ViewId> GradientsOf(StageBuilder& stage, const Layer& layer, const Sublayer& sub) {
  std::vector<ViewId> gradients;
  for (const InnerProduct& product : InnerProducts(stage, layer, sub))
    gradients.push_back(
        stage.Act(Name("d.", layer, sub, product.name), ShapeOf(stage, sub).rows * product.width));
  return gradients;
}

void EmitProduct(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                 const InnerProduct& product, const std::string& prefix, const Factor& normed) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const ViewId out = OutputOf(stage, layer, sub, product, prefix);  // named in this order
  const Factor weight = WeightFactor(stage, product.weight, product.width, shape.hidden);
  Multiply(stage, out, normed, weight, {shape.rows, product.width, shape.hidden, false, true},
           OptionalWeight(stage, product.bias));
}

void EmitRope(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
              const std::vector<ViewId>& out, const std::vector<ViewId>& in, bool inverse) {
  if (stage.ctx().model.positions != Positions::kRotary || sub.kind != SubKind::kAttention) return;
  const ModelSpec& model = stage.ctx().model;
  ir::Attrs attrs = HeadAttrs(stage, sub);
  attrs.Set(Attr::kBatch, double(stage.ctx().batch()));
  attrs.Set(Attr::kInverse, double(inverse));
  if (model.RotaryWidth() < model.head_dim) attrs.Set(Attr::kTurn, double(model.RotaryWidth()));
  const bool local = model.rope_base_of_windows > 0 && model.Window(layer.index) > 0;
  attrs.Set(Attr::kBase, local ? model.rope_base_of_windows : model.rope_base);
  if (model.rope_scaling_of_windows || model.Window(layer.index) == 0) SetScaling(model, attrs);
  SetPositions(stage, attrs);
  stage.Emit(OpKind::kRope, out, in, attrs);
}

void EmitQkNorm(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                const std::string& prefix, ViewId qkv) {
  if (!sub.qk_gamma) return;
  const QkNormBuffers kept = BuffersOfQkNorm(stage, layer, sub, prefix);
  ir::Attrs attrs = QkNormAttrs(stage, sub);
  attrs.Set(Attr::kEps, stage.ctx().model.norm_epsilon);
  stage.Emit(OpKind::kQkNorm, {qkv, kept.raw, kept.stats}, {qkv, stage.Weight(sub.qk_gamma)},
             attrs);
}

ViewId EmitQkNormBackward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                          const Saved& saved, ViewId dqkv) {
  if (!sub.qk_gamma) return dqkv;
  const SublayerShape shape = ShapeOf(stage, sub);
  const QkNormBuffers kept = BuffersOfQkNorm(stage, layer, sub, saved.prefix);
  const ir::Attrs attrs = QkNormAttrs(stage, sub);
  const ViewId dx = stage.Act(Name("d.", layer, sub, "raw"), shape.rows * shape.in_width);
  stage.Emit(OpKind::kQkNormBwd, {dx}, {dqkv, kept.raw, kept.stats, stage.Weight(sub.qk_gamma)},
             attrs);
  if (stage.ctx().frozen()) return dx;
  InWeightGradBlock(stage, saved.wgrad_block, [&] {
    const ViewId target = stage.Grad(sub.qk_gamma);
    stage.Emit(OpKind::kQkNormWgrad, {target}, {target, dqkv, kept.raw, kept.stats}, attrs);
  });
  return dx;
}

}  // namespace orrery
