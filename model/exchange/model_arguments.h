// SPDX-License-Identifier: Apache-2.0
// The model, as targets name it: Megatron's arguments, torchtitan's flavours, Bridge's recipes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/arch/catalogue.h"
#include "model/exchange/mapping.h"

namespace orrery::exchange {

struct ModelExport {
  Settings settings;
  std::vector<std::string> missing;  // what of the model the target cannot be told
};

// Megatron-LM's arguments of a model, vocabulary and tokenizer apart.
ModelExport MegatronModel(const ModelSpec& model);
// The program of Megatron-LM that trains such a model: "pretrain_gpt.py"; "": none does.
std::string MegatronProgram(const ModelSpec& model);

// The model that Megatron's arguments describe: of the catalogue where one is the same, else one of its own; nullopt: they
// describe none. Throws InputError: a model that is not modelled, such as a mixture of experts.
// num-layers, which is also called encoder-num-layers; null: neither. Throws InputError: they differ.
const Setting* LayersOfMegatron(const SettingIndex& settings);
std::optional<LoadedModel> ModelOfMegatron(const SettingIndex& settings);

// Where a catalogue model is in a target's own registry; null: it is not.
struct RegistryRow {
  const char* model;   // of `plan list models`
  const char* module;  // torchtitan: [model] name
  const char* flavor;  // torchtitan
  const char* config;  // torchtitan: function of its registry
  const char* recipe;  // Megatron-Bridge
  const char* hub;     // HuggingFace
};
const RegistryRow* FindRegistry(const std::string& model);
// "llama3 8B, llama3 70B"
std::string FlavorNames();
// The model that settings name: torchtitan's by module and flavor or by the function of its registry, that of a Bridge recipe
// unless other settings give its dimensions. Null: none that is known here.
const RegistryRow* RegistryIn(const Settings& settings);
// By the name of its repository on HuggingFace, without the owner.
const RegistryRow* RegistryByHub(std::string_view name);

}  // namespace orrery::exchange
