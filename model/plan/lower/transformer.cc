// SPDX-License-Identifier: Apache-2.0
// Forward and backward of residual blocks, with tensor and sequence parallelism and recompute.
#include "model/plan/lower/transformer.h"

#include <algorithm>
#include <optional>

#include "model/plan/lower/adapters.h"
#include "model/plan/lower/block_input.h"
#include "model/plan/lower/inner_products.h"

namespace orrery {

using ir::Attr;
using ir::OpKind;
using ir::Phase;
using ir::ViewId;

namespace {

// The product just emitted is one with an output matrix.
void ScaleAsResidual(StageBuilder& stage) {
  const double scale = stage.ctx().model.residual_scale;
  if (scale != 1) stage.LastOp().attrs.Set(Attr::kScale, scale);
}

template <class Emit>
void InPhase(StageBuilder& stage, Phase phase, const Emit& emit) {
  const Phase before = stage.phase();
  stage.SetPhase(phase);
  emit();
  stage.SetPhase(before);
}

ViewId OutputMask(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                  const std::string& prefix) {
  const SublayerShape shape = ShapeOf(stage, sub);
  return stage.Make(Name(prefix, layer, sub, "omask"), shape.shard_rows * shape.hidden,
                    stage.ctx().mask);
}

// The output projections of all branches add up in front of one reduction.
void BlockForward(StageBuilder& stage, const Layer& layer, const Branches& block,
                  const std::string& prefix, ViewId x, ViewId y, ViewId memory, bool stop_early) {
  const Sublayer& sub = block.front();
  const SublayerShape shape = ShapeOf(stage, sub);
  const bool post = stage.ctx().model.post_norm;
  Factor normed;
  ViewId out = -1, own = -1;  // own: what adapters read
  std::vector<ViewId> biases;
  for (const Sublayer& branch : block) {
    const bool first = &branch == &sub;
    if (first || branch.norm_gamma) {
      own = EmitInputNorm(stage, layer, branch, prefix, x);
      const CastSource part = InputSource(stage, layer, block, branch, prefix, own);
      const CastSource source = AdapterInput(stage, layer, block, branch, prefix, part);
      own = source.x;
      const CastNeed need = NeedOf(stage, layer, source.again);
      normed = GatherFactor(stage, CastTensor(stage, source, need), source,
                            Name(prefix, layer, branch, "nf"),
                            {true, need.across && KeepsGathers(stage)});
    }
    InnerForward(stage, layer, branch, prefix, normed, own, memory);
    if (stop_early) {
      if (!stage.ctx().frozen())
        (void)CastTensor(stage, InnerSource(stage, layer, branch, prefix), {false, true});
      OutAdapterDown(stage, layer, branch, prefix);
      continue;
    }
    const CastSource source = InnerSource(stage, layer, branch, prefix);
    const Factor act = CastTensor(stage, source, NeedOf(stage, layer, source.again));
    if (first) out = stage.Act(Name(prefix, layer, sub, "out"), shape.rows * shape.hidden);
    const int64_t inner = ShapeOf(stage, branch).inner_width;
    Multiply(stage, out, act, WeightFactor(stage, branch.out_w, shape.hidden, inner),
             {shape.rows, shape.hidden, inner, false, true, !first});
    ScaleAsResidual(stage);
    if (&branch != &block.back() || branch.out_adapter) stage.MarkPartial();
    OutAdapterDown(stage, layer, branch, prefix);
    OutAdapterUp(stage, layer, branch, prefix, out, false);
    if (branch.out_b) biases.push_back(stage.Weight(branch.out_b));
  }
  if (stop_early) return;
  if (!block.back().out_adapter) stage.MarkPartial();
  out = stage.ReduceGathered(out, Name(prefix, layer, sub, "outs"), shape.hidden);
  for (const Sublayer& branch : block) OutAdapterUp(stage, layer, branch, prefix, out, true);
  if (sub.out_gamma) {
    out = EmitNorm(stage, Name(prefix, layer, sub, "on"), out, sub.out_gamma, sub.out_beta,
                   shape.shard_rows, -1);
  }
  const ViewId sum =
      post ? stage.Act(Name(prefix, layer, sub, "p"), shape.shard_rows * shape.hidden) : y;
  std::vector<ViewId> in{x, out};
  in.insert(in.end(), biases.begin(), biases.end());
  ir::Attrs attrs{{Attr::kRows, double(shape.shard_rows)},
                  {Attr::kH, double(shape.hidden)},
                  {Attr::kBias, double(biases.size())}};
  SetDropout(stage, layer, sub, false, attrs);
  std::vector<ViewId> results{sum};
  if (stage.ctx().work.dropout > 0) results.push_back(OutputMask(stage, layer, sub, prefix));
  stage.Emit(OpKind::kBiasResidual, results, in, attrs).group = DropoutGroup(stage, false);
  if (post) {
    EmitNorm(stage, Name(prefix, layer, sub, "n"), sum, sub.norm_gamma, sub.norm_beta,
             shape.shard_rows, y);
  }
}

// What the backward pass of one block hands from op to op.
struct LayerChain {
  StageBuilder& stage;
  const Layer& layer;
  const Saved& saved;
  int64_t rows, hidden;  // of this rank's part of the residual stream

  ViewId Act(const char* what, const Sublayer& sub) {
    return stage.Act(Name("d.", layer, sub, what), rows * hidden);
  }
  // Through a norm of `x` named `name`; `residual` is added unless it is -1.
  void Norm(const std::string& name, ViewId dy, ViewId x, ParamRef gamma, ParamRef beta, ViewId dx,
            ViewId residual) {
    InWeightGradBlock(stage, saved.wgrad_block,
                      [&] { EmitNormWeightGrad(stage, name, dy, x, gamma, beta, rows); });
    EmitNormBackward(stage, name, dy, x, gamma, rows, dx, residual);
  }
};

// From the gradient of the block's output to that of the sum of its branches' outputs, in front of norm and dropout.
// `residual`: what the residual stream takes on.
ViewId OutputBackward(LayerChain& chain, const Sublayer& sub, ViewId dy, ViewId* residual) {
  StageBuilder& stage = chain.stage;
  const int64_t elements = chain.rows * chain.hidden;
  ViewId d = dy;
  if (stage.ctx().model.post_norm) {
    const std::string norm = Name(chain.saved.prefix, chain.layer, sub, "n");
    const ViewId sum = stage.Act(Name(chain.saved.prefix, chain.layer, sub, "p"), elements);
    d = chain.Act("p", sub);
    EmitNormBackward(stage, norm, dy, sum, sub.norm_gamma, chain.rows, d, -1);
    InWeightGradBlock(stage, chain.saved.wgrad_block, [&] {
      EmitNormWeightGrad(stage, norm, dy, sum, sub.norm_gamma, sub.norm_beta, chain.rows);
    });
  }
  *residual = d;
  if (stage.ctx().work.dropout > 0) {
    d = chain.Act("drop", sub);
    stage.Emit(OpKind::kDropoutBwd, {d},
               {*residual, OutputMask(stage, chain.layer, sub, chain.saved.prefix)},
               {{Attr::kElements, double(elements)}, {Attr::kRate, stage.ctx().work.dropout}});
  }
  if (!sub.out_gamma) return d;
  const char* reduced = stage.ctx().sp() ? "outs" : "out";
  const ViewId out = stage.Act(Name(chain.saved.prefix, chain.layer, sub, reduced), elements);
  const ViewId dout = chain.Act("on", sub);
  chain.Norm(Name(chain.saved.prefix, chain.layer, sub, "on"), d, out, sub.out_gamma, sub.out_beta,
             dout, -1);
  return dout;
}

// From the gradient of a branch's output to those of its InnerProducts(); none where nothing in front of them is trained
// (`further`).
std::vector<ViewId> BranchBackward(LayerChain& chain, const Sublayer& sub, ViewId d,
                                   const Factor& dfull, ViewId dmemory, bool further) {
  StageBuilder& stage = chain.stage;
  const SublayerShape shape = ShapeOf(stage, sub);
  const std::string& prefix = chain.saved.prefix;
  if (!further) {
    RecomputeInner(stage, chain.layer, sub, prefix);
    OutAdapterBackward(stage, chain.layer, sub, chain.saved, d, -1);
    return {};
  }
  const ViewId dinner =
      stage.Act(Name("d.", chain.layer, sub, "act"), shape.rows * shape.inner_width);
  Multiply(stage, dinner, dfull, WeightFactor(stage, sub.out_w, shape.hidden, shape.inner_width),
           {shape.rows, shape.inner_width, shape.hidden});
  ScaleAsResidual(stage);
  RecomputeInner(stage, chain.layer, sub, prefix);
  OutAdapterBackward(stage, chain.layer, sub, chain.saved, d, dinner);
  if (stage.ctx().frozen())
    return InnerBackward(stage, chain.layer, sub, chain.saved, dinner, dmemory);
  const Factor inner = CastOf(stage, InnerSource(stage, chain.layer, sub, prefix));
  InWeightGradBlock(stage, chain.saved.wgrad_block, [&] {
    ColumnSums(stage, sub.out_b, d, shape.shard_rows, shape.hidden);
    Multiply(stage, stage.Grad(sub.out_w), dfull, inner,
             {shape.hidden, shape.inner_width, shape.rows, true, false, true});
    ScaleAsResidual(stage);
  });
  return InnerBackward(stage, chain.layer, sub, chain.saved, dinner, dmemory);
}

// What a block's branches read, and what they multiply with it, where the forward pass does not leave it.
struct InputAgain {
  CastSource source;
  Factor factor;
};
InputAgain RecomputeInput(StageBuilder& stage, const Layer& layer, const Branches& block,
                          const Sublayer& owner, ViewId x, CastNeed need) {
  if (layer.Recomputes(kRecomputeNorms)) (void)EmitInputNorm(stage, layer, owner, "", x);
  const CastSource source =
      InputSource(stage, layer, block, owner, "", NormedInput(stage, layer, owner, "", x));
  return {source, CastTensor(stage, source, need)};
}

// An MLP that keeps its input alone, again; returns what its products read.
Factor RecomputeMlp(StageBuilder& stage, const Layer& layer, const Branches& block,
                    const Sublayer& sub, const Sublayer& owner, ViewId x) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const bool unread = stage.ctx().strategy.recompute_unread;
  const InputAgain input = RecomputeInput(stage, layer, block, owner, x, {true, true});
  const Factor normed = GatherFactor(stage, input.factor, input.source,
                                     Name("r.", layer, sub, "nf"), {true, KeepsGathers(stage)});
  InnerForward(stage, layer, sub, "", normed, -1, -1);
  const Factor act = CastTensor(stage, InnerSource(stage, layer, sub, ""), {unread, true});
  if (!unread) return normed;
  const ViewId out = stage.Act(Name("r.", layer, sub, "out"), shape.rows * shape.hidden);
  Multiply(stage, out, act, WeightFactor(stage, sub.out_w, shape.hidden, shape.inner_width),
           {shape.rows, shape.hidden, shape.inner_width, false, true});
  ScaleAsResidual(stage);
  (void)stage.ReduceTensor(out, Name("r.", layer, sub, "outs"), shape.hidden);
  return normed;
}

// The products of a branch that are not kept, from its input, which is made again for them and returned.
Factor MakeProductsAgain(StageBuilder& stage, const Layer& layer, const Branches& block,
                         const Sublayer& sub, const Sublayer& owner, ViewId x) {
  const InputAgain input = RecomputeInput(stage, layer, block, owner, x, {true, true});
  const Factor normed = GatherFactor(stage, input.factor, input.source,
                                     Name("r.", layer, sub, "nf"), {true, KeepsGathers(stage)});
  RecomputeProducts(stage, layer, sub, normed);
  return normed;
}

// The residual stream behind attention, which ranks that share a layer keep: they would reduce it again.
bool MakesOutAgain(const StageBuilder& stage, const Layer& layer) {
  return layer.Recomputes(kRecomputeOut) && stage.ctx().strategy.tp == 1;
}
void RecomputeOut(StageBuilder& stage, const Layer& layer, const Sublayer& sub, ViewId x,
                  ViewId y) {
  const SublayerShape shape = ShapeOf(stage, sub);
  CastSource source = InnerSource(stage, layer, sub, "");
  source.name = Name("r.", layer, sub, "ctx");
  const ViewId out = stage.Act(Name("r.", layer, sub, "out"), shape.rows * shape.hidden);
  const Factor context = CastTensor(stage, source, {true, false});
  Multiply(stage, out, context, WeightFactor(stage, sub.out_w, shape.hidden, shape.inner_width),
           {shape.rows, shape.hidden, shape.inner_width, false, true});
  ScaleAsResidual(stage);
  std::vector<ViewId> in{x, out};
  if (sub.out_b) in.push_back(stage.Weight(sub.out_b));
  stage.Emit(OpKind::kBiasResidual, {y}, in,
             {{Attr::kRows, double(shape.rows)},
              {Attr::kH, double(shape.hidden)},
              {Attr::kBias, double(in.size() - 2)}});
}

// Of a product, the gradient of what it reads: reduced by itself and added to that of the products before.
bool ReducesApart(const StageBuilder& stage) {
  return stage.ctx().strategy.reduces_apart && stage.ctx().strategy.tp > 1 && !stage.ctx().frozen();
}
ViewId AddReduced(StageBuilder& stage, const Layer& layer, const Sublayer& sub,
                  const InnerProduct& product, ViewId partial, ViewId sum) {
  const SublayerShape shape = ShapeOf(stage, sub);
  const ViewId own =
      stage.ReduceGathered(partial, Name("d.", layer, sub, "ns.", product.name), shape.hidden);
  if (sum < 0) return own;
  const int64_t elements = shape.shard_rows * shape.hidden;
  const ViewId added = stage.Act(Name("d.", layer, sub, "na.", product.name), elements);
  stage.Emit(OpKind::kAdd, {added}, {sum, own}, {{Attr::kElements, double(elements)}});
  return added;
}

// dx -1: nothing in front of the block is trained.
void BlockBackward(StageBuilder& stage, const Layer& layer, const Branches& block,
                   const Saved& saved, ViewId x, ViewId dy, ViewId dx, ViewId memory,
                   ViewId dmemory) {
  const SublayerShape shape = ShapeOf(stage, block.front());
  LayerChain chain{stage, layer, saved, shape.shard_rows, shape.hidden};
  ViewId residual = -1;
  const ViewId d = OutputBackward(chain, block.front(), dy, &residual);
  CastSource dsource{.name = Name("d.", layer, block.front(), "out"), .x = d};
  dsource.rows = shape.shard_rows;
  dsource.width = shape.hidden;
  dsource.gradient = true;
  dsource.part = stage.ctx().sp();
  dsource.site = GradientSite(layer, 2 * static_cast<int>(block.front().kind));
  const CastNeed need{true, !stage.ctx().frozen()};
  Factor dfull;
  if (dx >= 0 || TakesInAdapters(block))
    dfull = GatherFactor(stage, CastTensor(stage, dsource, need), dsource,
                         Name("d.", layer, block.front(), "outf"), need);
  InAdapters adapters(stage, layer, saved);
  bool input_made = false;         // again, for the branches so far
  std::size_t readers = 0;         // products so far that read the norm which the next branch owns
  ViewId reduced = -1;             // sum of the gradients of that norm which are reduced by product
  std::optional<Factor> gathered;  // for the gradients of their weights
  for (std::size_t i = block.size(); i-- > 0;) {
    const Sublayer& sub = block[i];
    std::size_t owner = i;  // of the norm that the branch reads
    while (owner > 0 && !block[owner].norm_gamma) --owner;
    const bool mlp_again = sub.kind == SubKind::kMlp && layer.Recomputes(kRecomputeMlp);
    if (mlp_again || MakesProductsAgain(stage, layer, sub)) {
      InPhase(stage, Phase::kRecompute, [&] {
        const Factor made = mlp_again
                                ? RecomputeMlp(stage, layer, block, sub, block[owner], x)
                                : MakeProductsAgain(stage, layer, block, sub, block[owner], x);
        if (KeepsGathers(stage)) gathered = made;
      });
      input_made = true;
    }
    const std::vector<ViewId> din =
        BranchBackward(chain, sub, d, dfull, dmemory, dx >= 0 || sub.TakesIn());
    if (!input_made &&
        (layer.Recomputes(kRecomputeNorms) || ReadsInputAgain(stage, layer, block))) {
      InPhase(stage, Phase::kRecompute, [&] {
        (void)RecomputeInput(stage, layer, block, block[owner], x, {false, true});
      });
      input_made = true;
    }
    adapters.Backward(sub, block[owner], NormedInput(stage, layer, block[owner], saved.prefix, x),
                      din.empty() ? -1 : din.front());
    if (dx < 0) continue;
    ViewId dnormed = stage.Act(Name("d.", layer, block[owner], "n"), shape.rows * shape.hidden);
    const std::vector<InnerProduct> products = InnerProducts(stage, layer, sub);
    std::vector<Factor> din_casts;
    for (std::size_t part = 0; part < products.size(); ++part) {
      const InnerProduct& product = products[part];
      CastSource source{.name = Name("d.", layer, sub, product.name), .x = din[part]};
      source.rows = shape.rows;
      source.width = product.width;
      source.gradient = true;
      source.site = GradientSite(layer, product.gradient);
      source.columns = true;
      din_casts.push_back(CastTensor(stage, source, need));
      const bool apart = ReducesApart(stage);
      if (apart)
        dnormed = stage.Act(Name("d.", layer, sub, "n.", product.name), shape.rows * shape.hidden);
      Multiply(stage, dnormed, din_casts.back(),
               WeightFactor(stage, product.weight, product.width, shape.hidden),
               {shape.rows, shape.hidden, product.width, false, false, !apart && readers++ > 0});
      stage.MarkPartial();
      if (apart) reduced = AddReduced(stage, layer, sub, product, dnormed, reduced);
    }
    adapters.AddTo(dnormed, false);
    if (i == owner && reduced >= 0) {
      dnormed = reduced;
    } else if (i == owner) {
      dnormed = stage.ReduceGathered(dnormed, Name("d.", layer, sub, "ns"), shape.hidden);
      adapters.AddTo(dnormed, true);
    }
    InWeightGradBlock(stage, saved.wgrad_block, [&] {
      if (stage.ctx().frozen()) return;
      if (!gathered) {
        const ViewId normed = NormedInput(stage, layer, block[owner], saved.prefix, x);
        const CastSource source =
            InputSource(stage, layer, block, block[owner], saved.prefix, normed);
        const bool kept = KeepsGathers(stage) && !source.again;
        const std::string name = Name(kept ? saved.prefix : "w.", layer, block[owner], "nf");
        gathered = (kept ? GatheredBefore : GatherFactor)(stage, CastOf(stage, source), source,
                                                          name, {false, true});
      }
      InnerWeightGrads(stage, layer, sub, saved, *gathered, din_casts, memory);
    });
    if (i != owner) continue;
    const ViewId target = i == 0 ? dx : chain.Act("res", sub);
    if (HasInputNorm(stage)) {
      chain.Norm(InputNormName(stage, layer, sub, saved.prefix), dnormed, x, sub.norm_gamma,
                 sub.norm_beta, target, residual);
    } else {
      stage.Emit(OpKind::kAdd, {target}, {dnormed, residual},
                 {{Attr::kElements, double(shape.shard_rows * shape.hidden)}});
    }
    residual = target;
    gathered.reset();
    input_made = false;
    readers = 0;
    reduced = -1;
  }
}

// Backward reads the norm behind the residual sum, or the dropout mask of the last sublayer; or the software knows no
// better than to run the whole layer again.
bool NeedsLayerOutput(const StageBuilder& stage) {
  return stage.ctx().model.post_norm || stage.ctx().model.output_norm ||
         stage.ctx().work.dropout > 0 || stage.ctx().strategy.recompute_unread;
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
  for (std::size_t i = 0; i < layer.blocks.size(); ++i) {
    const bool last = i + 1 == layer.blocks.size();
    const std::string between = PrefixOf(stage, MakesOutAgain(stage, layer), prefix);
    const ViewId out = last ? y : Between(stage, between, layer, i + 1);
    BlockForward(stage, layer, layer.blocks[i], prefix,
                 i == 0 ? x : Between(stage, between, layer, i), out, memory, last && stop_early);
  }
}

void LayerBackward(StageBuilder& stage, const Layer& layer, ViewId x, ViewId dy, ViewId dx,
                   ViewId memory, ViewId dmemory, int wgrad_block) {
  Saved saved{"", wgrad_block};
  if (layer.Recomputes(kRecomputeLayer)) {
    saved.prefix = "r.";
    const int64_t elements = stage.ctx().ShardRows() * stage.ctx().model.hidden;
    const ViewId unused = NeedsLayerOutput(stage)
                              ? stage.Act("r.l" + std::to_string(layer.index) + ".y", elements)
                              : -1;
    InPhase(stage, Phase::kRecompute,
            [&] { LayerForward(stage, layer, "r.", x, unused, memory, true); });
  }
  for (int i = static_cast<int>(layer.blocks.size()) - 1; i >= 0; --i) {
    const auto at = static_cast<std::size_t>(i);
    const bool last = at + 1 == layer.blocks.size();
    const bool again = i > 0 && MakesOutAgain(stage, layer);
    const ViewId sub_x =
        i == 0 ? x : Between(stage, PrefixOf(stage, again, saved.prefix), layer, at);
    if (again) {
      InPhase(stage, Phase::kRecompute,
              [&] { RecomputeOut(stage, layer, layer.blocks.front().front(), x, sub_x); });
    }
    const ViewId sub_dy = last ? dy : Between(stage, "d.", layer, at + 1);
    const bool further = TrainsBefore(stage, layer, at);
    const ViewId sub_dx = !further ? -1 : i == 0 ? dx : Between(stage, "d.", layer, at);
    BlockBackward(stage, layer, layer.blocks[at], saved, sub_x, sub_dy, sub_dx, memory, dmemory);
    if (!further) break;
  }
}

}  // namespace orrery
