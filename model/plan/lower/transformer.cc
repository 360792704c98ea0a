// SPDX-License-Identifier: Apache-2.0
// Forward and backward of residual sublayers, with tensor and sequence parallelism and recompute.
#include "model/plan/lower/transformer.h"

namespace orrery {

using ir::Attr;
using ir::OpKind;
using ir::Phase;
using ir::ViewId;

namespace {

// Widths and names of one sublayer on this rank.
struct Shape {
  int64_t rows, shard_rows, hidden;
  int64_t in_width;     // of the inner projection (qkv, q, fc1)
  int64_t inner_width;  // what the output projection reads (context, activation)
  int64_t heads, kv_heads, head_dim;
};

Shape ShapeOf(const StageBuilder& stage, const Sublayer& sub) {
  const LowerContext& ctx = stage.ctx();
  const ModelSpec& model = ctx.model;
  const int64_t tp = ctx.strategy.tp;
  Shape shape{ctx.Rows(), ctx.ShardRows(),  model.hidden,        0,
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

ViewId OptionalWeight(StageBuilder& stage, ParamRef ref) { return ref ? stage.Weight(ref) : -1; }

std::string Name(const std::string& prefix, const Layer& layer, const Sublayer& sub,
                 const char* what) {
  return prefix + "l" + std::to_string(layer.index) + "." + sub.tag + "." + what;
}

// Context and statistics of attention live in F only when they are recomputed selectively.
std::string AttentionPrefix(const StageBuilder& stage, const std::string& prefix) {
  if (stage.ctx().strategy.recompute != Recompute::kSelective) return prefix;
  return stage.phase() == Phase::kForward ? "t." : "r.";
}

struct AttentionOutput {
  ViewId context, stats;
  ViewId mask = -1, dropped = -1;  // materialised attention with dropout

  std::vector<ViewId> Saved() const {
    return mask < 0 ? std::vector<ViewId>{context, stats}
                    : std::vector<ViewId>{context, stats, mask, dropped};
  }
};

AttentionOutput AttentionBuffers(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                                 const std::string& prefix) {
  const Shape shape = ShapeOf(stage, sub);
  const std::string own = AttentionPrefix(stage, prefix);
  const ViewId context = stage.Act(Name(own, layer, sub, "ctx"), shape.rows * shape.inner_width);
  if (stage.ctx().strategy.flash_attention) {
    return {context,
            stage.Make(Name(own, layer, sub, "lse"), shape.rows * shape.heads, stage.ctx().full)};
  }
  const int64_t seq = stage.ctx().work.seq_len,
                scores = stage.ctx().batch() * shape.heads * seq * seq;
  AttentionOutput out{context, stage.Act(Name(own, layer, sub, "probs"), scores)};
  if (stage.ctx().work.dropout > 0) {
    out.mask = stage.Make(Name(own, layer, sub, "pmask"), scores, stage.ctx().mask);
    out.dropped = stage.Act(Name(own, layer, sub, "pdrop"), scores);
  }
  return out;
}

// The group that tells a dropout which samples it works on.
int16_t DropoutGroup(const StageBuilder& stage) {
  return stage.ctx().work.dropout > 0 ? kGroupData : -1;
}

// Dropout of a sublayer: attributes that make every layout drop the same elements.
void SetDropout(const StageBuilder& stage, const Layer& layer, const Sublayer& sub, bool attention,
                ir::Attrs& attrs) {
  if (stage.ctx().work.dropout <= 0) return;
  const auto which = static_cast<int>(sub.kind) * 2 + (attention ? 1 : 0);
  attrs.Set(Attr::kRate, stage.ctx().work.dropout);
  attrs.Set(Attr::kSite, 8.0 * (layer.index + 1) + which);
  attrs.Set(Attr::kBatch, double(stage.ctx().batch()));
  const bool sharded = attention ? stage.ctx().strategy.tp > 1 : stage.ctx().sp();
  attrs.Set(Attr::kAxis, sharded ? kAxisTp : -1);
}

ir::Attrs AttentionAttrs(const StageBuilder& stage, const Layer& layer, const Sublayer& sub) {
  const Shape shape = ShapeOf(stage, sub);
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
  if (sub.relative_bias) attrs.Set(Attr::kBuckets, double(stage.ctx().model.relative_buckets));
  return attrs;
}

void EmitAttention(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                   const std::string& prefix) {
  const Shape shape = ShapeOf(stage, sub);
  const ViewId in = stage.Act(Name(prefix, layer, sub, "in"), shape.rows * shape.in_width);
  const AttentionOutput out = AttentionBuffers(stage, layer, sub, prefix);
  if (sub.kind == SubKind::kCrossAttention) {
    const ViewId kv = stage.Act(Name(prefix, layer, sub, "kv"), shape.rows * 2 * shape.inner_width);
    stage.Emit(OpKind::kCrossAttn, out.Saved(), {in, kv}, AttentionAttrs(stage, layer, sub)).group =
        DropoutGroup(stage);
    return;
  }
  std::vector<ViewId> operands{in};
  if (sub.relative_bias) operands.push_back(stage.Weight(sub.relative_bias));
  stage.Emit(OpKind::kAttn, out.Saved(), operands, AttentionAttrs(stage, layer, sub)).group =
      DropoutGroup(stage);
}

void EmitRope(StageBuilder& stage, const Sublayer& sub, ViewId qkv, bool inverse) {
  if (stage.ctx().model.positions != Positions::kRotary || sub.kind != SubKind::kAttention) return;
  const Shape shape = ShapeOf(stage, sub);
  stage.Emit(OpKind::kRope, {qkv}, {qkv},
             {{Attr::kRows, double(shape.rows)},
              {Attr::kBatch, double(stage.ctx().batch())},
              {Attr::kNh, double(shape.heads)},
              {Attr::kKv, double(shape.kv_heads)},
              {Attr::kHd, double(shape.head_dim)},
              {Attr::kInverse, double(inverse)}});
}

OpKind ActivationKind(const ModelSpec& model, bool backward) {
  switch (model.activation) {
    case Activation::kGelu:
      return backward ? OpKind::kGeluBwd : OpKind::kGelu;
    case Activation::kRelu:
      return backward ? OpKind::kReluBwd : OpKind::kRelu;
    case Activation::kSwiglu:
      return backward ? OpKind::kSwigluBwd : OpKind::kSwiglu;
  }
  return OpKind::kGelu;
}

// From the normalised input (full sequence) to what the output projection reads.
ViewId InnerForward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                    const std::string& prefix, ViewId normed, ViewId memory) {
  const Shape shape = ShapeOf(stage, sub);
  const ViewId in = stage.Act(Name(prefix, layer, sub, "in"), shape.rows * shape.in_width);
  const ViewId weight = stage.Weight(sub.in_w);
  stage.Matmul(in, normed, weight, shape.rows, shape.in_width, shape.hidden, false, true, false,
               OptionalWeight(stage, sub.in_b));
  if (sub.kind == SubKind::kMlp) {
    const ViewId inner = stage.Act(Name(prefix, layer, sub, "act"), shape.rows * shape.inner_width);
    stage.Emit(ActivationKind(stage.ctx().model, false), {inner}, {in},
               {{Attr::kElements, double(shape.rows * shape.inner_width)}});
    return inner;
  }
  if (sub.kind == SubKind::kCrossAttention) {
    const ViewId kv = stage.Act(Name(prefix, layer, sub, "kv"), shape.rows * 2 * shape.inner_width);
    stage.Matmul(kv, memory, stage.Weight(sub.kv_w), shape.rows, 2 * shape.inner_width,
                 shape.hidden, false, true, false, OptionalWeight(stage, sub.kv_b));
  }
  EmitRope(stage, sub, in, false);
  EmitAttention(stage, layer, sub, prefix);
  return AttentionBuffers(stage, layer, sub, prefix).context;
}

ViewId OutputMask(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                  const std::string& prefix) {
  const Shape shape = ShapeOf(stage, sub);
  return stage.Make(Name(prefix, layer, sub, "omask"), shape.shard_rows * shape.hidden,
                    stage.ctx().mask);
}

void SublayerForward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                     const std::string& prefix, ViewId x, ViewId y, ViewId memory,
                     bool stop_early) {
  const Shape shape = ShapeOf(stage, sub);
  const bool post = stage.ctx().model.post_norm;
  ViewId normed = x;
  if (!post) {
    normed = EmitNorm(stage, Name(prefix, layer, sub, "n"), x, sub.norm_gamma, sub.norm_beta,
                      shape.shard_rows, -1);
  }
  normed = stage.GatherSequence(normed, Name(prefix, layer, sub, "nf"), shape.hidden);
  const ViewId inner = InnerForward(stage, layer, sub, prefix, normed, memory);
  if (stop_early) return;
  ViewId out = stage.Act(Name(prefix, layer, sub, "out"), shape.rows * shape.hidden);
  stage.Matmul(out, inner, stage.Weight(sub.out_w), shape.rows, shape.hidden, shape.inner_width,
               false, true);
  out = stage.ReduceTensor(out, Name(prefix, layer, sub, "outs"), shape.hidden);
  const ViewId sum =
      post ? stage.Act(Name(prefix, layer, sub, "p"), shape.shard_rows * shape.hidden) : y;
  std::vector<ViewId> in{x, out};
  if (sub.out_b) in.push_back(stage.Weight(sub.out_b));
  ir::Attrs attrs{{Attr::kRows, double(shape.shard_rows)},
                  {Attr::kH, double(shape.hidden)},
                  {Attr::kBias, double(static_cast<bool>(sub.out_b))}};
  SetDropout(stage, layer, sub, false, attrs);
  std::vector<ViewId> results{sum};
  if (stage.ctx().work.dropout > 0) results.push_back(OutputMask(stage, layer, sub, prefix));
  stage.Emit(OpKind::kBiasResidual, results, in, attrs).group = DropoutGroup(stage);
  if (post) {
    EmitNorm(stage, Name(prefix, layer, sub, "n"), sum, sub.norm_gamma, sub.norm_beta,
             shape.shard_rows, y);
  }
}

void ColumnSums(StageBuilder& stage, ParamRef bias, ViewId dy, int64_t rows, int64_t width) {
  if (!bias) return;
  const ViewId target = stage.Grad(bias);
  stage.Emit(OpKind::kColSum, {target}, {target, dy},
             {{Attr::kRows, double(rows)}, {Attr::kH, double(width)}});
}

// From the gradient of what the output projection reads to the gradient of the inner projection's output.
ViewId InnerBackward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                     const std::string& saved, ViewId dinner, ViewId dmemory) {
  const Shape shape = ShapeOf(stage, sub);
  const ViewId in = stage.Act(Name(saved, layer, sub, "in"), shape.rows * shape.in_width);
  const ViewId din = stage.Act(Name("d.", layer, sub, "in"), shape.rows * shape.in_width);
  if (sub.kind == SubKind::kMlp) {
    stage.Emit(ActivationKind(stage.ctx().model, true), {din}, {dinner, in},
               {{Attr::kElements, double(shape.rows * shape.inner_width)}});
    return din;
  }
  const AttentionOutput out = AttentionBuffers(stage, layer, sub, saved);
  if (sub.kind == SubKind::kCrossAttention) {
    const ViewId kv = stage.Act(Name(saved, layer, sub, "kv"), shape.rows * 2 * shape.inner_width);
    const ViewId dkv = stage.Act(Name("d.", layer, sub, "kv"), shape.rows * 2 * shape.inner_width);
    std::vector<ViewId> operands{dinner, in, kv};
    for (ViewId saved_view : out.Saved()) operands.push_back(saved_view);
    stage.Emit(OpKind::kCrossAttnBwd, {din, dkv}, operands, AttentionAttrs(stage, layer, sub))
        .group = DropoutGroup(stage);
    stage.Matmul(dmemory, dkv, stage.Weight(sub.kv_w), shape.rows, shape.hidden,
                 2 * shape.inner_width, false, false, true);
    stage.MarkPartial();
    return din;
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
      DropoutGroup(stage);
  EmitRope(stage, sub, din, true);
  return din;
}

struct Saved {
  std::string prefix;  // of the activations that backward reads
  int wgrad_block;
};

// Weight gradients of the inner projection; the normalised input is gathered again under sequence parallelism.
void InnerWeightGrads(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                      const Saved& saved, ViewId x, ViewId din, ViewId memory) {
  const Shape shape = ShapeOf(stage, sub);
  InWeightGradBlock(stage, saved.wgrad_block, [&] {
    ViewId normed = stage.ctx().model.post_norm ? x
                                                : stage.Act(Name(saved.prefix, layer, sub, "n"),
                                                            shape.shard_rows * shape.hidden);
    normed = stage.GatherSequence(normed, Name("w.", layer, sub, "nf"), shape.hidden);
    stage.Matmul(stage.Grad(sub.in_w), din, normed, shape.in_width, shape.hidden, shape.rows, true,
                 false, true);
    ColumnSums(stage, sub.in_b, din, shape.rows, shape.in_width);
    if (sub.kind != SubKind::kCrossAttention) return;
    const ViewId dkv = stage.Act(Name("d.", layer, sub, "kv"), shape.rows * 2 * shape.inner_width);
    stage.Matmul(stage.Grad(sub.kv_w), dkv, memory, 2 * shape.inner_width, shape.hidden, shape.rows,
                 true, false, true);
    ColumnSums(stage, sub.kv_b, dkv, shape.rows, 2 * shape.inner_width);
  });
}

void RecomputeSelective(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                        const std::string& prefix) {
  if (stage.ctx().strategy.recompute != Recompute::kSelective || sub.kind == SubKind::kMlp) return;
  const Phase before = stage.phase();
  stage.SetPhase(Phase::kRecompute);
  EmitAttention(stage, layer, sub, prefix);
  stage.SetPhase(before);
}

void SublayerBackward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                      const Saved& saved, ViewId x, ViewId dy, ViewId dx, ViewId memory,
                      ViewId dmemory) {
  const Shape shape = ShapeOf(stage, sub);
  const bool post = stage.ctx().model.post_norm;
  const std::string norm = Name(saved.prefix, layer, sub, "n");
  ViewId d = dy;
  if (post) {
    const ViewId sum =
        stage.Act(Name(saved.prefix, layer, sub, "p"), shape.shard_rows * shape.hidden);
    d = stage.Act(Name("d.", layer, sub, "p"), shape.shard_rows * shape.hidden);
    EmitNormBackward(stage, norm, dy, sum, sub.norm_gamma, shape.shard_rows, d, -1);
    InWeightGradBlock(stage, saved.wgrad_block, [&] {
      EmitNormWeightGrad(stage, norm, dy, sum, sub.norm_gamma, sub.norm_beta, shape.shard_rows);
    });
  }
  const ViewId residual = d;
  if (stage.ctx().work.dropout > 0) {
    d = stage.Act(Name("d.", layer, sub, "drop"), shape.shard_rows * shape.hidden);
    stage.Emit(OpKind::kDropoutBwd, {d}, {residual, OutputMask(stage, layer, sub, saved.prefix)},
               {{Attr::kElements, double(shape.shard_rows * shape.hidden)},
                {Attr::kRate, stage.ctx().work.dropout}});
  }
  const ViewId dfull = stage.GatherSequence(d, Name("d.", layer, sub, "outf"), shape.hidden);
  const ViewId dinner = stage.Act(Name("d.", layer, sub, "act"), shape.rows * shape.inner_width);
  stage.Matmul(dinner, dfull, stage.Weight(sub.out_w), shape.rows, shape.inner_width, shape.hidden,
               false, false);
  RecomputeSelective(stage, layer, sub, saved.prefix);
  const ViewId inner =
      sub.kind == SubKind::kMlp
          ? stage.Act(Name(saved.prefix, layer, sub, "act"), shape.rows * shape.inner_width)
          : AttentionBuffers(stage, layer, sub, saved.prefix).context;
  InWeightGradBlock(stage, saved.wgrad_block, [&] {
    ColumnSums(stage, sub.out_b, d, shape.shard_rows, shape.hidden);
    stage.Matmul(stage.Grad(sub.out_w), dfull, inner, shape.hidden, shape.inner_width, shape.rows,
                 true, false, true);
  });
  const ViewId din = InnerBackward(stage, layer, sub, saved.prefix, dinner, dmemory);
  ViewId dnormed = stage.Act(Name("d.", layer, sub, "n"), shape.rows * shape.hidden);
  stage.Matmul(dnormed, din, stage.Weight(sub.in_w), shape.rows, shape.hidden, shape.in_width,
               false, false);
  dnormed = stage.ReduceTensor(dnormed, Name("d.", layer, sub, "ns"), shape.hidden);
  InnerWeightGrads(stage, layer, sub, saved, x, din, memory);
  if (post) {
    stage.Emit(OpKind::kAdd, {dx}, {dnormed, residual},
               {{Attr::kElements, double(shape.shard_rows * shape.hidden)}});
    return;
  }
  InWeightGradBlock(stage, saved.wgrad_block, [&] {
    EmitNormWeightGrad(stage, norm, dnormed, x, sub.norm_gamma, sub.norm_beta, shape.shard_rows);
  });
  EmitNormBackward(stage, norm, dnormed, x, sub.norm_gamma, shape.shard_rows, dx, residual);
}

// Backward reads the norm behind the residual sum, or the dropout mask of the last sublayer; or the software knows no
// better than to run the whole layer again.
bool NeedsLayerOutput(const StageBuilder& stage) {
  return stage.ctx().model.post_norm || stage.ctx().work.dropout > 0 ||
         stage.ctx().strategy.recompute_unread;
}

ViewId Between(StageBuilder& stage, const std::string& prefix, const Layer& layer,
               std::size_t sub) {
  return stage.Act(prefix + "l" + std::to_string(layer.index) + ".x" + std::to_string(sub),
                   stage.ctx().ShardRows() * stage.ctx().model.hidden);
}

}  // namespace

void LayerForward(StageBuilder& stage, const Layer& layer, const std::string& prefix, ViewId x,
                  ViewId y, ViewId memory, bool for_backward_only) {
  const bool stop_early = for_backward_only && !NeedsLayerOutput(stage);
  for (std::size_t i = 0; i < layer.sublayers.size(); ++i) {
    const bool last = i + 1 == layer.sublayers.size();
    const ViewId out = last ? y : Between(stage, prefix, layer, i + 1);
    SublayerForward(stage, layer, layer.sublayers[i], prefix,
                    i == 0 ? x : Between(stage, prefix, layer, i), out, memory, last && stop_early);
  }
}

void LayerBackward(StageBuilder& stage, const Layer& layer, ViewId x, ViewId dy, ViewId dx,
                   ViewId memory, ViewId dmemory, int wgrad_block) {
  Saved saved{"", wgrad_block};
  if (stage.ctx().strategy.recompute == Recompute::kFull) {
    saved.prefix = "r.";
    const Phase before = stage.phase();
    stage.SetPhase(Phase::kRecompute);
    const int64_t elements = stage.ctx().ShardRows() * stage.ctx().model.hidden;
    const ViewId unused = NeedsLayerOutput(stage)
                              ? stage.Act("r.l" + std::to_string(layer.index) + ".y", elements)
                              : -1;
    LayerForward(stage, layer, "r.", x, unused, memory, true);
    stage.SetPhase(before);
  }
  for (int i = static_cast<int>(layer.sublayers.size()) - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    const bool last = at + 1 == layer.sublayers.size();
    const ViewId sub_x = i == 0 ? x : Between(stage, saved.prefix, layer, at);
    const ViewId sub_dy = last ? dy : Between(stage, "d.", layer, at + 1);
    const ViewId sub_dx = i == 0 ? dx : Between(stage, "d.", layer, at);
    SublayerBackward(stage, layer, layer.sublayers[at], saved, sub_x, sub_dy, sub_dx, memory,
                     dmemory);
  }
}

}  // namespace orrery
