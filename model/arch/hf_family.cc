// SPDX-License-Identifier: Apache-2.0
// Tells the architecture of a HuggingFace config.json, also of one that does not name it.
#include "model/arch/hf_family.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace orrery {
namespace {

// Keys that only one family's configuration has; the first row that fits decides.
struct Evidence {
  const char* model_type;
  std::vector<const char*> keys;
};
const Evidence kEvidence[] = {
    {"t5", {"d_model", "relative_attention_num_buckets"}},
    {"t5", {"d_model", "d_kv", "d_ff"}},
    {"opt", {"ffn_dim", "do_layer_norm_before"}},
    {"opt", {"ffn_dim", "word_embed_proj_dim"}},
    {"bloom", {"apply_residual_connection_post_layernorm"}},
    {"gpt_neox", {"rotary_pct", "hidden_size"}},
    {"gpt2", {"n_embd", "n_head"}},
    {"llama", {"rms_norm_eps", "hidden_size"}},
    {"llama", {"num_key_value_heads", "hidden_size"}},
    {"bert", {"type_vocab_size", "hidden_size"}},
};

// Keys of architectures that would be misread as one of the above.
constexpr std::pair<const char*, const char*> kRefused[] = {
    {"num_local_experts", "a mixture of experts"},
    {"num_experts", "a mixture of experts"},
    {"n_routed_experts", "a mixture of experts"},
    {"rotary_dim", "GPT-J"},
    {"multi_query", "Falcon"},
    {"new_decoder_architecture", "Falcon"},
    {"q_lora_rank", "multi-head latent attention"},
    {"vision_config", "a vision model"},
    {"text_config", "a multi-modal model"},
};

const HfFamily* FindType(std::string_view type) {
  for (const HfFamily& family : HfFamilies()) {
    if (family.model_type == type) return &family;
  }
  return nullptr;
}

// LlamaForCausalLM, BertModel, GPT2LMHeadModel; not MistralGPT2LMHeadModel as a Mistral.
bool IsClassOf(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return false;
  const std::string_view rest = name.substr(prefix.size());
  return rest.starts_with("For") || rest.starts_with("Model") || rest.starts_with("LMHead") ||
         rest.starts_with("DoubleHeads");
}

const HfFamily* FindByClass(const Node& node, std::vector<std::string>* notes) {
  if (!node.Has("architectures")) return nullptr;
  for (const Node& element : node.Items("architectures")) {
    const std::string name = element.AsString();
    for (const HfFamily& family : HfFamilies()) {
      if (!IsClassOf(name, family.class_prefix)) continue;
      notes->push_back(
          fmt::format("the file has no model_type: taken as {} because its architecture is {}",
                      family.model_type, name));
      return &family;
    }
  }
  return nullptr;
}

const HfFamily* FindByKeys(const Node& node, std::vector<std::string>* notes) {
  for (const Evidence& row : kEvidence) {
    const bool fits = std::all_of(row.keys.begin(), row.keys.end(),
                                  [&](const char* key) { return node.Has(key); });
    if (!fits) continue;
    notes->push_back(fmt::format("the file has no model_type: taken as {} because it has {}",
                                 row.model_type, fmt::join(row.keys, " and ")));
    return FindType(row.model_type);
  }
  return nullptr;
}

bool IsRefused(const Node& node) {
  for (const auto& [key, what] : kRefused) {
    if (!node.Has(key)) continue;
    node.ErrorAt(key, fmt::format("this is {}, which cannot be planned yet", what),
                 "supported families: " + SupportedHfFamilies());
    return true;
  }
  return false;
}

}  // namespace

std::string SupportedHfFamilies() {
  std::vector<std::string> names;
  for (const HfFamily& family : HfFamilies()) names.emplace_back(family.model_type);
  return fmt::format("{}", fmt::join(names, ", "));
}

const HfFamily* FindHfFamily(const Node& node, std::vector<std::string>* notes) {
  if (node.Has("model_type")) {
    const std::string type = node.String("model_type");
    const HfFamily* family = FindType(type);
    if (family == nullptr && node.diagnostics()->ok()) {
      node.ErrorAt("model_type", fmt::format("unknown model family '{}'", type),
                   "supported families: " + SupportedHfFamilies());
    }
    return family;
  }
  if (IsRefused(node)) return nullptr;
  const HfFamily* family = FindByClass(node, notes);
  if (family == nullptr && node.diagnostics()->ok()) family = FindByKeys(node, notes);
  if (family == nullptr && node.diagnostics()->ok()) {
    node.Error("no model_type, and the keys do not tell the model's family",
               "add \"model_type\", one of: " + SupportedHfFamilies());
  }
  return family;
}

}  // namespace orrery
