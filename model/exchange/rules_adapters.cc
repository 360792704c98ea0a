// SPDX-License-Identifier: Apache-2.0
// Adapters as Megatron-Bridge and programs around HuggingFace's Trainer are told of them.
//
// huggingface/trl, trl/trainer/model_config.py (ModelConfig): use_peft, lora_r, lora_alpha, ..., load_in_4bit; hiyouga/LLaMA-Factory,
// src/llamafactory/hparams/finetuning_args.py (LoraArguments, FinetuningArguments) and model_args.py: finetuning_type, lora_rank, ...
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "model/base/plain_text.h"
#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

constexpr const char* kMadeInTheProgram = "adapters (PEFT's LoraConfig) are made in the program";

// The keys of one of the two programs and its defaults.
struct AdapterKeys {
  const Setting* on;  // that asks for adapters
  const char *rank, *alpha, *targets, *whole;
  const char* default_rank;
  double default_scale;  // alpha / rank; 0: alpha is 32
};

std::optional<AdapterKeys> AdaptersAsked(const SettingIndex& settings) {
  const Setting* trl = settings.Find("args.use_peft");
  if (trl != nullptr && !Off(trl->value))
    return AdapterKeys{trl,
                       "args.lora_r",
                       "args.lora_alpha",
                       "args.lora_target_modules",
                       "args.lora_modules_to_save",
                       "16",
                       0};
  const Setting* kind = settings.Find("args.finetuning_type");
  if (kind == nullptr || kind->value != "lora") return std::nullopt;
  return AdapterKeys{
      kind, "args.lora_rank", "args.lora_alpha", "args.lora_target", "args.additional_target", "8",
      2};
}

const Setting* Truly(const SettingIndex& settings, const char* key) {
  const Setting* found = settings.Find(key);
  const bool empty = found != nullptr && !found->flag && found->value.empty();  // a list of none
  return found != nullptr && !empty && !Off(found->value) && found->value != "0" ? found : nullptr;
}

[[noreturn]] void RefuseBesides(const Setting& setting, const char* what) {
  throw InputError({{setting.where, fmt::format("{} ({}) are not modelled", what, setting.key),
                     "omit it to predict the adapters alone"}});
}

// LLaMA-Factory's other kinds train some of the weights, or other adapters.
void CheckKindOfTuning(const SettingIndex& settings) {
  const Setting* kind = settings.Find("args.finetuning_type");
  if (kind == nullptr || kind->value == "lora" || kind->value == "full") return;
  throw InputError({{kind->where,
                     kind->value == "freeze"
                         ? "finetuning_type freeze is not modelled: some layers alone are trained"
                         : fmt::format("finetuning_type {} is not modelled", kind->value),
                     "lora or full; --lora-rank N for adapters that are near"}});
}

std::optional<Value> RankOfAdapters(const SettingIndex& settings) {
  CheckKindOfTuning(settings);
  const auto keys = AdaptersAsked(settings);
  if (!keys) return std::nullopt;
  if (const Setting* dora = Truly(settings, "args.use_dora"))
    RefuseBesides(*dora, "DoRA's magnitudes");
  if (const Setting* whole = Truly(settings, keys->whole))
    RefuseBesides(*whole, "modules that are trained whole");
  const Setting* rank = settings.Find(keys->rank);
  return rank != nullptr ? From(rank, rank->value) : From(keys->on, keys->default_rank);
}

// alpha / rank is the scale, alpha / sqrt(rank) with use_rslora.
std::optional<Value> AlphaOfAdapters(const SettingIndex& settings, const Values& values) {
  const auto keys = AdaptersAsked(settings);
  if (!keys) return std::nullopt;
  const auto rank = static_cast<double>(NumberOf(values, "lora", 1));
  const Setting* said = settings.Find(keys->alpha);
  double alpha = keys->default_scale > 0 ? keys->default_scale * rank : 32;
  if (said != nullptr && ParseNumber(said->value, &alpha) != NumberFault::kNone)
    return From(said, said->value);
  if (Truly(settings, "args.use_rslora") != nullptr) alpha *= std::sqrt(rank);
  return From(said != nullptr ? said : keys->on, fmt::format("{}", alpha));
}

std::optional<Value> TargetsOfAdapters(const SettingIndex& settings) {
  const auto keys = AdaptersAsked(settings);
  if (!keys) return std::nullopt;
  const Setting* targets = settings.Find(keys->targets);
  const bool factory = keys->default_scale > 0;
  if (targets == nullptr || Off(targets->value) || targets->value.empty())
    return From(keys->on, factory ? "all-linear" : "peft");  // PEFT's own for the class of models
  if (factory && targets->value == "all") return From(targets, "all-linear");
  return From(targets, fmt::format("{}", fmt::join(WordsOf(targets->value), ",")));
}

// bitsandbytes' types by default.
std::optional<Value> BaseOfAdapters(const SettingIndex& settings) {
  if (!AdaptersAsked(settings)) return std::nullopt;
  if (const Setting* four = Truly(settings, "args.load_in_4bit")) return From(four, "nf4");
  if (const Setting* eight = Truly(settings, "args.load_in_8bit")) return From(eight, "int8");
  const Setting* bits = settings.Find("args.quantization_bit");
  if (bits == nullptr || Off(bits->value)) return std::nullopt;
  if (bits->value == "4") return From(bits, "nf4");
  if (bits->value == "8") return From(bits, "int8");
  throw InputError(
      {{bits->where, fmt::format("frozen weights in {} bits are not modelled", bits->value),
        "4 or 8"}});
}

// NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/recipes/llama/h100/llama3.py: LoRA of the recipes for fine-tuning.
struct RecipeLora {
  const char *size, *rank, *alpha;
};
constexpr RecipeLora kRecipeLora[] = {
    {"_8b_", "8", "16"}, {"_70b_", "16", "32"}, {"_405b_", "16", "32"}};

// Of a recipe with adapters, unless they are switched off; null: of another.
const RecipeLora* LoraOfRecipe(const SettingIndex& settings) {
  const std::string recipe = settings.Peek("recipe");
  if (recipe.find("_peft_") == std::string::npos) return nullptr;
  if (const Setting* scheme = settings.Find("peft_scheme"); scheme != nullptr) {
    if (Off(scheme->value)) return nullptr;
    if (scheme->value != "lora")
      throw InputError(
          {{scheme->where, fmt::format("adapters of the kind {} are not modelled", scheme->value),
            "lora, or none for all weights"}});
  }
  const auto* row = std::ranges::find_if(kRecipeLora, [&](const RecipeLora& one) {
    return recipe.find(one.size) != std::string::npos;
  });
  return row == std::end(kRecipeLora) ? nullptr : row;
}

}  // namespace

Cell BridgeLora(const char* key) {
  const std::string name = key;
  const bool rank = name == "peft.dim";
  return Rule(
      [name, rank](const Case& c) {
        const Lora& lora = c.work.lora;
        return Say({Set(name, rank ? Text(lora.rank) : fmt::format("{}", lora.alpha))});
      },
      [name, rank](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const RecipeLora* own = LoraOfRecipe(settings);
        if (const Setting* said = settings.Find(name)) return From(said, said->value);
        if (own == nullptr) return std::nullopt;
        return From(settings.Find("recipe"), rank ? own->rank : own->alpha);
      });
}

Cell AccelerateLora(const char* field) {
  const std::string name = field;
  return Rule([](const Case&) { return No(kMadeInTheProgram); },
              [name](const SettingIndex& settings, const Values& values) {
                return name == "lora"           ? RankOfAdapters(settings)
                       : name == "lora_alpha"   ? AlphaOfAdapters(settings, values)
                       : name == "lora_targets" ? TargetsOfAdapters(settings)
                                                : BaseOfAdapters(settings);
              });
}

}  // namespace orrery::exchange
