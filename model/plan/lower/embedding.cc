// SPDX-License-Identifier: Apache-2.0
// Token, position and segment embeddings, forward and backward.
#include "model/plan/lower/context.h"
#include "model/plan/lower/ends.h"

namespace orrery {

using ir::Attr;
using ir::Init;
using ir::LoadWhat;
using ir::OpKind;
using ir::Phase;
using ir::Segment;
using ir::ViewId;

void AddEmbeddingUnits(StageBuilder& stage, EndParams& ends) {
  const LowerContext& ctx = stage.ctx();
  const ModelSpec& model = ctx.model;
  const int64_t h = model.hidden;
  ends.table = stage.AddUnit("wte",
                             {{"wte.w",
                               {PaddedVocab(model, ctx.strategy.tp), h},
                               ctx.whole_embedding() ? -1 : 0,
                               Init::kNormal,
                               true,
                               model.vocab,
                               ctx.tied_across_stages ? 0 : -1}},
                             false, false)[0];
  std::vector<ParamDecl> rest;
  std::vector<ParamRef*> refs;
  const auto declare = [&](const char* name, std::vector<int64_t> shape, Init init, bool decay,
                           ParamRef* ref) {
    rest.push_back({name, std::move(shape), -1, init, decay});
    refs.push_back(ref);
  };
  if (model.positions == Positions::kLearned)
    declare("wpe.w", {model.max_positions, h}, Init::kNormal, true, &ends.positions);
  if (model.token_types > 0)
    declare("wtt.w", {model.token_types, h}, Init::kNormal, true, &ends.token_types);
  if (model.embedding_norm) {
    declare("emb.g", {h}, Init::kOnes, false, &ends.norm_gamma);
    if (model.norm == Norm::kLayerNorm) declare("emb.b", {h}, Init::kZeros, false, &ends.norm_beta);
  }
  if (rest.empty()) return;
  const auto added = stage.AddUnit("wpe", rest, ctx.sp(), false);
  for (std::size_t i = 0; i < added.size(); ++i) *refs[i] = added[i];
}

namespace {

struct Tokens {
  ViewId ids, types;
};

Tokens TokenBuffers(StageBuilder& stage, const EndParams& ends, const std::string& name) {
  const LowerContext& ctx = stage.ctx();
  return {stage.Make(name + "tok", ctx.Rows(), ir::Dtype::kI32),
          ends.token_types ? stage.Make(name + "typ", ctx.ShardRows(), ir::Dtype::kI32) : -1};
}

void EmitLoad(StageBuilder& stage, ViewId out, LoadWhat what, int64_t seq, int axis) {
  const Phase before = stage.phase();
  stage.SetPhase(Phase::kInput);
  ir::Op& op = stage.Emit(OpKind::kLoad, {out}, {},
                          {{Attr::kWhat, double(static_cast<int>(what))},
                           {Attr::kBatch, double(stage.ctx().batch())},
                           {Attr::kSeq, double(seq)},
                           {Attr::kAxis, double(axis)}});
  SetPositions(stage, op.attrs);
  op.group = kGroupData;
  stage.SetPhase(before);
}

ir::Attrs TableAttrs(const StageBuilder& stage, int64_t rows, int64_t local_rows, bool sharded) {
  return {{Attr::kRows, double(rows)},
          {Attr::kH, double(stage.ctx().model.hidden)},
          {Attr::kVl, double(local_rows)},
          {Attr::kAxis, double(sharded && stage.ctx().strategy.tp > 1 ? kAxisTp : -1)}};
}

ir::Attrs VocabAttrs(const StageBuilder& stage) {
  const LowerContext& ctx = stage.ctx();
  const int64_t vocab = PaddedVocab(ctx.model, ctx.strategy.tp);
  const bool sharded = !ctx.whole_embedding();
  ir::Attrs attrs =
      TableAttrs(stage, ctx.Rows(), sharded ? vocab / ctx.strategy.tp : vocab, sharded);
  if (ctx.model.embedding_scale != 1) attrs.Set(Attr::kScale, ctx.model.embedding_scale);
  return attrs;
}

ir::Attrs PositionAttrs(const StageBuilder& stage) {
  const LowerContext& ctx = stage.ctx();
  ir::Attrs attrs{{Attr::kRows, double(ctx.ShardRows())},
                  {Attr::kH, double(ctx.model.hidden)},
                  {Attr::kBatch, double(ctx.batch())},
                  {Attr::kAxis, double(ctx.sp() ? kAxisTp : -1)}};
  SetPositions(stage, attrs);
  return attrs;
}

}  // namespace

void EmbeddingForward(StageBuilder& stage, const EndParams& ends, LoadWhat what,
                      const std::string& name, ViewId stream) {
  const LowerContext& ctx = stage.ctx();
  const bool drops = ctx.work.dropout > 0;
  const ViewId x = drops ? stage.Act(name + "emb.x", ctx.ShardRows() * ctx.model.hidden) : stream;
  const int64_t h = ctx.model.hidden, shard = ctx.ShardRows() * h;
  const Tokens tokens = TokenBuffers(stage, ends, name);
  stage.Label(Phase::kForward, Segment::kEmbedding);
  EmitLoad(stage, tokens.ids, what, ctx.Positions(), -1);
  const bool plain =
      !ends.positions && !ends.norm_gamma;  // the lookup itself is the residual stream
  const std::string x_name = stage.NameOf(x);
  ViewId sum = plain && !ctx.sp() ? x : stage.Act(name + "emb.w", ctx.Rows() * h);
  stage.Emit(OpKind::kEmbed, {sum}, {tokens.ids, stage.Weight(ends.table)}, VocabAttrs(stage));
  const std::string shard_name = plain ? x_name : name + "emb.ws";
  if (ctx.whole_embedding()) {
    sum = stage.TakeSequence(sum, shard_name, h);
  } else if (ctx.strategy.tp > 1) {
    sum = stage.ReduceTensor(sum, shard_name, h);
  }
  if (ends.token_types) {
    EmitLoad(stage, tokens.types, LoadWhat::kTokenTypes,
             ctx.Positions() / (ctx.sp() ? ctx.strategy.tp : 1), ctx.sp() ? kAxisTp : -1);
    ir::Attrs attrs = TableAttrs(stage, ctx.ShardRows(), ctx.model.token_types, false);
    attrs.Set(Attr::kAcc, 1);
    stage.Emit(OpKind::kEmbed, {sum}, {tokens.types, stage.Weight(ends.token_types), sum}, attrs);
  }
  if (ends.positions) {
    const ViewId placed = ends.norm_gamma ? stage.Act(name + "emb.p", shard) : x;
    stage.Emit(OpKind::kAddPos, {placed}, {sum, stage.Weight(ends.positions)},
               PositionAttrs(stage));
    sum = placed;
  }
  if (ends.norm_gamma)
    EmitNorm(stage, name + "emb.n", sum, ends.norm_gamma, ends.norm_beta, ctx.ShardRows(), x);
  if (!drops) return;
  ir::Attrs attrs = PositionAttrs(stage);
  attrs.Set(Attr::kRate, ctx.work.dropout);
  attrs.Set(Attr::kSite, what == LoadWhat::kDecoderTokens ? 1 : 0);
  stage.Emit(OpKind::kDropout, {stream, stage.Make(name + "emb.mask", shard, ctx.mask)}, {x}, attrs)
      .group = kGroupData;
}

void EmbeddingBackward(StageBuilder& stage, const EndParams& ends, LoadWhat,
                       const std::string& name, ViewId dx, int wgrad_block, bool final_touch) {
  const LowerContext& ctx = stage.ctx();
  const int64_t h = ctx.model.hidden, shard = ctx.ShardRows() * h;
  const Tokens tokens = TokenBuffers(stage, ends, name);
  stage.Label(Phase::kBackward, Segment::kEmbedding);
  InWeightGradBlock(stage, wgrad_block, [&] {
    ViewId d = dx;
    if (ctx.work.dropout > 0) {
      d = stage.Act(name + "d.emb.x", shard);
      stage.Emit(OpKind::kDropoutBwd, {d}, {dx, stage.Make(name + "emb.mask", shard, ctx.mask)},
                 {{Attr::kElements, double(shard)}, {Attr::kRate, ctx.work.dropout}});
    }
    const ParamRef rest = ends.positions     ? ends.positions
                          : ends.token_types ? ends.token_types
                                             : ends.norm_gamma;
    if (rest) stage.BeginGrad(rest.unit);
    if (ends.norm_gamma) {
      const std::string source = ends.positions ? name + "emb.p"
                                 : ctx.sp()     ? name + "emb.ws"
                                                : name + "emb.w";
      const ViewId before = stage.Act(source, shard), dnormed = d;
      d = stage.Act(name + "d.emb.p", shard);
      EmitNormBackward(stage, name + "emb.n", dnormed, before, ends.norm_gamma, ctx.ShardRows(), d,
                       -1);
      EmitNormWeightGrad(stage, name + "emb.n", dnormed, before, ends.norm_gamma, ends.norm_beta,
                         ctx.ShardRows());
    }
    if (ends.positions) {
      const ViewId target = stage.Grad(ends.positions);
      stage.Emit(OpKind::kPosBwd, {target}, {target, d}, PositionAttrs(stage));
    }
    if (ends.token_types) {
      const ViewId target = stage.Grad(ends.token_types);
      stage.Emit(OpKind::kEmbedBwd, {target}, {target, tokens.types, d},
                 TableAttrs(stage, ctx.ShardRows(), ctx.model.token_types, false));
    }
    if (rest) stage.EndGrad(rest.unit, final_touch);
    const ViewId full = stage.GatherSequence(d, name + "d.emb.f", h);
    stage.BeginGrad(ends.table.unit);
    const ViewId target = stage.Grad(ends.table);
    stage.Emit(OpKind::kEmbedBwd, {target}, {target, tokens.ids, full}, VocabAttrs(stage));
    stage.EndGrad(ends.table.unit, final_touch);
  });
}

}  // namespace orrery
