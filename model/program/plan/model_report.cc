// SPDX-License-Identifier: Apache-2.0
// Prints a model as it was read.
#include "model/program/plan/model_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "model/arch/data_root.h"
#include "model/arch/enum_names.h"
#include "model/arch/parameters.h"
#include "model/program/common/job.h"
#include "model/program/common/table.h"

namespace orrery::report {
namespace {

constexpr std::size_t kModelLabel = 16;  // width of the label column

std::string ModelLine(const std::string& label, const std::string& text) {
  return fmt::format("  {:<{}}{}\n", label, kModelLabel - 2, Fold(text, kModelLabel));
}

// 8030261248 as 8,030,261,248.
std::string Exact(int64_t number) {
  std::string text = std::to_string(number);
  for (int64_t at = static_cast<int64_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string Norms(const ModelSpec& s) {
  std::string where = s.post_norm                     ? "behind the residual sum"
                      : s.input_norm && s.output_norm ? "of inputs and outputs"
                      : s.output_norm                 ? "of outputs"
                      : s.parallel && s.shared_norm   ? "of the input, one for both"
                                                      : "of inputs";
  if (s.qk_norm == QkNorm::kHead) where += ", of queries and keys per head";
  if (s.qk_norm == QkNorm::kWidth) where += ", of queries and keys over all heads";
  if (s.embedding_norm) where += ", of the embedding";
  if (s.norm_epsilon != ModelSpec().norm_epsilon)
    where += fmt::format(", epsilon {}", s.norm_epsilon);
  return fmt::format("{} {}", Name(s.norm), where);
}

std::string Windows(const ModelSpec& s) {
  std::map<int64_t, int64_t> layers;  // by window
  for (int64_t i = 0; i < s.layers; ++i) ++layers[s.Window(i)];
  std::vector<std::string> parts;
  for (const auto& [window, count] : layers) {
    parts.push_back(window == 0 ? fmt::format("{} layers see all keys", count)
                                : fmt::format("{} layers see {} keys", count, window));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::string Attention(const ModelSpec& s) {
  std::string text = fmt::format("{} heads of {}", s.heads, s.head_dim);
  if (s.kv_heads != s.heads) text += fmt::format(", {} key-value", s.kv_heads);
  if (!s.windows.empty()) text += ", " + Windows(s);
  if (s.attention_cap > 0) text += fmt::format(", scores capped at {}", s.attention_cap);
  if (s.attention_scale > 0) text += fmt::format(", scores times {:.4g}", s.attention_scale);
  return text;
}

std::string PositionsOf(const ModelSpec& s) {
  std::string text = Name(s.positions);
  if (s.positions == Positions::kRotary) {
    text += fmt::format(", base {}", s.rope_base);
    if (s.rope_base_of_windows > 0)
      text += fmt::format(" ({} in layers with a window)", s.rope_base_of_windows);
    if (s.rope_scaling.kind != RopeScaling::Kind::kNone)
      text +=
          fmt::format(", scaled by {} ({}{})", s.rope_scaling.factor, Name(s.rope_scaling.kind),
                      s.rope_scaling_of_windows || s.windows.empty() ? "" : ", not behind windows");
    if (s.RotaryWidth() < s.head_dim)
      text += fmt::format(", {} of {} columns turn", s.RotaryWidth(), s.head_dim);
  }
  return fmt::format("{}, up to {}", text, s.max_positions);
}

// What multiplies numbers on their way; empty: nothing does.
std::string Scales(const ModelSpec& s) {
  std::vector<std::string> all;
  if (s.embedding_scale != 1)
    all.push_back(fmt::format("embeddings times {:.4g}", s.embedding_scale));
  if (s.residual_scale != 1)
    all.push_back(fmt::format("outputs of attention and MLP times {:.4g}", s.residual_scale));
  if (s.logit_scale != 1) all.push_back(fmt::format("logits divided by {:.4g}", s.logit_scale));
  return fmt::format("{}", fmt::join(all, ", "));
}

std::string Biases(const ModelSpec& s) {
  std::vector<std::string> where;
  if (s.qkv_bias) where.emplace_back("query, key, value");
  if (s.has_out_bias()) where.emplace_back("attention output");
  if (s.linear_bias) where.emplace_back("MLP");
  if (s.head_bias) where.emplace_back("logits");
  return where.empty() ? "none" : fmt::format("{}", fmt::join(where, ", "));
}

std::string Transformer(const ModelSpec& s) {
  const int64_t decoder = s.decoder_layers;
  std::string text = ModelLine(
      "layers", fmt::format("{}{} of width {}{}", s.layers,
                            decoder > 0 ? fmt::format(" + {} decoder layers", decoder) : "",
                            s.hidden, s.parallel ? ", attention and MLP side by side" : ""));
  text += ModelLine("attention", Attention(s));
  text += ModelLine("MLP",
                    fmt::format("{} wide, {}{}", s.ffn, Name(s.activation),
                                s.gated && s.activation != Activation::kSwiglu ? ", gated" : ""));
  text += ModelLine("norms", Norms(s));
  text += ModelLine("biases", Biases(s));
  text += ModelLine("positions", PositionsOf(s));
  if (const std::string scales = Scales(s); !scales.empty()) text += ModelLine("scales", scales);
  text += ModelLine(
      "vocabulary",
      fmt::format("{}, output matrix {}{}", s.vocab, s.tied_embeddings ? "tied" : "of its own",
                  s.logit_cap > 0 ? fmt::format(", logits capped at {}", s.logit_cap) : ""));
  return text;
}

std::string Parameters(const ModelSpec& s) {
  const ParameterCount count = CountParameters(s);
  Table table({{"parameters", false}, {"of one", true}, {"number", true}, {"all", true}});
  const auto row = [&](const char* what, int64_t one, int64_t number) {
    if (one * number > 0)
      table.Row({what, Exact(one), std::to_string(number), Exact(one * number)});
  };
  row("embedding", count.embedding, 1);
  row("layer", count.per_layer, s.layers);
  row("decoder layer", count.per_decoder_layer, s.decoder_layers);
  row("relative positions", count.relative_bias, 1);
  row("final norm", count.final_norm, 1);
  row("pooler", count.pooler, 1);
  row("head", count.head, 1);
  table.Row({"total", "", "", Exact(count.total)});
  return table.Text();
}

}  // namespace

std::string ModelText(const LoadedModel& model) {
  const ModelSpec& s = model.spec;
  std::string text = fmt::format("{}: {}, {} parameters\n", s.name, Name(s.family),
                                 Count(static_cast<double>(CountParameters(s).total)));
  text += ModelLine("read from", ShownPath(model.origin));
  text += s.family == Family::kMlp ? ModelLine("layers", fmt::format("{} linear", s.layers))
                                   : Transformer(s);
  text += "\n" + Parameters(s);
  if (!model.notes.empty() || !s.untrained.empty()) text += "\nAssumptions\n";
  for (const std::string& note : model.notes) text += "  - " + Fold(note, 4) + "\n";
  if (!s.untrained.empty()) {
    text += "  - " +
            Fold(fmt::format("costs nothing in a plan, and `plan run` refuses it: {}",
                             fmt::join(s.untrained, ", ")),
                 4) +
            "\n";
  }
  if (model.without_effect.empty()) return text;
  std::map<std::string, std::vector<std::string>> by_reason;
  for (const auto& [key, reason] : model.without_effect) by_reason[reason].push_back(key);
  text += "\nKeys without effect here; every other key was used\n";
  for (const auto& [reason, keys] : by_reason)
    text += "  - " + Fold(fmt::format("{}: {}", reason, fmt::join(keys, ", ")), 4) + "\n";
  return text;
}

namespace {

// The keys of this project's model files; what is as most models have it, and said by no other key, is left out.
nlohmann::ordered_json Architecture(const ModelSpec& s) {
  nlohmann::ordered_json json = {{"layers", s.layers}};
  if (s.family == Family::kMlp) {
    json["in_features"] = s.in_features;
    json["out_features"] = s.out_features;
    if (s.layers > 1) json["hidden"] = s.hidden;
    json["activation"] = Name(s.activation);
    json["linear_bias"] = s.linear_bias;
    return json;
  }
  const auto number = [&](const char* key, auto value, auto usual) {
    if (value != usual) json[key] = value;
  };
  number("decoder_layers", s.decoder_layers, 0);
  for (const auto& [key, value] : {std::pair{"hidden", s.hidden},
                                   {"ffn", s.ffn},
                                   {"heads", s.heads},
                                   {"kv_heads", s.kv_heads},
                                   {"head_dim", s.head_dim},
                                   {"vocab", s.vocab},
                                   {"max_positions", s.max_positions}})
    json[key] = value;
  number("token_types", s.token_types, 0);
  json["norm"] = Name(s.norm);
  json["norm_epsilon"] = s.norm_epsilon;
  for (const auto& [key, value] : {std::pair{"input_norm", s.input_norm && !s.post_norm},
                                   {"output_norm", s.output_norm},
                                   {"post_norm", s.post_norm},
                                   {"embedding_norm", s.embedding_norm}})
    json[key] = value;
  json["qk_norm"] = Name(s.qk_norm);
  json["activation"] = Name(s.activation);
  for (const auto& [key, value] : {std::pair{"gated", s.gated},
                                   {"parallel", s.parallel},
                                   {"shared_norm", s.shared_norm},
                                   {"linear_bias", s.linear_bias},
                                   {"qkv_bias", s.qkv_bias},
                                   {"out_bias", s.has_out_bias()},
                                   {"head_bias", s.head_bias},
                                   {"tied_embeddings", s.tied_embeddings},
                                   {"pooler", s.pooler},
                                   {"head_transform", s.head_transform}})
    json[key] = value;
  json["positions"] = Name(s.positions);
  number("relative_buckets", s.relative_buckets, 0);
  if (s.positions == Positions::kRotary) {
    json["rope_base"] = s.rope_base;
    number("rope_base_of_windows", s.rope_base_of_windows, 0.0);
    json["rotary_width"] = s.RotaryWidth();
    if (s.rope_scaling.kind != RopeScaling::Kind::kNone)
      json["rope_scaling"] = {{"rope_type", Name(s.rope_scaling.kind)},
                              {"factor", s.rope_scaling.factor},
                              {"of_windows", s.rope_scaling_of_windows}};
  }
  number("attention_cap", s.attention_cap, 0.0);
  number("attention_scale", s.attention_scale, 0.0);
  number("logit_cap", s.logit_cap, 0.0);
  number("embedding_scale", s.embedding_scale, 1.0);
  number("residual_scale", s.residual_scale, 1.0);
  number("logit_scale", s.logit_scale, 1.0);
  for (int64_t i = 0; !s.windows.empty() && i < s.layers; ++i)
    json["windows_by_layer"].push_back(s.Window(i));
  return json;
}

nlohmann::ordered_json ParametersJson(const ModelSpec& s) {
  const ParameterCount count = CountParameters(s);
  nlohmann::ordered_json json = {{"total", count.total}};
  for (const auto& [key, value] : {std::pair{"embedding", count.embedding},
                                   {"per_layer", count.per_layer},
                                   {"per_decoder_layer", count.per_decoder_layer},
                                   {"relative_positions", count.relative_bias},
                                   {"final_norm", count.final_norm},
                                   {"pooler", count.pooler},
                                   {"head", count.head}}) {
    if (value > 0) json[key] = value;
  }
  return json;
}

}  // namespace

nlohmann::ordered_json ModelJson(const LoadedModel& model) {
  const ModelSpec& s = model.spec;
  nlohmann::ordered_json json = {{"schema", "orrery.model/1"},
                                 {"name", s.name},
                                 {"family", Name(s.family)},
                                 {"file", ShownPath(model.origin)}};
  json["architecture"] = Architecture(s);
  json["parameters"] = ParametersJson(s);
  json["assumptions"] = model.notes;
  json["priced_only"] = s.untrained;  // costs nothing in a plan, and `plan run` refuses it
  json["without_effect"] = model.without_effect;
  return json;
}

}  // namespace orrery::report
