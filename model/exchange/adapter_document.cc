// SPDX-License-Identifier: Apache-2.0
// Adapters as HuggingFace's PEFT saves them (adapter_config.json) as the flags of a fine-tuning.
//
// Keys and what they do: huggingface/peft, src/peft/tuners/lora/config.py (LoraConfig) and src/peft/config.py.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "model/base/plain_text.h"
#include "model/base/yaml_tree.h"
#include "model/exchange/document.h"
#include "model/exchange/model_arguments.h"
#include "model/exchange/spellings.h"
#include "model/framework/presets.h"

namespace orrery::exchange {
namespace {

enum class AdapterMeaning {
  kRead,      // by ReadAdapters() itself
  kNothing,   // neither time nor memory of a step
  kUnpriced,  // changes the mathematics, and next to nothing of time or memory
  kRefused,   // other weights are trained, or other products computed
};
struct AdapterKey {
  const char* name;
  AdapterMeaning meaning;
  const char* what = "";
};
constexpr AdapterKey kAdapterKeys[] = {
    {"peft_type", AdapterMeaning::kRead},
    {"r", AdapterMeaning::kRead},
    {"lora_alpha", AdapterMeaning::kRead},
    {"use_rslora", AdapterMeaning::kRead},
    {"target_modules", AdapterMeaning::kRead},
    {"base_model_name_or_path", AdapterMeaning::kRead},
    {"bias", AdapterMeaning::kRead},
    {"task_type", AdapterMeaning::kNothing},
    {"auto_mapping", AdapterMeaning::kNothing},
    {"revision", AdapterMeaning::kNothing},
    {"parent_library", AdapterMeaning::kNothing},
    {"inference_mode", AdapterMeaning::kNothing},  // on in each file that PEFT saves
    {"fan_in_fan_out", AdapterMeaning::kNothing},
    {"init_lora_weights", AdapterMeaning::kNothing},
    {"loftq_config", AdapterMeaning::kNothing},
    {"eva_config", AdapterMeaning::kNothing},
    {"corda_config", AdapterMeaning::kNothing},
    {"layers_pattern", AdapterMeaning::kNothing},  // of layers_to_transform
    {"megatron_config", AdapterMeaning::kNothing},
    {"megatron_core", AdapterMeaning::kNothing},
    {"runtime_config", AdapterMeaning::kNothing},
    {"peft_version", AdapterMeaning::kNothing},
    {"qalora_group_size", AdapterMeaning::kNothing},  // of use_qalora
    {"ensure_weight_tying", AdapterMeaning::kNothing},
    {"lora_dropout", AdapterMeaning::kUnpriced, "dropout in front of adapters"},
    {"alpha_pattern", AdapterMeaning::kUnpriced, "scales of their own for some modules"},
    {"lora_bias", AdapterMeaning::kUnpriced, "biases of adapters"},
    {"modules_to_save", AdapterMeaning::kRefused, "modules that are trained whole"},
    {"trainable_token_indices", AdapterMeaning::kRefused, "rows of the embedding that are trained"},
    {"use_dora", AdapterMeaning::kRefused, "DoRA's magnitudes"},
    {"use_qalora", AdapterMeaning::kRefused, "QALoRA"},
    {"rank_pattern", AdapterMeaning::kRefused, "ranks of their own for some modules"},
    {"layers_to_transform", AdapterMeaning::kRefused, "adapters on some layers alone"},
    {"layer_replication", AdapterMeaning::kRefused, "layers that are repeated"},
    {"exclude_modules", AdapterMeaning::kRefused, "modules without adapters"},
    {"target_parameters", AdapterMeaning::kRefused, "adapters on parameters"},
    {"alora_invocation_tokens", AdapterMeaning::kRefused, "adapters behind a token alone"},
    {"arrow_config", AdapterMeaning::kRefused, "routing among adapters"},
};

const YamlTree* AdapterMember(const YamlTree& root, std::string_view key) {
  const auto at = std::ranges::find(root.members, key, &YamlTree::Member::key);
  return at == root.members.end() ? nullptr : at->value.get();
}
// As if the key were not there.
bool SaysNothing(const YamlTree& value) {
  double number = 1;
  switch (value.kind) {
    case YamlTree::Kind::kNull:
      return true;
    case YamlTree::Kind::kMap:
      return value.members.empty();
    case YamlTree::Kind::kSequence:
      return value.elements.empty();
    case YamlTree::Kind::kScalar:
      break;
  }
  return value.text.empty() || (!value.quoted && Off(value.text)) ||
         (ParseNumber(value.text, &number) == NumberFault::kNone && number == 0);
}
std::string ValueWords(const YamlTree& value) {
  if (value.kind == YamlTree::Kind::kScalar) return value.text;
  std::vector<std::string> words;
  for (const auto& element : value.elements) words.push_back(element->text);
  for (const YamlTree::Member& member : value.members) words.push_back(member.key);
  return fmt::format("{}", fmt::join(words, ", "));
}

[[noreturn]] void RefuseAdapters(const Location& where, std::string what, std::string hint) {
  throw InputError({{where, std::move(what), std::move(hint)}});
}

// PEFT matches a string as a pattern, and a list by the ends of names.
std::string AdaptedModules(const YamlTree& root) {
  constexpr const char* kHint =
      "a list of modules, such as [\"q_proj\", \"v_proj\"], or \"all-linear\"";
  const YamlTree* targets = AdapterMember(root, "target_modules");
  if (targets == nullptr || SaysNothing(*targets))
    return "peft";  // its choice for the class of models
  if (targets->kind == YamlTree::Kind::kScalar &&
      targets->text.find_first_of("\\*|()[].^$+?") != std::string::npos)
    RefuseAdapters(targets->where,
                   fmt::format("target_modules '{}' is a pattern of names", targets->text), kHint);
  const bool words = std::ranges::all_of(targets->elements, [](const auto& element) {
    return element->kind == YamlTree::Kind::kScalar && !element->text.empty();
  });
  if (!words || targets->kind == YamlTree::Kind::kMap)
    RefuseAdapters(targets->where, "target_modules is no list of names", kHint);
  std::string list = ValueWords(*targets);
  std::erase(list, ' ');
  return list;
}

// alpha / rank is the scale, alpha / sqrt(rank) with use_rslora.
std::string AlphaOf(const YamlTree& root, const YamlTree& rank, const YamlTree& alpha) {
  const YamlTree* root_of_rank = AdapterMember(root, "use_rslora");
  double scale = 0, r = 0;
  if (root_of_rank == nullptr || SaysNothing(*root_of_rank) ||
      ParseNumber(alpha.text, &scale) != NumberFault::kNone ||
      ParseNumber(rank.text, &r) != NumberFault::kNone || r < 1)
    return alpha.text;
  return fmt::format("{}", scale * std::sqrt(r));
}

}  // namespace

std::string CatalogueModel(const std::string& path) {
  std::string name = path.substr(path.rfind('/') + 1);
  for (const char* end : {"-Instruct", "-instruct", "-hf", "-chat"}) {
    if (name.ends_with(end)) name.resize(name.size() - std::string_view(end).size());
  }
  if (const RegistryRow* row = RegistryByHub(name); row != nullptr) return row->model;
  for (const std::string& model : ModelNames()) {
    if (FoldedName(model) == FoldedName(name)) return model;
  }
  return "";
}

namespace {

void CheckAdapterKeys(const YamlTree& root, Document* document) {
  std::vector<std::string> unknown;
  for (const YamlTree::Member& member : root.members) {
    const auto key =
        std::ranges::find(kAdapterKeys, member.key, [](const AdapterKey& one) { return one.name; });
    if (key == std::end(kAdapterKeys)) {
      if (!SaysNothing(*member.value)) unknown.push_back(member.key);
    } else if (!SaysNothing(*member.value) && key->meaning == AdapterMeaning::kUnpriced) {
      document->notes.push_back(
          fmt::format("{}: not modelled: {} ({} {}); the prediction is without",
                      Place(member.value->where), key->what, key->name, ValueWords(*member.value)));
    } else if (!SaysNothing(*member.value) && key->meaning == AdapterMeaning::kRefused) {
      RefuseAdapters(member.value->where.line > 0 ? member.value->where : root.where,
                     fmt::format("{} ({} {}) are not modelled", key->what, key->name,
                                 ValueWords(*member.value)),
                     "omit it to predict the adapters alone");
    }
  }
  if (!unknown.empty())
    document->notes.push_back(fmt::format("{}: keys that are not known here, and not priced: {}",
                                          document->source->name, fmt::join(unknown, ", ")));
}

}  // namespace

bool AdapterKeyMatters(std::string_view key) {
  const auto row =
      std::ranges::find(kAdapterKeys, key, [](const AdapterKey& one) { return one.name; });
  return row == std::end(kAdapterKeys) || row->meaning == AdapterMeaning::kUnpriced ||
         row->meaning == AdapterMeaning::kRefused;
}

bool IsAdapterConfig(const YamlTree& root) {
  return AdapterMember(root, "peft_type") != nullptr ||
         (AdapterMember(root, "lora_alpha") != nullptr &&
          AdapterMember(root, "target_modules") != nullptr);
}

Document ReadAdapters(const SourcePtr& source, const YamlTree& root) {
  Document document{source, "adapters of PEFT", std::nullopt, {}, {}};
  const YamlTree* type = AdapterMember(root, "peft_type");
  if (type != nullptr && !SaysNothing(*type) && type->text != "LORA")
    RefuseAdapters(type->where, fmt::format("adapters of the kind {} are not modelled", type->text),
                   "LORA");
  const YamlTree* rank = AdapterMember(root, "r");
  if (rank == nullptr || rank->kind != YamlTree::Kind::kScalar)
    RefuseAdapters({source, 1, 1}, fmt::format("{} says no rank", source->name), "\"r\": 16");
  CheckAdapterKeys(root, &document);
  if (const YamlTree* bias = AdapterMember(root, "bias");
      bias != nullptr && !SaysNothing(*bias) && bias->text != "none")
    document.notes.push_back(fmt::format(
        "{}: not modelled: biases that are trained (bias {}); the prediction is without",
        Place(bias->where), bias->text));
  const auto add = [&](const char* field, std::string value, const Location& where) {
    document.settings.push_back({field, std::move(value), where, ""});
  };
  add("field.lora", rank->text, rank->where);
  if (const YamlTree* alpha = AdapterMember(root, "lora_alpha");
      alpha != nullptr && !SaysNothing(*alpha))
    add("field.lora_alpha", AlphaOf(root, *rank, *alpha), alpha->where);
  else
    add("field.lora_alpha", "8", rank->where);  // PEFT's
  const YamlTree* targets = AdapterMember(root, "target_modules");
  add("field.lora_targets", AdaptedModules(root),
      targets != nullptr ? targets->where : rank->where);
  if (const YamlTree* base = AdapterMember(root, "base_model_name_or_path");
      base != nullptr && !SaysNothing(*base)) {
    const std::string model = CatalogueModel(base->text);
    add(model.empty() ? "field.base_model" : "field.model", model.empty() ? base->text : model,
        base->where);
  }
  return document;
}

}  // namespace orrery::exchange
