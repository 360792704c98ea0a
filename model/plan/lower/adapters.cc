// SPDX-License-Identifier: Apache-2.0
// Products of adapters and their gradients.
#include "model/plan/lower/adapters.h"

#include <algorithm>

#include "model/plan/lower/ends.h"

namespace orrery {

using ir::Attr;
using ir::OpKind;
using ir::ViewId;

namespace {

// The input of a block's maps, of all rows.
constexpr const char* kWholeInput = "nw";

int64_t RankOf(const StageBuilder& stage) { return stage.ctx().work.lora.rank; }

// c [m, n] = scale op(a) op(b), products in the type of the activations.
struct Extents {
  int64_t m, n, k;
  bool ta = false, tb = false, acc = false;
};
void Product(StageBuilder& stage, ViewId c, ViewId a, ViewId b, const Extents& e, bool scaled) {
  stage.Matmul(c, a, b, e.m, e.n, e.k, e.ta, e.tb, e.acc);
  const double scale = stage.ctx().work.lora.scale();
  if (scaled && scale != 1) stage.LastOp().attrs.Set(Attr::kScale, scale);
}

// The message just emitted, if one was: frameworks cut no product of an adapter in pieces to hide it.
ViewId InOnePiece(StageBuilder& stage, ViewId result) {
  if (ir::Info(stage.LastOp().kind).op_class == ir::OpClass::kCollective)
    stage.LastOp().attrs.Set(Attr::kWhole, 1);
  return result;
}

void Accumulate(StageBuilder& stage, ViewId sum, ViewId term, int64_t elements) {
  stage.Emit(OpKind::kAdd, {sum}, {sum, term}, {{Attr::kElements, double(elements)}});
}

// Gradients of one map's A and B: dA += between' x, dB += dy' kept.
struct Grads {
  ViewId between, x, dy, kept;
  int64_t a_rows, in, b_rows, out;  // the whole one of the two sums over this rank's rows alone
  int64_t a_rank;                   // outputs of A on this rank
};
void WeightGrads(StageBuilder& stage, const Adapter& adapter, int block, const Grads& g) {
  const int64_t r = RankOf(stage);
  InWeightGradBlock(stage, block, [&] {
    Product(stage, stage.Grad(adapter.a), g.between, g.x,
            {g.a_rank, g.in, g.a_rows, true, false, true}, false);
    Product(stage, stage.Grad(adapter.b), g.dy, g.kept, {g.out, r, g.b_rows, true, false, true},
            false);
  });
}

// Of a map's output on this rank: per group of keys and values its queries, keys, values (ir/op.h, attention); pairs of gate
// and up.
std::vector<InAdapter> InAdaptersOf(const StageBuilder& stage, const Sublayer& sub) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const Lora& lora = stage.ctx().work.lora;
  const auto& [first, second, third] = sub.in_adapters;
  std::vector<InAdapter> all;
  if (lora.targets_map(sub.kind == SubKind::kAttention ? kLoraQkv : kLoraFc1)) {
    all = {{first, "", shape.rows, 0, shape.in_width, shape.in_width}};
  } else if (sub.kind == SubKind::kAttention) {
    const int64_t d = shape.head_dim, queries = shape.heads / shape.kv_heads * d;
    const int64_t of = queries + 2 * d, groups = shape.rows * shape.kv_heads;
    all = {{first, "q", groups, 0, queries, of},
           {second, "k", groups, queries, d, of},
           {third, "v", groups, queries + d, d, of}};
  } else {
    const int64_t pairs = shape.rows * shape.inner_width;
    all = {{first, "g", pairs, 0, 1, 2}, {second, "u", pairs, 1, 1, 2}};
  }
  std::erase_if(all, [](const InAdapter& in) { return !in.adapter; });
  return all;
}
std::string InName(const std::string& prefix, const Layer& layer, const Sublayer& sub,
                   const char* what, const InAdapter& in) {
  return Name(prefix, layer, sub, what) + in.tag;
}
ir::Attrs ColumnsOf(const InAdapter& in) {
  return {{Attr::kElements, double(in.groups * in.width)},
          {Attr::kRows, double(in.groups)},
          {Attr::kH, double(in.of)},
          {Attr::kColumns, double(in.first)}};
}
// Outputs of B for each row.
int64_t WidthOf(const InAdapter& in, int64_t rows) { return in.groups * in.width / rows; }

// What B reads, as the backward pass finds it.
ViewId InKept(StageBuilder& stage, const Layer& layer, const Sublayer& sub, const InAdapter& in,
              const std::string& prefix) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const bool gathered = stage.ctx().sp() || stage.ctx().cuts_adapters();
  return stage.Act(InName(prefix, layer, sub, gathered ? "inrf" : "inr", in),
                   shape.rows * RankOf(stage));
}
ViewId OutKept(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
               const std::string& prefix) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const bool scattered = stage.ctx().sp() && !stage.ctx().cuts_adapters();
  return stage.Act(Name(prefix, layer, sub, scattered ? "outrs" : "outr"),
                   (scattered ? shape.shard_rows : shape.rows) * RankOf(stage));
}

// Adapters cut by columns (AdapterSplit), as NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/peft/utils.py and NVIDIA/NeMo
// nemo/collections/llm/peft/lora.py have them.

// The last op left a part of a sum in x.
void SumParts(StageBuilder& stage, ViewId x) {
  stage.MarkPartial();
  stage.AllReduce(x, kGroupTp, stage.ctx().strategy.tp_async ? kTpStream : kCompute);
  (void)InOnePiece(stage, x);
}

// Columns of all tensor ranks side by side, and back.
ViewId GatherColumns(StageBuilder& stage, ViewId part, const std::string& name, int64_t rows,
                     int64_t width) {
  const int64_t tp = stage.ctx().strategy.tp;
  const ViewId arrived = stage.Act(name + "p", rows * width), whole = stage.Act(name, rows * width);
  stage.GatherTensor(arrived, part);
  (void)InOnePiece(stage, arrived);
  stage.Emit(OpKind::kRegroup, {whole}, {arrived}, SideBySide(rows, width / tp, tp, true));
  return whole;
}
ViewId TakeColumns(StageBuilder& stage, ViewId whole, const std::string& name, int64_t rows,
                   int64_t width) {
  const int64_t elements = rows * width / stage.ctx().strategy.tp;
  const ViewId part = stage.Act(name, elements);
  stage.Emit(
      OpKind::kSlice, {part}, {whole},
      {{Attr::kElements, double(elements)}, {Attr::kAxis, kAxisTp}, {Attr::kRows, double(rows)}});
  return part;
}

// With sequence parallelism ranks exchange columns for rows: one message in place of a gather of which most is dropped.
bool Exchanges(const StageBuilder& stage) {
  return stage.ctx().sp() && stage.ctx().strategy.adapter_split == AdapterSplit::kColumnsA2a;
}

// This rank's rows of all columns of B's output, from its columns of all rows.
ViewId RowsOfOutput(StageBuilder& stage, ViewId part, const std::string& name, int64_t width) {
  const int64_t tp = stage.ctx().strategy.tp, rows = stage.ctx().Rows();
  if (!Exchanges(stage))
    return stage.TakeSequence(GatherColumns(stage, part, name, rows, width), name + "s", width);
  const int64_t own = stage.ctx().ShardRows();
  const ViewId arrived = stage.Act(name + "p", own * width), whole = stage.Act(name, own * width);
  stage.Communicate(OpKind::kAllToAll, arrived, part, kGroupTp).attrs.Set(Attr::kWhole, 1);
  stage.Emit(OpKind::kRegroup, {whole}, {arrived}, SideBySide(own, width / tp, tp, true));
  return whole;
}
ViewId ColumnsOfGradient(StageBuilder& stage, ViewId own, const std::string& name, int64_t width) {
  const int64_t tp = stage.ctx().strategy.tp, rows = stage.ctx().Rows();
  if (!Exchanges(stage))
    return TakeColumns(stage, InOnePiece(stage, stage.GatherSequence(own, name + "f", width)), name,
                       rows, width);
  const int64_t shard = stage.ctx().ShardRows();
  const ViewId apart = stage.Act(name + "p", shard * width);
  const ViewId part = stage.Act(name, rows * width / tp);
  stage.Emit(OpKind::kRegroup, {apart}, {own}, SideBySide(shard, width / tp, tp, false));
  stage.Communicate(OpKind::kAllToAll, part, apart, kGroupTp).attrs.Set(Attr::kWhole, 1);
  return part;
}

// A's outputs on this rank of all rows, gathered to what B reads.
ViewId InColumnsDown(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                     const InAdapter& in, const std::string& prefix, ViewId x) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const int64_t r = RankOf(stage), own = r / stage.ctx().strategy.tp;
  if (stage.ctx().adapters_gather())
    x = InOnePiece(stage,
                   stage.GatherSequence(x, InName(prefix, layer, sub, "inx", in), shape.hidden));
  const ViewId down = stage.Act(InName(prefix, layer, sub, "inr", in), shape.rows * own);
  Product(stage, down, x, stage.Weight(in.adapter.a), {shape.rows, own, shape.hidden, false, true},
          true);
  return GatherColumns(stage, down, InName(prefix, layer, sub, "inrf", in), shape.rows, r);
}

// What B reads, of all rows.
ViewId InDown(StageBuilder& stage, const Layer& layer, const Sublayer& sub, const InAdapter& in,
              const std::string& prefix, ViewId x) {
  if (stage.ctx().cuts_adapters()) return InColumnsDown(stage, layer, sub, in, prefix, x);
  const SublayerShape shape = ShapeOf(stage, sub);
  const int64_t r = RankOf(stage);
  const ViewId down = stage.Act(InName(prefix, layer, sub, "inr", in), shape.shard_rows * r);
  Product(stage, down, x, stage.Weight(in.adapter.a),
          {shape.shard_rows, r, shape.hidden, false, true}, true);
  return InOnePiece(stage, stage.GatherSequence(down, InName(prefix, layer, sub, "inrf", in), r));
}

}  // namespace

std::vector<ParamDecl> AdapterDecls(const LowerContext& ctx, const std::string& base, int64_t out,
                                    int64_t in, int shard_dim) {
  const int64_t r = ctx.work.lora.rank;
  const bool cut = ctx.cuts_adapters();
  ParamDecl a{base + ".A", {r, in}, shard_dim == 1 ? 1 : cut ? 0 : -1};
  ParamDecl b{base + ".B", {out, r}, shard_dim == 0 || cut ? 0 : -1, ctx.options.adapter_init};
  a.adapter = b.adapter = true;
  a.partial = a.shard_dim < 0;
  b.partial = b.shard_dim < 0;
  return {a, b};
}

void InAdapterForward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                      const std::string& prefix, ViewId x, ViewId y) {
  const SublayerShape shape = ShapeOf(stage, sub);
  for (const InAdapter& in : InAdaptersOf(stage, sub)) {
    const ViewId kept = InDown(stage, layer, sub, in, prefix, x);
    const int64_t width = WidthOf(in, shape.rows);
    const ViewId up = stage.Act(InName(prefix, layer, sub, "inu", in), shape.rows * width);
    Product(stage, up, kept, stage.Weight(in.adapter.b),
            {shape.rows, width, RankOf(stage), false, true}, false);
    if (in.whole()) {
      Accumulate(stage, y, up, shape.rows * width);
    } else {
      stage.Emit(OpKind::kAdd, {y}, {y, up}, ColumnsOf(in));
    }
  }
}

void OutAdapterDown(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                    const std::string& prefix) {
  if (!sub.out_adapter) return;
  const SublayerShape shape = ShapeOf(stage, sub);
  const int64_t r = RankOf(stage);
  const ViewId down = stage.Act(Name(prefix, layer, sub, "outr"), shape.rows * r);
  Product(stage, down, InnerSource(stage, layer, sub, prefix).x, stage.Weight(sub.out_adapter.a),
          {shape.rows, r, shape.inner_width, false, true}, true);
  if (stage.ctx().cuts_adapters()) {
    SumParts(stage, down);
  } else if (stage.ctx().sp()) {
    (void)InOnePiece(stage, stage.ReduceTensor(down, Name(prefix, layer, sub, "outrs"), r));
  }
}

void OutAdapterUp(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                  const std::string& prefix, ViewId out, bool summed) {
  if (!sub.out_adapter || summed != (stage.ctx().sp() || stage.ctx().cuts_adapters())) return;
  const SublayerShape shape = ShapeOf(stage, sub);
  const int64_t elements = shape.shard_rows * shape.hidden;
  if (stage.ctx().cuts_adapters()) {
    const int64_t width = shape.hidden / stage.ctx().strategy.tp;
    const ViewId part = stage.Act(Name(prefix, layer, sub, "outc"), shape.rows * width);
    Product(stage, part, OutKept(stage, layer, sub, prefix), stage.Weight(sub.out_adapter.b),
            {shape.rows, width, RankOf(stage), false, true}, false);
    Accumulate(stage, out,
               RowsOfOutput(stage, part, Name(prefix, layer, sub, "outu"), shape.hidden), elements);
    return;
  }
  const ViewId up = stage.Act(Name(prefix, layer, sub, "outu"), elements);
  Product(stage, up, OutKept(stage, layer, sub, prefix), stage.Weight(sub.out_adapter.b),
          {shape.shard_rows, shape.hidden, RankOf(stage), false, true}, false);
  if (!stage.ctx().sp()) stage.MarkPartial();
  Accumulate(stage, out, up, elements);
}

ViewId InAdapters::Input(const Sublayer& sub, const InAdapter& in, const Sublayer& owner,
                         ViewId own) {
  const LowerContext& ctx = stage_.ctx();
  if (!ctx.cuts_adapters() || !ctx.sp()) return own;
  const std::string name = ctx.adapters_gather() ? InName(saved_.prefix, layer_, sub, "inx", in)
                                                 : Name(saved_.prefix, layer_, owner, kWholeInput);
  return stage_.Act(name, ctx.Rows() * ctx.model.hidden);
}

void InAdapters::Backward(const Sublayer& sub, const Sublayer& owner, ViewId own, ViewId din) {
  for (const InAdapter& in : InAdaptersOf(stage_, sub)) {
    ViewId part = din;
    if (!in.whole()) {
      part = stage_.Act(InName("d.", layer_, sub, "inu", in), in.groups * in.width);
      stage_.Emit(OpKind::kSlice, {part}, {din}, ColumnsOf(in));
    }
    BackwardOf(in, sub, owner, own, part);
  }
}

void InAdapters::BackwardOf(const InAdapter& in, const Sublayer& sub, const Sublayer& owner,
                            ViewId own, ViewId din) {
  const ViewId x = Input(sub, in, owner, own);
  const SublayerShape shape = ShapeOf(stage_, sub);
  const int64_t r = RankOf(stage_), width = WidthOf(in, shape.rows);
  const ViewId all = stage_.Act(InName("d.", layer_, sub, "inr", in), shape.rows * r);
  Product(stage_, all, din, stage_.Weight(in.adapter.b), {shape.rows, r, width}, true);
  ViewId between = all;
  const bool cuts = stage_.ctx().cuts_adapters();
  if (cuts) {
    SumParts(stage_, all);
    between = TakeColumns(stage_, all, InName("d.", layer_, sub, "inrc", in), shape.rows, r);
  } else if (stage_.ctx().sp()) {
    between =
        InOnePiece(stage_, stage_.ReduceTensor(all, InName("d.", layer_, sub, "inrs", in), r));
  }
  WeightGrads(stage_, in.adapter, saved_.wgrad_block,
              {between, x, din, InKept(stage_, layer_, sub, in, saved_.prefix),
               cuts ? shape.rows : shape.shard_rows, shape.hidden, shape.rows, width,
               cuts ? r / stage_.ctx().strategy.tp : r});
  between_.push_back({&sub, in, between});
}

void InAdapters::AddTo(ViewId dx, bool summed) {
  const LowerContext& ctx = stage_.ctx();
  const bool cuts = ctx.cuts_adapters();
  if (summed != (cuts ? !ctx.sp() || ctx.adapters_gather() : ctx.sp())) return;
  for (const auto& [sub, in, between] : between_) {
    const SublayerShape shape = ShapeOf(stage_, *sub);
    const int64_t rows = cuts ? shape.rows : shape.shard_rows;
    ViewId term = stage_.Act(InName("d.", layer_, *sub, "inx", in), rows * shape.hidden);
    Product(stage_, term, between, stage_.Weight(in.adapter.a),
            {rows, shape.hidden, cuts ? RankOf(stage_) / ctx.strategy.tp : RankOf(stage_)}, false);
    if (cuts && summed) {
      term = InOnePiece(
          stage_, stage_.ReduceTensor(term, InName("d.", layer_, *sub, "inxs", in), shape.hidden));
    } else if (!summed) {
      stage_.MarkPartial();
    }
    Accumulate(stage_, dx, term, (summed ? shape.shard_rows : rows) * shape.hidden);
  }
  between_.clear();
}

CastSource AdapterInput(StageBuilder& stage, const Layer& layer, const Branches& block,
                        const Sublayer& owner, const std::string& prefix, CastSource source) {
  const LowerContext& ctx = stage.ctx();
  if (!ctx.cuts_adapters() || !ctx.sp() || ctx.adapters_gather() || !TakesInAdapters(block))
    return source;
  source.x = stage.GatherSequence(source.x, Name(prefix, layer, owner, kWholeInput), source.width);
  source.rows = ctx.Rows();
  source.part = false;
  source.from = ir::CastFrom::kElsewhere;
  return source;
}

bool TakesInAdapters(const Branches& block) {
  return std::ranges::any_of(block, &Sublayer::TakesIn);
}

void OutAdapterBackward(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                        const Saved& saved, ViewId d, ViewId dinner) {
  if (!sub.out_adapter) return;
  const SublayerShape shape = ShapeOf(stage, sub);
  const int64_t r = RankOf(stage), elements = shape.rows * shape.inner_width;
  const bool cuts = stage.ctx().cuts_adapters();
  const int64_t rows = cuts ? shape.rows : shape.shard_rows;
  const int64_t width = shape.hidden / (cuts ? stage.ctx().strategy.tp : 1);
  if (cuts) d = ColumnsOfGradient(stage, d, Name("d.", layer, sub, "outc"), shape.hidden);
  const ViewId part = stage.Act(Name("d.", layer, sub, "outr"), rows * r);
  Product(stage, part, d, stage.Weight(sub.out_adapter.b), {rows, r, width}, true);
  ViewId between = part;
  if (cuts) {
    SumParts(stage, part);
  } else {
    between = InOnePiece(stage, stage.GatherSequence(part, Name("d.", layer, sub, "outrf"), r));
  }
  WeightGrads(
      stage, sub.out_adapter, saved.wgrad_block,
      {between, InnerSource(stage, layer, sub, saved.prefix).x, d,
       OutKept(stage, layer, sub, saved.prefix), shape.rows, shape.inner_width, rows, width, r});
  if (dinner < 0) return;
  const ViewId term = stage.Act(Name("d.", layer, sub, "outx"), elements);
  Product(stage, term, between, stage.Weight(sub.out_adapter.a), {shape.rows, shape.inner_width, r},
          false);
  Accumulate(stage, dinner, term, elements);
}

bool TrainsBefore(const StageBuilder& stage, const Layer& layer, std::size_t block) {
  if (stage.ctx().NeedsStreamGrad(layer.index)) return true;
  return std::any_of(layer.blocks.begin(), layer.blocks.begin() + static_cast<int64_t>(block),
                     [](const Branches& branches) {
                       return std::ranges::any_of(branches, [](const Sublayer& sub) {
                         return sub.TakesIn() || sub.out_adapter;
                       });
                     });
}

}  // namespace orrery
