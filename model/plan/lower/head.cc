// SPDX-License-Identifier: Apache-2.0
// Final norm, masked-LM transform, vocabulary-parallel logits and cross-entropy with their gradients.
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

namespace {

bool HasMaskedHead(const LowerContext& ctx) { return ctx.model.family == Family::kEncoder; }
bool HasFinalNorm(const LowerContext& ctx) { return !ctx.model.post_norm; }

void DeclareNormPair(const ModelSpec& model, const std::string& name,
                     std::vector<ParamDecl>& decls) {
  decls.push_back({name + ".g", {model.hidden}, -1, Init::kOnes, false});
  if (model.norm == Norm::kLayerNorm)
    decls.push_back({name + ".b", {model.hidden}, -1, Init::kZeros, false});
}

ParamRef Second(const std::vector<ParamRef>& refs, std::size_t at) {
  return at < refs.size() ? refs[at] : ParamRef{};
}

void AddMaskedTransform(StageBuilder& stage, EndParams& ends) {
  const ModelSpec& model = stage.ctx().model;
  const int64_t h = model.hidden, vocab = PaddedVocab(model, stage.ctx().strategy.tp);
  std::vector<ParamDecl> decls{{"mlm.bias", {vocab}, 0, Init::kZeros, false, model.vocab},
                               {"mlm.w", {h, h}, -1},
                               {"mlm.b", {h}, -1, Init::kZeros, false}};
  DeclareNormPair(model, "mlm.ln", decls);
  const auto refs = stage.AddUnit("mlm", decls, false, false);
  ends.vocab_bias = refs[0];
  ends.dense_w = refs[1];
  ends.dense_b = refs[2];
  ends.dense_gamma = refs[3];
  ends.dense_beta = Second(refs, 4);
}

// Logits, loss and the gradient of the logits' input, for `rows` rows of `y` (full width, all of them on each rank).
struct Logits {
  int64_t rows;
  LoadWhat labels;
  int64_t positions;  // label positions per sample on this rank
};

// The product just emitted is one with the output matrix.
void ScaleAsLogits(StageBuilder& stage) {
  const double divisor = stage.ctx().model.logit_scale;
  if (divisor != 1) stage.LastOp().attrs.Set(Attr::kScale, 1 / divisor);
}

// Of the output matrix that a rank holds.
int64_t HeadColumns(const LowerContext& ctx) {
  const int64_t vocab = PaddedVocab(ctx.model, ctx.strategy.tp);
  return ctx.whole_head() ? vocab : vocab / ctx.strategy.tp;
}

// In place of the logits, unless a soft cap's gradient reads those, or their gathered copy took their place.
ViewId LogitsGrad(StageBuilder& stage, int64_t rows) {
  const LowerContext& ctx = stage.ctx();
  const int64_t vl = HeadColumns(ctx);
  const bool gathers = ctx.strategy.whole_logits && ctx.strategy.tp > 1 && !ctx.whole_head();
  return stage.Act(ctx.model.logit_cap > 0 || gathers ? "head.dlogits" : "head.logits", rows * vl);
}

// Logits as the loss reads them: this rank's columns, or those of all tensor ranks side by side.
struct LossView {
  ViewId logits, grad;
  int64_t columns;
  bool whole;  // every rank has the loss of all columns
};

// The parts of tensor ranks arrive one behind the other and are put side by side.
LossView GatherLogits(StageBuilder& stage, int64_t rows, ViewId part, ViewId part_grad) {
  const LowerContext& ctx = stage.ctx();
  const int64_t tp = ctx.strategy.tp, columns = PaddedVocab(ctx.model, ctx.strategy.tp);
  if (ctx.whole_head()) return {part, part_grad, columns, true};
  if (!ctx.strategy.whole_logits || tp == 1) return {part, part_grad, columns / tp, false};
  const ViewId arrived = stage.Act("head.logits.parts", rows * columns);
  const ViewId whole = stage.Act("head.logits.all", rows * columns);
  stage.GatherTensor(arrived, part);
  stage.Emit(OpKind::kRegroup, {whole}, {arrived}, SideBySide(rows, columns / tp, tp, true));
  return {whole, whole, columns, true};
}

// This rank's columns of the gradient of whole logits.
void TakeLogitsGrad(StageBuilder& stage, int64_t rows, const LossView& view, ViewId part_grad) {
  const int64_t tp = stage.ctx().strategy.tp;
  if (stage.ctx().whole_head()) return;
  const ViewId apart = stage.Act("d.head.logits.parts", rows * view.columns);
  stage.Emit(OpKind::kRegroup, {apart}, {view.grad},
             SideBySide(rows, view.columns / tp, tp, false));
  stage.Emit(OpKind::kSlice, {part_grad}, {apart},
             {{Attr::kElements, double(rows * view.columns / tp)}, {Attr::kAxis, kAxisTp}});
}

// Returns the gradient of y in `dy`, a partial sum over the tensor axis unless the head is whole.
void LossAndInputGrad(StageBuilder& stage, const EndParams& ends, const Logits& shape, ViewId y,
                      ViewId dy) {
  const LowerContext& ctx = stage.ctx();
  const int64_t h = ctx.model.hidden, vl = HeadColumns(ctx);
  const ViewId labels = stage.Make("head.labels", shape.rows, ir::Dtype::kI32);
  const ViewId logits = stage.Act("head.logits", shape.rows * vl);
  const ViewId maxima = stage.Make("head.max", shape.rows, ctx.full);
  const ViewId sums = stage.Make("head.sum", 2 * shape.rows, ctx.full);
  stage.SetPhase(Phase::kInput);
  ir::Op& load = stage.Emit(OpKind::kLoad, {labels}, {},
                            {{Attr::kWhat, double(static_cast<int>(shape.labels))},
                             {Attr::kBatch, double(ctx.batch())},
                             {Attr::kSeq, double(shape.positions)},
                             {Attr::kV, double(ctx.work.seq_len)}});
  SetPositions(stage, load.attrs);
  load.group = kGroupData;
  stage.SetPhase(Phase::kForward);
  const ViewId bias = ends.vocab_bias ? stage.Weight(ends.vocab_bias) : -1;
  stage.Matmul(logits, y, stage.Weight(ends.lm_table), shape.rows, vl, h, false, true, false, bias);
  ScaleAsLogits(stage);
  const ir::Attrs cap{{Attr::kElements, double(shape.rows * vl)},
                      {Attr::kCap, ctx.model.logit_cap}};
  if (ctx.model.logit_cap > 0) stage.Emit(OpKind::kTanh, {logits}, {logits}, cap);
  const ViewId dlogits = LogitsGrad(stage, shape.rows);
  const LossView view = GatherLogits(stage, shape.rows, logits, dlogits);
  const ir::Attrs attrs{{Attr::kRows, double(shape.rows)},
                        {Attr::kVl, double(view.columns)},
                        {Attr::kV, double(ctx.model.vocab)},
                        {Attr::kAxis, ctx.strategy.tp > 1 && !view.whole ? kAxisTp : -1}};
  const auto add_up = [&](ViewId x, int reduce_op) {
    if (view.whole) return;
    stage.MarkPartial();
    stage.AllReduce(x, kGroupTp, kCompute, reduce_op);
  };
  stage.Emit(OpKind::kXentMax, {maxima}, {view.logits}, attrs);
  add_up(maxima, 1);
  stage.Emit(OpKind::kXentSum, {sums}, {view.logits, maxima, labels}, attrs);
  add_up(sums, 0);
  stage.SetPhase(Phase::kBackward);
  ir::Attrs grad = attrs;
  grad.Set(Attr::kScale,
           1.0 / (double(ctx.work.global_batch) * double(shape.positions * ctx.strategy.cp)));
  std::vector<ViewId> in{view.logits, maxima, sums, labels, stage.loss()};
  if (stage.loss_scale() >= 0) in.push_back(stage.loss_scale());
  stage.Emit(OpKind::kXentGrad, {view.grad, stage.loss()}, in, grad);
  if (ctx.strategy.free_head) stage.FreeWeight(ends.lm_table);
  if (view.whole) TakeLogitsGrad(stage, shape.rows, view, dlogits);
  if (ctx.model.logit_cap > 0) stage.Emit(OpKind::kTanhBwd, {dlogits}, {dlogits, logits}, cap);
  stage.Matmul(dy, dlogits, stage.Weight(ends.lm_table), shape.rows, h, vl, false, false);
  ScaleAsLogits(stage);
}

void LogitsWeightGrad(StageBuilder& stage, const EndParams& ends, int64_t rows, ViewId y) {
  const LowerContext& ctx = stage.ctx();
  const int64_t h = ctx.model.hidden, vl = HeadColumns(ctx);
  const ViewId dlogits = LogitsGrad(stage, rows);
  const auto bias_grad = [&] {
    const ViewId target = stage.Grad(ends.vocab_bias);
    stage.Emit(OpKind::kColSum, {target}, {target, dlogits},
               {{Attr::kRows, double(rows)}, {Attr::kH, double(vl)}});
  };
  if (ctx.frozen()) return;
  const bool same_unit = ends.vocab_bias && ends.vocab_bias.unit == ends.lm_table.unit;
  stage.SetPhase(Phase::kWeightGrad);
  stage.BeginGrad(ends.lm_table.unit);
  stage.Matmul(stage.Grad(ends.lm_table), dlogits, y, vl, h, rows, true, false, true);
  ScaleAsLogits(stage);
  if (same_unit) bias_grad();
  stage.EndGrad(ends.lm_table.unit, !ends.table_shared_with_head);
  if (ends.vocab_bias && !same_unit) bias_grad();
  stage.SetPhase(Phase::kBackward);
}

// Masked positions only: gather rows, dense + gelu + norm, logits; back to a scattered gradient of the stream.
void MaskedHead(StageBuilder& stage, const EndParams& ends, ViewId full, ViewId dx) {
  const LowerContext& ctx = stage.ctx();
  const int64_t h = ctx.model.hidden;
  const int64_t masked =
      ctx.work.masked_positions > 0 ? ctx.work.masked_positions : ctx.work.seq_len;
  const int64_t rows = masked * ctx.batch();
  const ViewId where = stage.Make("head.pos", rows, ir::Dtype::kI32);
  const ViewId picked = stage.Act("head.pick", rows * h), dense = stage.Act("head.dense", rows * h);
  const ViewId active = stage.Act("head.act", rows * h);
  const ir::Attrs elements{{Attr::kElements, double(rows * h)}};
  stage.SetPhase(Phase::kInput);
  stage
      .Emit(OpKind::kLoad, {where}, {},
            {{Attr::kWhat, double(static_cast<int>(LoadWhat::kMaskedPositions))},
             {Attr::kBatch, double(ctx.batch())},
             {Attr::kSeq, double(masked)},
             {Attr::kV, double(ctx.work.seq_len)}})
      .group = kGroupData;
  stage.SetPhase(Phase::kForward);
  ir::Attrs move{
      {Attr::kRows, double(rows)}, {Attr::kH, double(h)}, {Attr::kBatch, double(ctx.batch())}};
  stage.Emit(OpKind::kGatherRows, {picked}, {full, where}, move);
  const ViewId weight = stage.Weight(ends.dense_w);
  stage.Matmul(dense, picked, weight, rows, h, h, false, true, false, stage.Weight(ends.dense_b));
  stage.Emit(OpKind::kGelu, {active}, {dense}, elements);
  const ViewId y = EmitNorm(stage, "head.n", active, ends.dense_gamma, ends.dense_beta, rows, -1);
  stage.BeginGrad(ends.dense_w.unit);
  const ViewId dy = stage.Act("d.head.y", rows * h);
  LossAndInputGrad(stage, ends, {rows, LoadWhat::kMaskedLabels, masked}, y, dy);
  stage.MarkPartial();
  stage.AllReduce(dy, kGroupTp, kCompute);
  LogitsWeightGrad(stage, ends, rows, y);
  const ViewId dactive = stage.Act("d.head.act", rows * h),
               ddense = stage.Act("d.head.dense", rows * h);
  EmitNormWeightGrad(stage, "head.n", dy, active, ends.dense_gamma, ends.dense_beta, rows);
  EmitNormBackward(stage, "head.n", dy, active, ends.dense_gamma, rows, dactive, -1);
  stage.Emit(OpKind::kGeluBwd, {ddense}, {dactive, dense}, elements);
  const ViewId bias = stage.Grad(ends.dense_b);
  stage.Emit(OpKind::kColSum, {bias}, {bias, ddense},
             {{Attr::kRows, double(rows)}, {Attr::kH, double(h)}});
  stage.Matmul(stage.Grad(ends.dense_w), ddense, picked, h, h, rows, true, false, true);
  stage.EndGrad(ends.dense_w.unit, true);
  const ViewId dpicked = stage.Act("d.head.pick", rows * h);
  stage.Matmul(dpicked, ddense, stage.Weight(ends.dense_w), rows, h, h, false, false);
  move.Set(Attr::kElements, double(ctx.ShardRows()));
  move.Set(Attr::kAxis, ctx.sp() ? kAxisTp : -1);
  stage.Emit(OpKind::kScatterRows, {dx}, {dpicked, where}, move);
}

}  // namespace

void AddHeadUnits(StageBuilder& stage, EndParams& ends) {
  const LowerContext& ctx = stage.ctx();
  if (HasFinalNorm(ctx)) {
    std::vector<ParamDecl> decls;
    DeclareNormPair(ctx.model, "fin", decls);
    const auto refs = stage.AddUnit("fin", decls, ctx.sp(), false);
    ends.final_gamma = refs[0];
    ends.final_beta = Second(refs, 1);
  }
  if (HasMaskedHead(ctx)) AddMaskedTransform(stage, ends);
  if (ctx.model.tied_embeddings && !ctx.tied_across_stages) {
    ends.lm_table = ends.table;
    ends.table_shared_with_head = true;
    stage.SetShared(ends.table.unit);
    return;
  }
  const ParamDecl table{ctx.tied_across_stages ? "wte.w" : "wlm.w",
                        {PaddedVocab(ctx.model, ctx.strategy.tp), ctx.model.hidden},
                        ctx.whole_head() ? -1 : 0,
                        Init::kNormal,
                        true,
                        ctx.model.vocab,
                        ctx.tied_across_stages ? 0 : -1};
  std::vector<ParamDecl> decls{table};
  if (ctx.model.head_bias && !HasMaskedHead(ctx)) {
    decls.push_back(
        {"wlm.b", {table.shape[0]}, table.shard_dim, Init::kZeros, false, ctx.model.vocab});
  }
  const auto refs = stage.AddUnit(ctx.tied_across_stages ? "wte" : "wlm", decls, false, false);
  ends.lm_table = refs[0];
  if (refs.size() > 1) ends.vocab_bias = refs[1];
  if (ctx.tied_across_stages) stage.SetNormWeightZero(ends.lm_table.unit);
}

void HeadForwardBackward(StageBuilder& stage, const EndParams& ends, ViewId x, ViewId dx) {
  const LowerContext& ctx = stage.ctx();
  const int64_t h = ctx.model.hidden, shard_rows = ctx.ShardRows();
  stage.Label(Phase::kForward, Segment::kHead);
  const bool norm = HasFinalNorm(ctx);
  const ViewId y =
      norm ? EmitNorm(stage, "fin.n", x, ends.final_gamma, ends.final_beta, shard_rows, -1) : x;
  const ViewId full = stage.GatherSequence(y, "fin.nf", h);
  ViewId dy = norm ? stage.Act("d.fin.n", shard_rows * h) : dx;
  if (HasMaskedHead(ctx)) {
    MaskedHead(stage, ends, full, dy);
  } else {
    const LoadWhat labels =
        ctx.model.family == Family::kEncoderDecoder ? LoadWhat::kDecoderLabels : LoadWhat::kLabels;
    const ViewId dfull = norm || ctx.sp() ? stage.Act("d.head.y", ctx.Rows() * h) : dx;
    LossAndInputGrad(stage, ends, {ctx.Rows(), labels, ctx.Positions()}, full, dfull);
    const std::string shard_name = norm ? "d.fin.ns" : stage.NameOf(dx);
    dy = ctx.whole_head() ? stage.TakeSequence(dfull, shard_name, h)
                          : stage.ReduceTensor(dfull, shard_name, h);
    LogitsWeightGrad(stage, ends, ctx.Rows(), full);
  }
  if (!norm) return;
  stage.SetPhase(Phase::kWeightGrad);
  stage.BeginGrad(ends.final_gamma.unit);
  EmitNormWeightGrad(stage, "fin.n", dy, x, ends.final_gamma, ends.final_beta, shard_rows);
  stage.EndGrad(ends.final_gamma.unit, true);
  stage.SetPhase(Phase::kBackward);
  EmitNormBackward(stage, "fin.n", dy, x, ends.final_gamma, shard_rows, dx, -1);
}

}  // namespace orrery
