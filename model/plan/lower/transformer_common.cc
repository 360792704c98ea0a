// SPDX-License-Identifier: Apache-2.0
// Parameters of transformer layers and the norms around the sublayers.
#include <algorithm>
#include <array>

#include "model/plan/lower/adapters.h"
#include "model/plan/lower/coded.h"
#include "model/plan/lower/packed.h"
#include "model/plan/lower/transformer.h"

namespace orrery {

using ir::Attr;
using ir::Init;
using ir::OpKind;
using ir::ViewId;

namespace {

struct Declared {
  std::vector<ParamDecl> params;
  std::vector<ParamRef Sublayer::*> fields;
  std::vector<std::pair<int, int>> owner;  // (layer offset, sublayer)
};

// Adapters of a range of layers, which are a unit of their own; pairs of A and B.
struct DeclaredAdapters {
  std::vector<ParamDecl> params;
  std::vector<int> slots;  // of Sublayer::in_adapters, or kOutSlot
  std::vector<std::pair<int, int>> owner;
};
constexpr int kOutSlot = -1;

void DeclareNorm(const ModelSpec& model, const std::string& base, ParamRef Sublayer::*gamma,
                 ParamRef Sublayer::*beta, int layer, int sub, Declared& out) {
  out.params.push_back({base + ".g", {model.hidden}, -1, Init::kOnes, false});
  out.fields.push_back(gamma);
  out.owner.emplace_back(layer, sub);
  if (model.norm != Norm::kLayerNorm) return;
  out.params.push_back({base + ".b", {model.hidden}, -1, Init::kZeros, false});
  out.fields.push_back(beta);
  out.owner.emplace_back(layer, sub);
}

// The norms around a sublayer. In a parallel block with one norm the attention, which comes first, has it.
void DeclareNorms(const ModelSpec& model, const std::string& base, const std::string& name,
                  int layer, int sub, Declared& out) {
  if (model.has_block_norm() && !(model.shared_norm && sub > 0)) {
    DeclareNorm(model, base + name, &Sublayer::norm_gamma, &Sublayer::norm_beta, layer, sub, out);
  }
  if (model.output_norm) {
    DeclareNorm(model, base + name + "o", &Sublayer::out_gamma, &Sublayer::out_beta, layer, sub,
                out);
  }
}

// Gains of all heads are alike on each tensor rank, which has heads of its own: its gradient is a part.
void DeclareQkNorm(const ModelSpec& model, const std::string& base, int layer, int sub,
                   Declared& out) {
  if (model.qk_norm == QkNorm::kNone) return;
  const int64_t gains = model.qk_norm == QkNorm::kHead ? 2 : model.heads + model.kv_heads;
  ParamDecl decl{base + "qkn.g", {gains * model.head_dim}, -1, Init::kOnes, false};
  decl.partial = true;
  out.params.push_back(decl);
  out.fields.push_back(&Sublayer::qk_gamma);
  out.owner.emplace_back(layer, sub);
}

// shard_dim 0: column-parallel (the bias is sharded too); 1: row-parallel (the bias is replicated).
void DeclareLinear(const std::string& base, int64_t out_features, int64_t in_features,
                   int shard_dim, bool bias, ParamRef Sublayer::*weight,
                   ParamRef Sublayer::*bias_field, int layer, int sub, Declared& out) {
  out.params.push_back({base + ".w", {out_features, in_features}, shard_dim});
  out.fields.push_back(weight);
  out.owner.emplace_back(layer, sub);
  if (!bias) return;
  out.params.push_back({base + ".b", {out_features}, shard_dim == 0 ? 0 : -1, Init::kZeros, false});
  out.fields.push_back(bias_field);
  out.owner.emplace_back(layer, sub);
}

void DeclareSublayer(const LowerContext& ctx, const std::string& base, SubKind kind, int layer,
                     int sub, Declared& out) {
  const ModelSpec& model = ctx.model;
  const int64_t h = model.hidden, attention = model.heads * model.head_dim,
                keys = model.kv_heads * model.head_dim;
  const bool split = SplitsProducts(ctx, kind);
  const auto inner = [&](const char* name, int64_t width, bool bias, ParamRef Sublayer::*weight,
                         ParamRef Sublayer::*bias_field) {
    DeclareLinear(base + name, width, h, 0, bias, weight, bias_field, layer, sub, out);
  };
  switch (kind) {
    case SubKind::kAttention:
      inner(split ? "q" : "qkv", attention + (split ? 0 : 2 * keys), model.qkv_bias,
            &Sublayer::in_w, &Sublayer::in_b);
      if (split) {
        inner("k", keys, model.qkv_bias, &Sublayer::k_w, &Sublayer::k_b);
        inner("v", keys, model.qkv_bias, &Sublayer::v_w, &Sublayer::v_b);
      }
      DeclareLinear(base + "o", h, attention, 1, model.has_out_bias(), &Sublayer::out_w,
                    &Sublayer::out_b, layer, sub, out);
      DeclareNorms(model, base, "ln1", layer, sub, out);
      DeclareQkNorm(model, base, layer, sub, out);
      break;
    case SubKind::kCrossAttention:
      DeclareLinear(base + "xq", attention, h, 0, model.qkv_bias, &Sublayer::in_w, &Sublayer::in_b,
                    layer, sub, out);
      DeclareLinear(base + "xkv", 2 * attention, h, 0, model.qkv_bias, &Sublayer::kv_w,
                    &Sublayer::kv_b, layer, sub, out);
      DeclareLinear(base + "xo", h, attention, 1, model.has_out_bias(), &Sublayer::out_w,
                    &Sublayer::out_b, layer, sub, out);
      DeclareNorms(model, base, "lnx", layer, sub, out);
      break;
    case SubKind::kMlp:
      inner(split ? "gate" : "fc1", model.ffn * (model.gated && !split ? 2 : 1), model.linear_bias,
            &Sublayer::in_w, &Sublayer::in_b);
      if (split) inner("up", model.ffn, model.linear_bias, &Sublayer::up_w, &Sublayer::up_b);
      DeclareLinear(base + "fc2", h, model.ffn, 1, model.linear_bias, &Sublayer::out_w,
                    &Sublayer::out_b, layer, sub, out);
      DeclareNorms(model, base, "ln2", layer, sub, out);
      break;
  }
}

void DeclareAdapters(const LowerContext& ctx, const std::string& base, SubKind kind, int layer,
                     int sub, DeclaredAdapters& out) {
  const ModelSpec& model = ctx.model;
  const int64_t h = model.hidden, attention = model.heads * model.head_dim;
  const int64_t keys = model.kv_heads * model.head_dim;
  const auto add = [&](LoraTarget map, const char* name, int64_t width, int64_t in, int slot) {
    if (!ctx.work.lora.targets_map(map)) return;
    const std::vector<ParamDecl> decls =
        AdapterDecls(ctx, base + name, width, in, slot == kOutSlot ? 1 : 0);
    out.params.insert(out.params.end(), decls.begin(), decls.end());
    out.slots.push_back(slot);
    out.owner.emplace_back(layer, sub);
  };
  if (kind == SubKind::kAttention) {
    add(kLoraQkv, "qkv", attention + 2 * keys, h, 0);
    add(kLoraQ, "q", attention, h, 0);
    add(kLoraK, "k", keys, h, 1);
    add(kLoraV, "v", keys, h, 2);
    add(kLoraProj, "o", h, attention, kOutSlot);
  } else if (kind == SubKind::kMlp) {
    add(kLoraFc1, "fc1", model.ffn * (model.gated ? 2 : 1), h, 0);
    add(kLoraGate, "gate", model.ffn, h, 0);
    add(kLoraUp, "up", model.ffn, h, 1);
    add(kLoraFc2, "fc2", h, model.ffn, kOutSlot);
  }
}

// Of a range of layers. Weights of linear maps may be packed, or held in 8 bits, in units of their own; those of layers
// whose products are not cast stay with all else.
std::vector<ParamRef> AddLayerParams(StageBuilder& stage, int first, const Declared& declared) {
  const LowerContext& ctx = stage.ctx();
  const std::string layers = std::to_string(first);
  const bool codes = ctx.strategy.fp8_weights;
  const bool packs = codes || PackingOf(ctx.work) != ir::Packed::kNone;
  std::array<std::vector<ParamDecl>, 2> kinds;
  const auto kind_of = [&](std::size_t i) {
    return packs && declared.params[i].shape.size() == 2 &&
           !ctx.work.fp8_skip.Hold(first + declared.owner[i].first, ctx.model.layers);
  };
  for (std::size_t i = 0; i < declared.params.size(); ++i)
    kinds[kind_of(i)].push_back(declared.params[i]);
  std::array<std::vector<ParamRef>, 2> added;
  if (!kinds[0].empty()) added[0] = stage.AddUnit("u" + layers, kinds[0], stage.ctx().sp(), true);
  if (!kinds[1].empty()) {
    added[1] = !codes                               ? AddPackedUnits(stage, layers, kinds[1])
               : GathersCodes(stage.ctx().work.fp8) ? AddCodedUnit(stage, layers, kinds[1])
                                                    : AddOnceUnit(stage, layers, kinds[1]);
  }
  std::vector<ParamRef> refs;
  std::array<std::size_t, 2> next{};
  for (std::size_t i = 0; i < declared.params.size(); ++i) {
    const std::size_t kind = kind_of(i);
    refs.push_back(added[kind][next[kind]++]);
  }
  return refs;
}

}  // namespace

bool SplitsProducts(const ModelSpec& model, const Workload& work, const Strategy& strategy,
                    SubKind kind) {
  if (!strategy.split_products || work.lora.on() || model.family != Family::kDecoder) return false;
  if (kind == SubKind::kMlp) return model.gated;
  return kind == SubKind::kAttention && model.positions == Positions::kRotary &&
         model.qk_norm == QkNorm::kNone;
}

std::vector<Layer> AddLayerUnit(StageBuilder& stage, int first, int count, bool decoder_stack,
                                ParamRef relative_bias, int64_t in_chunk) {
  const ModelSpec& model = stage.ctx().model;
  std::vector<SubKind> kinds{SubKind::kAttention};
  if (decoder_stack) kinds.push_back(SubKind::kCrossAttention);
  kinds.push_back(SubKind::kMlp);
  Declared declared;
  DeclaredAdapters adapters;
  std::vector<Layer> layers(count);
  std::vector<Branches> sublayers(count, Branches(kinds.size()));
  for (int i = 0; i < count; ++i) {
    layers[i].index = first + i;
    layers[i].recompute = stage.ctx().strategy.recompute.Of(in_chunk + i);
    for (std::size_t sub = 0; sub < kinds.size(); ++sub) {
      Sublayer& sublayer = sublayers[i][sub];
      sublayer.kind = kinds[sub];
      sublayer.tag = kinds[sub] == SubKind::kAttention ? "attn"
                     : kinds[sub] == SubKind::kMlp     ? "mlp"
                                                       : "xattn";
      sublayer.causal = model.family == Family::kDecoder || decoder_stack;
      if (kinds[sub] == SubKind::kAttention) sublayer.relative_bias = relative_bias;
      DeclareSublayer(stage.ctx(), "l" + std::to_string(first + i) + ".", kinds[sub], i,
                      static_cast<int>(sub), declared);
      DeclareAdapters(stage.ctx(), "l" + std::to_string(first + i) + ".", kinds[sub], i,
                      static_cast<int>(sub), adapters);
    }
  }
  const std::vector<ParamRef> refs = AddLayerParams(stage, first, declared);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    sublayers[declared.owner[i].first][declared.owner[i].second].*declared.fields[i] = refs[i];
  }
  std::vector<int> trained;  // one, or one of matrices in 8 bits and one of all else
  for (const ParamRef& ref : refs)
    if (std::ranges::find(trained, ref.unit) == trained.end()) trained.push_back(ref.unit);
  if (!adapters.params.empty()) {
    const auto pairs =
        stage.AddUnit("a" + std::to_string(first), adapters.params, stage.ctx().sp(), true);
    for (std::size_t i = 0; i < adapters.slots.size(); ++i) {
      const auto [layer, sub] = adapters.owner[i];
      Sublayer& of = sublayers[layer][sub];
      const int slot = adapters.slots[i];
      (slot == kOutSlot ? of.out_adapter : of.in_adapters[static_cast<std::size_t>(slot)]) = {
          pairs[2 * i], pairs[2 * i + 1]};
    }
    trained = {pairs.front().unit};
  }
  for (int i = 0; i < count; ++i) {
    layers[i].units = trained;
    if (model.parallel) {
      layers[i].blocks = {sublayers[i]};
    } else {
      for (const Sublayer& sublayer : sublayers[i]) layers[i].blocks.push_back({sublayer});
    }
  }
  return layers;
}

std::string ForwardPrefix(const Layer& layer) {
  return layer.Recomputes(kRecomputeLayer) ? "t." : "";
}

ViewId EmitNorm(StageBuilder& stage, const std::string& name, ViewId x, ParamRef gamma,
                ParamRef beta, int64_t rows, ViewId y) {
  const int64_t h = stage.ctx().model.hidden;
  const bool layer_norm = static_cast<bool>(beta);
  const ViewId stats = stage.Make(name + ".s", rows * (layer_norm ? 2 : 1), stage.ctx().full);
  if (y < 0) y = stage.Act(name, rows * h);
  std::vector<ViewId> in{x, stage.Weight(gamma)};
  if (layer_norm) in.push_back(stage.Weight(beta));
  stage.Emit(layer_norm ? OpKind::kLayerNorm : OpKind::kRmsNorm, {y, stats}, in,
             {{Attr::kRows, double(rows)},
              {Attr::kH, double(h)},
              {Attr::kEps, stage.ctx().model.norm_epsilon}});
  return y;
}

void EmitNormBackward(StageBuilder& stage, const std::string& name, ViewId dy, ViewId x,
                      ParamRef gamma, int64_t rows, ViewId dx, ViewId residual) {
  const bool layer_norm = stage.ctx().model.norm == Norm::kLayerNorm;
  const int64_t h = stage.ctx().model.hidden;
  const ViewId stats = stage.Make(name + ".s", rows * (layer_norm ? 2 : 1), stage.ctx().full);
  std::vector<ViewId> in{dy, x, stats, stage.Weight(gamma)};
  if (residual >= 0) in.push_back(residual);
  stage.Emit(
      layer_norm ? OpKind::kLayerNormBwd : OpKind::kRmsNormBwd, {dx}, in,
      {{Attr::kRows, double(rows)}, {Attr::kH, double(h)}, {Attr::kAdd, double(residual >= 0)}});
}

void EmitNormWeightGrad(StageBuilder& stage, const std::string& name, ViewId dy, ViewId x,
                        ParamRef gamma, ParamRef beta, int64_t rows) {
  const bool layer_norm = static_cast<bool>(beta);
  const ViewId stats = stage.Make(name + ".s", rows * (layer_norm ? 2 : 1), stage.ctx().full);
  const ir::Attrs attrs{{Attr::kRows, double(rows)}, {Attr::kH, double(stage.ctx().model.hidden)}};
  if (stage.ctx().frozen()) return;
  const ViewId dgamma = stage.Grad(gamma);
  if (layer_norm) {
    const ViewId dbeta = stage.Grad(beta);
    stage.Emit(OpKind::kLayerNormWgrad, {dgamma, dbeta}, {dgamma, dbeta, dy, x, stats}, attrs);
  } else {
    stage.Emit(OpKind::kRmsNormWgrad, {dgamma}, {dgamma, dy, x, stats}, attrs);
  }
}

}  // namespace orrery
