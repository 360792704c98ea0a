// SPDX-License-Identifier: Apache-2.0
// Prints a model as it was read.
#include "model/program/plan/model_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

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

}  // namespace orrery::report
