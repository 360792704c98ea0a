// SPDX-License-Identifier: Apache-2.0
// Models of the catalogue by the names that torchtitan, Megatron-Bridge and HuggingFace have for them.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>

#include "model/exchange/model_arguments.h"

namespace orrery::exchange {
namespace {

constexpr RegistryRow kRegistry[] = {
    {"llama3-8b", "llama3", "8B", "llama3_8b", "llama3_8b_pretrain_config",
     "meta-llama/Meta-Llama-3-8B"},
    {"llama3-70b", "llama3", "70B", "llama3_70b", "llama3_70b_pretrain_config",
     "meta-llama/Meta-Llama-3-70B"},
    {"llama3-405b", "llama3", "405B", "llama3_405b", "llama31_405b_pretrain_config",
     "meta-llama/Llama-3.1-405B"},
    {"llama3.1-405b", "llama3", "405B", "llama3_405b", "llama31_405b_pretrain_config",
     "meta-llama/Llama-3.1-405B"},
};

}  // namespace

const RegistryRow* FindRegistry(const std::string& model) {
  for (const RegistryRow& row : kRegistry) {
    if (model == row.model) return &row;
  }
  return nullptr;
}

std::string FlavorNames() {
  std::string names;
  for (const RegistryRow& row : kRegistry) {
    const std::string name = fmt::format("{} {}", row.module, row.flavor);
    if (names.find(name) == std::string::npos) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

const RegistryRow* RegistryIn(const Settings& settings) {
  const auto at = [&](const char* key) {
    const auto found = std::ranges::find(settings, key, &Setting::key);
    return found == settings.end() ? std::string() : found->value;
  };
  const std::string module = at("model.name"), flavor = at("model.flavor"), recipe = at("recipe");
  constexpr const char* kDimensions[] = {"model.num_layers", "model.hidden_size",
                                         "model.ffn_hidden_size", "model.num_attention_heads",
                                         "model.num_query_groups"};
  const bool own = std::ranges::any_of(kDimensions, [&](const char* key) {
    return std::ranges::find(settings, key, &Setting::key) != settings.end();
  });
  for (const RegistryRow& row : kRegistry) {
    if (module == row.module && flavor == row.flavor) return &row;
    if (module.empty() && flavor == row.config) return &row;
    if (at("module") == row.module && at("config") == row.config) return &row;
    // "llama3_8b_" of pretraining, adapters and lengths.
    const std::string_view pretrain = row.recipe;
    if (!own && recipe.starts_with(pretrain.substr(0, pretrain.find("pretrain_config"))))
      return &row;
  }
  return nullptr;
}

const RegistryRow* RegistryByHub(std::string_view name) {
  const auto row = std::ranges::find_if(kRegistry, [&](const RegistryRow& one) {
    const std::string_view hub = one.hub;
    return hub.substr(hub.rfind('/') + 1) == name;
  });
  return row == std::end(kRegistry) ? nullptr : row;
}

}  // namespace orrery::exchange
