// SPDX-License-Identifier: Apache-2.0
// Writes a config.json from a model's description, by a family's rules the other way round.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>

#include "model/arch/enum_names.h"
#include "model/arch/hf_family.h"

namespace orrery {
namespace {

constexpr const char* Truth(bool value) { return value ? "true" : "false"; }

// By the keys of a model file (scenarios/models/README.md); without those that have no value.
std::map<std::string, std::string> DescriptionOf(const ModelSpec& m) {
  std::map<std::string, std::string> all = {
      {"layers", std::to_string(m.layers)},
      {"decoder_layers", std::to_string(m.decoder_layers)},
      {"hidden", std::to_string(m.hidden)},
      {"ffn", std::to_string(m.ffn)},
      {"heads", std::to_string(m.heads)},
      {"kv_heads", std::to_string(m.kv_heads)},
      {"head_dim", std::to_string(m.head_dim)},
      {"vocab", std::to_string(m.vocab)},
      {"max_positions", std::to_string(m.max_positions)},
      {"token_types", std::to_string(m.token_types)},
      {"relative_buckets", std::to_string(m.relative_buckets)},
      {"activation", Name(m.activation)},
      {"gated", Truth(m.gated)},
      {"norm", Name(m.norm)},
      {"norm_epsilon", fmt::format("{}", m.norm_epsilon)},
      {"positions", Name(m.positions)},
      {"rope_base", fmt::format("{}", m.rope_base)},
      {"rotary_share", fmt::format("{}", m.rotary_share)},
      {"rotary_width", std::to_string(m.RotaryWidth())},
      {"linear_bias", Truth(m.linear_bias)},
      {"qkv_bias", Truth(m.qkv_bias)},
      {"out_bias", Truth(m.has_out_bias())},
      {"head_bias", Truth(m.head_bias)},
      {"tied_embeddings", Truth(m.tied_embeddings)},
      {"post_norm", Truth(m.post_norm)},
      {"input_norm", Truth(m.input_norm)},
      {"output_norm", Truth(m.output_norm)},
      {"embedding_norm", Truth(m.embedding_norm)},
      {"parallel", Truth(m.parallel)},
      {"shared_norm", Truth(m.shared_norm)},
      {"head_transform", Truth(m.head_transform)},
      {"pooler", Truth(m.pooler)},
      {"embedding_scale", fmt::format("{}", m.embedding_scale)},
      {"residual_scale", fmt::format("{}", m.residual_scale)},
      {"logit_scale", fmt::format("{}", m.logit_scale)},
      {"windowed", Truth(!m.windows.empty())},
  };
  if (!m.windows.empty())
    all["window"] = std::to_string(*std::max_element(m.windows.begin(), m.windows.end()));
  if (m.windows.size() > 1) all["full_every"] = std::to_string(m.windows.size());
  if (m.rope_scaling.kind != RopeScaling::Kind::kNone)
    all["rope_scaling"] = HfRopeScaling(m.rope_scaling);
  if (m.rope_base_of_windows > 0)
    all["rope_base_of_windows"] = fmt::format("{}", m.rope_base_of_windows);
  if (m.attention_scale > 0) {
    const double divisor = 1 / (m.attention_scale * m.attention_scale), whole = std::round(divisor);
    all["attention_divisor"] =
        fmt::format("{}", 1 / std::sqrt(whole) == m.attention_scale ? whole : divisor);
  }
  if (m.attention_scale > 0) all["attention_scale"] = fmt::format("{}", m.attention_scale);
  if (m.attention_cap > 0) all["attention_cap"] = fmt::format("{}", m.attention_cap);
  if (m.logit_cap > 0) all["logit_cap"] = fmt::format("{}", m.logit_cap);
  return all;
}

// Numbers, truth values and objects as they are, others in quotes: names of this project's tables and of a family's YAML.
std::string JsonValue(const std::string& text) {
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool plain = text.starts_with('{') || text == "true" || text == "false" || text == "null" ||
                     (error == std::errc() && end == text.data() + text.size());
  return plain ? text : '"' + text + '"';
}

// The key of `values` that means `text`; runs compute gelu in its tanh form, so those names come first.
std::string Inverse(const Node& values, const std::string& text) {
  std::string found;
  for (const std::string& key : values.Keys()) {
    if (values.String(key) != text) continue;
    if (key == "gelu_new" || key == "gelu_pytorch_tanh") return key;
    if (found.empty()) found = key;
  }
  return found;
}

}  // namespace

std::string HfRopeScaling(const RopeScaling& rope) {
  std::string text =
      fmt::format("{{\"rope_type\": \"{}\", \"factor\": {}", Name(rope.kind), rope.factor);
  if (rope.kind == RopeScaling::Kind::kLinear) return text + "}";
  const bool yarn = rope.kind == RopeScaling::Kind::kYarn;
  text += fmt::format(", \"{}\": {}, \"{}\": {}", yarn ? "beta_slow" : "low_freq_factor", rope.low,
                      yarn ? "beta_fast" : "high_freq_factor", rope.high);
  text += fmt::format(", \"original_max_position_embeddings\": {}",
                      static_cast<int64_t>(rope.original));
  if (yarn)
    text += fmt::format(", \"attention_factor\": {}, \"truncate\": {}", rope.magnify,
                        Truth(rope.truncate));
  return text + "}";
}

std::string HfActivation(const std::string& family, const std::string& config) {
  Diagnostics diagnostics;
  const HfFamily rules = HfFamily::Load(family, &diagnostics);
  const Node file =
      Node::Parse(std::make_shared<const Source>(Source{"config.json", config}), &diagnostics);
  const std::string inside = rules.Text("inside");
  if (!diagnostics.ok() || (!inside.empty() && !file.Has(inside))) return "";
  const std::string name = rules.Find(inside.empty() ? file : file.Child(inside), "activation").key;
  return diagnostics.ok() ? name : "";
}

bool SameModel(ModelSpec a, ModelSpec b) {
  a.name = b.name;
  a.out_bias = a.has_out_bias();
  b.out_bias = b.has_out_bias();
  return a == b;
}

std::string HfFamily::ConfigText(const std::map<std::string, std::string>& description,
                                 const HfTensors& tensors) const {
  std::string text = fmt::format("{{\n  \"architectures\": [\"{}\"],\n  \"model_type\": \"{}\"",
                                 tensors.architecture, name_);
  std::set<std::string> described, written;
  const auto write = [&](const std::string& key, const std::string& value) {
    if (written.insert(key).second) text += fmt::format(",\n  \"{}\": {}", key, JsonValue(value));
  };
  for (const Node& file : files_) {
    const auto rules = file.Find("model");
    for (const std::string& key : rules ? rules->Keys() : std::vector<std::string>{}) {
      const auto rule = rules->Find(key);
      if (!described.insert(key).second || !rule || !rule->IsMap() || !rule->Has("key")) continue;
      const auto keys = rule->Find("key");
      const std::string name =
          keys->IsSequence() ? keys->Elements().front().AsString() : keys->AsString();
      const auto value = description.find(key);
      if (value == description.end()) {
        if (key == "window") write(name, "null");
        continue;
      }
      std::string said = value->second;
      if (const auto values = rule->Find("values")) said = Inverse(*values, said);
      if (const int64_t plus = rule->Integer("plus", -1000, 1000, 0); plus != 0)
        said = std::to_string(std::atoll(said.c_str()) - plus);
      if (!said.empty()) write(name, said);
    }
  }
  return text + "\n}\n";
}

std::string HfConfigText(const std::string& family, const ModelSpec& model) {
  Diagnostics diagnostics;
  const HfFamily rules = HfFamily::Load(family, &diagnostics);
  diagnostics.ThrowIfAny();
  const HfTensors tensors = rules.Tensors();
  if (!tensors.differs.empty()) return "";
  const std::string text = rules.ConfigText(DescriptionOf(model), tensors);
  try {
    const auto source = std::make_shared<const Source>(Source{"config.json", text});
    if (SameModel(ReadHfConfig(source, model.name).spec, model)) return text;
  } catch (const InputError&) {
  }
  return "";
}

}  // namespace orrery
