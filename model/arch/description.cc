// SPDX-License-Identifier: Apache-2.0
// The keys of a transformer's description: types, ranges, defaults, and what several of them say together.
#include "model/arch/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/arch/enum_names.h"

namespace orrery {

bool Fields::Has(const std::string& key) const {
  const Place place = At(key);
  return place.node.Has(place.key);
}
int64_t Fields::Integer(const std::string& key, int64_t min, int64_t max) const {
  const Place place = At(key);
  return place.node.Integer(place.key, min, max) + place.plus;
}
int64_t Fields::Integer(const std::string& key, int64_t min, int64_t max, int64_t fallback) const {
  return Has(key) ? Integer(key, min, max) : fallback;
}
double Fields::Number(const std::string& key, double min, double max, double fallback) const {
  const Place place = At(key);
  return place.node.Number(place.key, min, max, fallback);
}
bool Fields::Bool(const std::string& key, bool fallback) const {
  const Place place = At(key);
  return place.node.Bool(place.key, fallback);
}
void Fields::Error(const std::string& key, const std::string& message,
                   const std::string& hint) const {
  const Place place = At(key);
  place.node.ErrorAt(place.key, message, hint);
}

namespace {

void ReadWidths(const Fields& fields, ModelSpec* spec) {
  spec->layers = fields.Integer("layers", 1, kMaxLayers);
  spec->hidden = fields.Integer("hidden", 1, kMaxWidth);
  spec->ffn = fields.Integer("ffn", 1, kMaxFfn, 0);
  spec->heads = fields.Integer("heads", 1, kMaxHeads);
  spec->kv_heads = fields.Integer("kv_heads", 1, kMaxHeads, 0);
  spec->head_dim = fields.Integer("head_dim", 1, kMaxHeadDim, 0);
  spec->vocab = fields.Integer("vocab", 1, kMaxVocab);
  spec->max_positions = fields.Integer("max_positions", 1, kMaxPositions);
  if (fields.Integer("embedding_width", 1, kMaxWidth, spec->hidden) != spec->hidden) {
    fields.Error("embedding_width", "embeddings narrower than the layers cannot be planned yet");
  }
}

void ReadNorms(const Fields& fields, ModelSpec* spec) {
  spec->norm = fields.Choice<Norm>("norm", kNormNames, Norm::kLayerNorm);
  spec->norm_epsilon = fields.Number("norm_epsilon", 1e-20, 1, spec->norm_epsilon);
  spec->post_norm = fields.Bool("post_norm", false);
  spec->input_norm = fields.Bool("input_norm", !spec->post_norm);
  spec->output_norm = fields.Bool("output_norm", false);
  spec->embedding_norm = fields.Bool("embedding_norm", false);
  spec->qk_norm = fields.Choice<QkNorm>("qk_norm", kQkNormNames, QkNorm::kNone);
  spec->parallel = fields.Bool("parallel", false);
  spec->shared_norm = fields.Bool("shared_norm", false);
  if (spec->post_norm && (spec->input_norm || spec->output_norm || spec->parallel)) {
    fields.Error("post_norm",
                 "a norm after the residual sum excludes other norms of the block and "
                 "parallel blocks");
  }
  if (!spec->post_norm && !spec->input_norm && !spec->output_norm) {
    fields.Error("input_norm", "a block without norms cannot be planned", "set output_norm");
  }
  if (spec->shared_norm && !spec->parallel) {
    fields.Error("shared_norm", "only parallel blocks share a norm", "set parallel");
  }
  if (spec->parallel && spec->output_norm) {
    fields.Error("output_norm", "parallel blocks have no norms of their outputs");
  }
  if (spec->qk_norm != QkNorm::kNone && spec->family != Family::kDecoder) {
    fields.Error("qk_norm", "norms of queries and keys are planned for decoders only");
  }
}

void ReadMlpBlock(const Fields& fields, ModelSpec* spec) {
  spec->activation = fields.Choice<Activation>("activation", kActivationNames, Activation::kGelu);
  const bool swiglu = spec->activation == Activation::kSwiglu;
  spec->gated = fields.Bool("gated", swiglu);
  if (swiglu && !spec->gated) fields.Error("gated", "swiglu is gated: it has three matrices");
  if (spec->gated && spec->activation == Activation::kRelu2) {
    fields.Error("gated", "squared relu is not gated", "use swiglu, gelu or relu");
  }
  spec->linear_bias = fields.Bool("linear_bias", true);
  spec->qkv_bias = fields.Bool("qkv_bias", spec->linear_bias);
  if (fields.Has("out_bias")) spec->out_bias = fields.Bool("out_bias", spec->linear_bias);
  if (spec->output_norm && (spec->linear_bias || spec->has_out_bias())) {
    fields.Error("output_norm", "norms of outputs are planned without linear_bias");
  }
}

// What a choice does to the numbers alone, not to shapes: priced as nothing.
void ReadScales(const Fields& fields, ModelSpec* spec) {
  spec->embedding_scale = fields.Number("embedding_scale", 1e-6, 1e6, 1.0);
  spec->residual_scale = fields.Number("residual_scale", 1e-6, 1e6, 1.0);
  spec->logit_scale = fields.Number("logit_scale", 1e-6, 1e6, 1.0);
  if (fields.Bool("embedding_times_root", false))
    spec->embedding_scale *= std::sqrt(static_cast<double>(spec->hidden));
  if (spec->residual_scale != 1 && (spec->linear_bias || spec->has_out_bias() || spec->output_norm))
    spec->untrained.push_back(
        fmt::format("residual_scale {} with biases or norms of outputs", spec->residual_scale));
  if (spec->logit_scale != 1 && spec->head_bias)
    spec->untrained.push_back(fmt::format("logit_scale {} with a bias", spec->logit_scale));
  spec->attention_cap = fields.Number("attention_cap", 0, 1e6, 0);
  spec->logit_cap = fields.Number("logit_cap", 0, 1e6, 0);
  spec->attention_scale = fields.Number("attention_scale", 0, 1e6, 0);
  // Gemma gives the number whose root divides the scores.
  const double divisor = fields.Number("attention_divisor", 0, 1e9, 0);
  if (divisor > 0) spec->attention_scale = 1 / std::sqrt(divisor);
}

constexpr NameRow<std::optional<RopeScaling::Kind>> kRopeKinds[] = {
    {"default", RopeScaling::Kind::kNone},
    {"linear", RopeScaling::Kind::kLinear},
    {"dynamic", std::nullopt},
    {"llama3", RopeScaling::Kind::kLlama3},
    {"yarn", RopeScaling::Kind::kYarn},
    {"longrope", std::nullopt},
    {"su", std::nullopt}};

// The figures of one kind, as transformers' modeling_rope_utils.py reads them. False: not all of them are there.
bool ReadRopeFigures(const Node& scaling, RopeScaling::Kind kind, ModelSpec* spec) {
  constexpr double kMost = 1e9;
  const auto number = [&](const char* key, double otherwise) {
    return scaling.Has(key) ? scaling.Number(key, 0, kMost) : otherwise;
  };
  RopeScaling& rope = spec->rope_scaling;
  rope.factor = number("factor", 0);
  if (rope.factor < 1) return false;
  if (kind == RopeScaling::Kind::kLinear) return true;
  const bool yarn = kind == RopeScaling::Kind::kYarn;
  rope.original = number("original_max_position_embeddings",
                         yarn ? static_cast<double>(spec->max_positions) : 0);
  rope.low = number(yarn ? "beta_slow" : "low_freq_factor", yarn ? 1 : 0);
  rope.high = number(yarn ? "beta_fast" : "high_freq_factor", yarn ? 32 : 0);
  if (rope.original < 1 || rope.low <= 0 || rope.high <= rope.low) return false;
  if (!yarn) return true;
  // 0.1 m ln(factor) + 1, in DeepSeek's form the quotient of two of them.
  const auto grown = [&](double m) { return 0.1 * m * std::log(rope.factor) + 1; };
  const double mscale = number("mscale", 0), all = number("mscale_all_dim", 0);
  rope.magnify =
      number("attention_factor", mscale > 0 && all > 0 ? grown(mscale) / grown(all) : grown(1));
  rope.truncate = scaling.Bool("truncate", true);
  return rope.magnify > 0;
}

// What a map of rotary positions says beside its scaling, and a key next to the map may say, too; the same in both.
double InsideOrBeside(const Fields& fields, const std::string& beside, const Node& map,
                      const std::string& key, double min, double max, double fallback) {
  if (!map.Has(key)) return fallback;
  const double inside = map.Number(key, min, max);
  const Place place = fields.At(beside);
  const bool written =
      place.node.Has(place.key) && place.node.where(place.key).source == map.where().source;
  if (written && place.node.Number(place.key, min, max) != inside)
    map.ErrorAt(key,
                fmt::format("{} {} contradicts {} {} in line {}", key, map.String(key), place.key,
                            place.node.String(place.key), place.node.where(place.key).line),
                "keep the one that is meant");
  return inside;
}

using RopeKind = std::optional<RopeScaling::Kind>;  // nullopt: priced, not trained

// `type` is the older name of `rope_type`.
RopeKind ReadRopeKind(const Node& map, std::string* name) {
  using Kind = RopeScaling::Kind;
  const auto kind = [&](const char* key) {
    return map.Choice<RopeKind>(key, kRopeKinds, RopeKind(Kind::kNone));
  };
  *name = map.Has("rope_type") ? "rope_type" : "type";
  if (map.Has("type") && map.Has("rope_type") && kind("type") != kind("rope_type"))
    map.ErrorAt("type",
                fmt::format("type {} contradicts rope_type {} in line {}", map.String("type"),
                            map.String("rope_type"), map.where("rope_type").line),
                "keep the one that is meant");
  return kind(name->c_str());
}

// By name: whoever compares a config.json's maps has asked for each of their keys.
void RejectUnknownRopeKeys(const Node& map) {
  static const std::vector<std::string> kKnown = {
      "rope_type",        "type",
      "factor",           "original_max_position_embeddings",
      "attention_factor", "beta_fast",
      "beta_slow",        "short_factor",
      "long_factor",      "low_freq_factor",
      "high_freq_factor", "mscale",
      "mscale_all_dim",   "truncate",
      "rope_theta",       "partial_rotary_factor"};
  for (const std::string& key : map.Keys()) {
    if (map.Has(key) && std::ranges::find(kKnown, key) == kKnown.end())
      map.ErrorAt(key, fmt::format("'{}' of rotary positions is not known here", key),
                  SuggestName(key, kKnown));
  }
}

void ReadRopeMap(const Fields& fields, const Node& map, ModelSpec* spec) {
  std::string type;
  const RopeKind kind = ReadRopeKind(map, &type);
  if (kind != RopeScaling::Kind::kNone) {
    if (kind && ReadRopeFigures(map, *kind, spec))
      spec->rope_scaling.kind = *kind;
    else
      spec->untrained.push_back("rope_scaling " + map.String(type)), spec->rope_scaling = {};
  }
  spec->rope_base =
      InsideOrBeside(fields, "rope_base", map, "rope_theta", 1, 1e12, spec->rope_base);
  spec->rotary_share = InsideOrBeside(fields, "rotary_share", map, "partial_rotary_factor", 1e-3, 1,
                                      spec->rotary_share);
  RejectUnknownRopeKeys(map);
}

// Of layers with a window, which have a base of their own and no scaling.
void ReadRopeOfWindows(const Fields& fields, const Node& map, ModelSpec* spec) {
  std::string type;
  if (ReadRopeKind(map, &type) != RopeScaling::Kind::kNone)
    map.ErrorAt(
        type, fmt::format("{} '{}' of sliding_attention cannot be planned", type, map.String(type)),
        "default can");
  spec->rope_base_of_windows =
      InsideOrBeside(fields, "rope_base_of_windows", map, "rope_theta", 1, 1e12, 0);
  RejectUnknownRopeKeys(map);
}

void ReadRopeScaling(const Fields& fields, ModelSpec* spec) {
  const Place place = fields.At("rope_scaling");
  const auto scaling = place.node.Find(place.key);
  if (!scaling) return;
  if (scaling->IsScalar()) {
    if (place.node.Choice<RopeKind>(place.key, kRopeKinds, RopeScaling::Kind::kNone) !=
        RopeScaling::Kind::kNone)
      place.node.ErrorAt(
          place.key,
          fmt::format("rope_scaling '{}' without its figures", place.node.String(place.key)),
          "a map: {rope_type: linear, factor: 8}");
    return;
  }
  const auto full = scaling->Find("full_attention"), windowed = scaling->Find("sliding_attention");
  if (!full && !windowed) return ReadRopeMap(fields, *scaling, spec);
  // A map for each kind of attention (transformers 5).
  if (full) ReadRopeMap(fields, *full, spec);
  if (windowed) ReadRopeOfWindows(fields, *windowed, spec);
  scaling->RejectUnknownKeys();
}

void ReadPositions(const Fields& fields, ModelSpec* spec) {
  spec->positions = fields.Choice<Positions>("positions", kPositionsNames, Positions::kLearned);
  if (spec->positions == Positions::kRelativeBias) {
    spec->relative_buckets = fields.Integer("relative_buckets", 1, kMaxSmall);
  }
  if (fields.Bool("alibi_with_scores", false) && spec->positions == Positions::kAlibi)
    spec->untrained.emplace_back("positions alibi, scaled as the scores");
  if (spec->positions != Positions::kRotary) return;
  spec->rope_base = fields.Number("rope_base", 1, 1e12, 10000);
  spec->rotary_share = fields.Number("rotary_share", 1e-3, 1, 1);
  spec->rope_scaling_of_windows = fields.Bool("rope_scaling_of_windows", true);
  ReadRopeScaling(fields, spec);
  // GPT-J gives the width that turns, and turns neighbours instead of halves: the same up to an order of columns.
  const int64_t width = fields.Integer("rotary_width", 1, kMaxHeadDim, 0);
  if (width > 0 && spec->hidden >= spec->heads && spec->heads > 0) {
    const int64_t head = spec->head_dim > 0 ? spec->head_dim : spec->hidden / spec->heads;
    if (width > head) {
      fields.Error("rotary_width", fmt::format("a head is only {} wide", head));
      return;
    }
    spec->rotary_share = static_cast<double>(width) / static_cast<double>(head);
  }
  if (spec->rope_base_of_windows == 0)
    spec->rope_base_of_windows = fields.Number("rope_base_of_windows", 1, 1e12, spec->rope_base);
  if (spec->rope_base_of_windows == spec->rope_base) spec->rope_base_of_windows = 0;
}

// The kinds of all layers. `on`: whether the model has windows; `flag`: the key that says so.
void ReadLayerTypes(const Place& place, bool on, const std::string& flag, int64_t window,
                    ModelSpec* spec) {
  constexpr NameRow<bool> kTypes[] = {{"full_attention", false}, {"sliding_attention", true}};
  const std::vector<Node> types = place.node.Items(place.key);
  if (static_cast<int64_t>(types.size()) != spec->layers) {
    place.node.ErrorAt(place.key,
                       fmt::format("{} entries for {} layers", types.size(), spec->layers));
    return;
  }
  for (const Node& type : types) {
    const std::string text = type.AsString();
    const auto* known = std::find_if(std::begin(kTypes), std::end(kTypes),
                                     [&](const auto& row) { return text == row.first; });
    if (known == std::end(kTypes)) {
      type.Error(fmt::format("layers of type '{}' cannot be planned", text),
                 "full_attention and sliding_attention can");
      return;
    }
    if (known->second && !on) {
      type.Error(fmt::format("a layer with a sliding window, and {} is false", flag));
      return;
    }
    if (known->second && window == 0) {
      type.Error("a layer with a sliding window, and no size of it");
      return;
    }
    spec->windows.push_back(known->second ? window : 0);
  }
  if (std::all_of(spec->windows.begin(), spec->windows.end(), [](int64_t w) { return w == 0; }))
    spec->windows.clear();
}

void ReadWindows(const Fields& fields, ModelSpec* spec) {
  const bool on = fields.Bool("windowed", true);
  const int64_t window = fields.Integer("window", 1, kMaxPositions, 0);
  const int64_t full_every = fields.Integer("full_every", 1, kMaxLayers, 0);
  const int64_t first = fields.Integer("first_windowed", 0, kMaxLayers, 0);
  if (window > 0 && on && spec->family != Family::kDecoder) {
    fields.Error("window", "sliding windows are planned for decoders only");
    return;
  }
  if (const Place types = fields.At("layer_types"); types.node.Has(types.key))
    return ReadLayerTypes(types, on, fields.At("windowed").key, window, spec);
  if (!on || window == 0 || full_every == 1 || first >= spec->layers) return;
  if (first == 0 && full_every == 0) {
    spec->windows = {window};
    return;
  }
  const int64_t pattern = first > 0 ? spec->layers : full_every;
  for (int64_t i = 0; i < pattern; ++i) {
    const bool full = i < first || (full_every > 0 && (i + 1) % full_every == 0);
    spec->windows.push_back(full ? 0 : window);
  }
}

void ReadEnds(const Fields& fields, ModelSpec* spec) {
  spec->tied_embeddings = fields.Bool("tied_embeddings", true);
  if (spec->family != Family::kEncoderDecoder) spec->head_bias = fields.Bool("head_bias", false);
  if (spec->head_bias && spec->family == Family::kDecoder && spec->tied_embeddings) {
    fields.Error("head_bias", "a bias of the logits needs an output matrix of its own in a decoder",
                 "set tied_embeddings: false");
  }
  if (spec->family == Family::kEncoder) {
    spec->token_types = fields.Integer("token_types", 0, kMaxSmall, 0);
    spec->pooler = fields.Bool("pooler", false);
    spec->head_transform = fields.Bool("head_transform", false);
  }
}

void CompleteHeads(const Fields& fields, ModelSpec* spec) {
  const auto name = [&](const char* key) { return fields.At(key).key; };
  if (spec->head_dim == 0 && spec->hidden % spec->heads != 0) {
    fields.Error(
        "heads",
        fmt::format("{} heads do not divide a hidden width of {}", spec->heads, spec->hidden),
        fmt::format("give {} when a head is not {} / {} wide", name("head_dim"), name("hidden"),
                    name("heads")));
    return;
  }
  if (spec->head_dim == 0) spec->head_dim = spec->hidden / spec->heads;
  if (spec->ffn == 0) spec->ffn = 4 * spec->hidden;
  if (spec->kv_heads == 0) spec->kv_heads = spec->heads;
  if (spec->heads % spec->kv_heads != 0) {
    fields.Error("kv_heads", fmt::format("{} key-value heads do not divide {} heads",
                                         spec->kv_heads, spec->heads));
  }
  if (spec->positions == Positions::kRotary && spec->head_dim % 2 != 0) {
    fields.Error("heads",
                 fmt::format("rotary positions need an even head width, not {}", spec->head_dim));
  }
}

}  // namespace

void ReadTransformer(const Fields& fields, const Diagnostics& diagnostics, ModelSpec* spec) {
  ReadWidths(fields, spec);
  ReadNorms(fields, spec);
  ReadMlpBlock(fields, spec);
  ReadPositions(fields, spec);
  ReadScales(fields, spec);
  ReadWindows(fields, spec);
  ReadEnds(fields, spec);
  if (spec->family == Family::kEncoderDecoder)
    spec->decoder_layers = fields.Integer("decoder_layers", 1, kMaxLayers);
  if (diagnostics.ok()) CompleteHeads(fields, spec);  // else it would repeat the first mistakes
}

}  // namespace orrery
