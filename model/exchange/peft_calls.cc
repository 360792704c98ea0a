// SPDX-License-Identifier: Apache-2.0
// LoraConfig(...), BitsAndBytesConfig(...), get_peft_model(...) and from_pretrained(...) as the flags of a fine-tuning.
//
// huggingface/peft, src/peft/tuners/lora/config.py; huggingface/transformers, src/transformers/utils/quantization_config.py.
#include "model/exchange/peft_calls.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>

#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

constexpr std::string_view kOtherKinds[] = {
    "AdaLoraConfig",      "BOFTConfig",         "BoneConfig",
    "C3AConfig",          "CPTConfig",          "FourierFTConfig",
    "HRAConfig",          "IA3Config",          "LNTuningConfig",
    "LoHaConfig",         "LoKrConfig",         "OFTConfig",
    "PolyConfig",         "PrefixTuningConfig", "PromptEncoderConfig",
    "PromptTuningConfig", "RandLoraConfig",     "TrainableTokensConfig",
    "VBLoRAConfig",       "VeraConfig",         "XLoraConfig"};
constexpr const char* kComputed = "is computed in the program";

// Arguments of LoraConfig without which its time and memory are unknown, by the field that a flag gives.
struct DecidingArgument {
  const char *name, *field, *flag;
};
constexpr DecidingArgument kDeciding[] = {
    {"r", "field.lora", "--lora-rank N"},
    {"target_modules", "field.lora_targets", "--lora-targets MAPS"}};

bool IsOn(const PythonArgument* argument) {
  return argument != nullptr && argument->value != nullptr &&
         argument->value->kind == YamlTree::Kind::kScalar && argument->value->text == "True";
}

// The calls that adapters are handed to.
bool TakesAdapters(const PythonCall& call) {
  return call.function == "get_peft_model" || call.function == "add_adapter" ||
         call.function.ends_with("Trainer");
}
bool IsHanded(const PythonCall& adapters, const std::vector<PythonCall>& calls) {
  return std::ranges::any_of(calls, [&](const PythonCall& taker) {
    if (!TakesAdapters(taker)) return false;
    if (adapters.begin > taker.begin && adapters.end <= taker.end) return true;
    return !adapters.variable.empty() &&
           std::ranges::any_of(taker.arguments, [&](const PythonArgument& argument) {
             return argument.code == adapters.variable;
           });
  });
}

// The one that is trained; null: there is none. Throws InputError: it is not known which.
const PythonCall* AdaptersMade(const std::vector<PythonCall>& calls) {
  std::vector<const PythonCall*> made, handed;
  for (const PythonCall& call : calls) {
    if (call.function != "LoraConfig") continue;
    made.push_back(&call);
    if (IsHanded(call, calls)) handed.push_back(&call);
  }
  if (made.size() == 1) return made.front();
  if (handed.size() == 1) return handed.front();
  if (made.empty()) return nullptr;
  throw InputError({{made[1]->where,
                     fmt::format("{} calls of LoraConfig here: which of them is trained is not "
                                 "known",
                                 made.size()),
                     "--from a file with one of them"}});
}

// Its arguments as a file of PEFT has them; what is computed is named, or has `unresolved`.
void TakeLora(const PythonCall& call, Document* document) {
  YamlTree root;
  root.kind = YamlTree::Kind::kMap;
  root.where = call.where;
  bool ranked = false;
  for (const PythonArgument& argument : call.arguments) {
    if (argument.name.empty()) continue;
    ranked = ranked || argument.name == "r";
    if (argument.value != nullptr) {
      root.members.push_back({argument.name, argument.where, argument.value});
      continue;
    }
    const auto decides = std::ranges::find(kDeciding, argument.name, &DecidingArgument::name);
    if (decides != std::end(kDeciding)) {
      document->settings.push_back(
          {decides->field, "", argument.where,
           fmt::format("LoraConfig's {} {}: give {}", argument.name, kComputed, decides->flag)});
    } else if (argument.name == "**") {
      document->notes.push_back(fmt::format("{}: **{}: what else it says of LoraConfig is not read",
                                            Place(argument.where), argument.code));
      ranked = true;  // it may stand there
    } else if (AdapterKeyMatters(argument.name)) {
      document->notes.push_back(
          fmt::format("{}: LoraConfig's {} {} and not read; the prediction is "
                      "without",
                      Place(argument.where), argument.name, kComputed));
    }
  }
  const auto plain = [&](const char* key, const char* text) {
    auto value = std::make_shared<YamlTree>();
    value->kind = YamlTree::Kind::kScalar;
    value->where = call.where;
    value->text = text;
    root.members.push_back({key, call.where, std::move(value)});
  };
  const auto said = [&](const char* key) {
    return std::ranges::find(root.members, key, &YamlTree::Member::key) != root.members.end();
  };
  // PEFT's own rank; where it is computed that of the flag, which replaces this one.
  const bool open = ranked && !said("r");
  if (!said("r")) plain("r", "8");
  Document read = ReadAdapters(document->source, root);
  for (Setting& setting : read.settings) {
    const auto computed = std::ranges::find(document->settings, setting.key, &Setting::key);
    if (computed != document->settings.end() || (open && setting.key == "field.lora")) continue;
    document->settings.push_back(std::move(setting));
  }
  if (open && std::ranges::find(document->settings, "field.lora", &Setting::key) ==
                  document->settings.end())
    document->settings.push_back({"field.lora", "", call.where,
                                  fmt::format("LoraConfig's r {}: give --lora-rank N", kComputed)});
  for (std::string& note : read.notes) document->notes.push_back(std::move(note));
  if (!call.branch.empty())
    document->notes.push_back(
        fmt::format("{}: LoraConfig stands in a branch (`{}`), which is taken", Place(call.where),
                    call.branch));
}

// Adapters whose configuration is no call of LoraConfig here.
void NameOthers(const std::vector<PythonCall>& calls, Document* document) {
  for (const PythonCall& call : calls) {
    const PythonArgument* handed = call.Find("peft_config");
    if (handed != nullptr && handed->value != nullptr &&
        handed->value->kind == YamlTree::Kind::kNull)
      handed = nullptr;
    if (handed != nullptr && handed->code.find("get_peft_config(") != std::string::npos) {
      document->notes.push_back(
          fmt::format("{}: {} makes adapters if its arguments say so (--use_peft), which are not "
                      "here: all weights are taken to be trained; --lora-rank N for adapters",
                      Place(handed->where), handed->code));
      continue;
    }
    if (call.function != "get_peft_model" && handed == nullptr) continue;
    const Location& where = handed != nullptr ? handed->where : call.where;
    document->settings.push_back(
        {"field.lora", "", where,
         fmt::format("{} makes adapters of a configuration that is no LoraConfig(...) here: give "
                     "--lora-rank N",
                     handed != nullptr ? "peft_config=" + handed->code : call.function)});
    return;
  }
}

// bitsandbytes' types: fp4 unless it is told nf4, which takes as much time and memory.
void TakeBase(const std::vector<PythonCall>& calls, bool adapters, Document* document) {
  for (const PythonCall& call : calls) {
    if (call.function != "BitsAndBytesConfig" && call.function != "from_pretrained") continue;
    for (const auto& [key, base] :
         {std::pair{"load_in_4bit", "nf4"}, std::pair{"load_in_8bit", "int8"}}) {
      const PythonArgument* packed = call.Find(key);
      if (packed == nullptr || (packed->value != nullptr && !IsOn(packed))) continue;
      if (!adapters) {
        document->notes.push_back(
            fmt::format("{}: not modelled: weights in few bits ({}) without adapters, which are "
                        "not found here; "
                        "the prediction is without: give --lora-rank N",
                        Place(packed->where), key));
        return;
      }
      if (std::ranges::find(document->settings, "field.lora_base", &Setting::key) !=
          document->settings.end())
        return;
      document->settings.push_back(
          {"field.lora_base", IsOn(packed) ? base : "", packed->where,
           IsOn(packed)
               ? ""
               : fmt::format("{} {}: give --lora-base nf4, int8 or plain", key, kComputed)});
      const PythonArgument* type = call.Find("bnb_4bit_quant_type");
      if (IsOn(packed) && std::string_view(base) == "nf4" &&
          (type == nullptr || type->value == nullptr || type->value->text != "nf4"))
        document->notes.push_back(
            fmt::format("{}: fp4, or a type that is not known here, is "
                        "predicted as nf4, of the same size",
                        Place(packed->where)));
      if (!call.branch.empty())
        document->notes.push_back(fmt::format("{}: {} stands in a branch (`{}`), which is taken",
                                              Place(call.where), call.function, call.branch));
      return;
    }
  }
}

// The type that weights are loaded in, which TrainingArguments do not say.
void TakeType(const std::vector<PythonCall>& calls, Document* document) {
  for (const PythonCall& call : calls) {
    if (call.function != "from_pretrained") continue;
    for (const char* name : {"torch_dtype", "dtype"}) {
      const PythonArgument* type = call.Find(name);
      if (type == nullptr || HasKey(document->settings, "args.torch_dtype")) continue;
      if (type->value == nullptr) {
        document->notes.push_back(
            fmt::format("{}: {} {} and not read: weights are taken to be "
                        "loaded in fp32",
                        Place(type->where), name, kComputed));
      } else if (type->value->kind == YamlTree::Kind::kScalar) {
        document->settings.push_back({"args.torch_dtype", type->value->text, type->where, ""});
      }
    }
  }
}

// The kernel of attention, an argument of the model. Older releases of Transformers have a switch for it.
void TakeAttention(const std::vector<PythonCall>& calls, Document* document) {
  constexpr const char* kKey = "args.attn_implementation";
  for (const PythonCall& call : calls) {
    if (call.function != "from_pretrained" && call.function != "from_config") continue;
    for (const char* name :
         {"attn_implementation", "_attn_implementation", "use_flash_attention_2"}) {
      const PythonArgument* kernel = call.Find(name);
      if (kernel == nullptr || HasKey(document->settings, kKey)) continue;
      const bool is_switch = std::string_view(name).starts_with("use_");
      if (kernel->value == nullptr) {
        document->notes.push_back(fmt::format("{}: {} {} and not read: give --attention",
                                              Place(kernel->where), name, kComputed));
      } else if (kernel->value->kind == YamlTree::Kind::kScalar && (!is_switch || IsOn(kernel))) {
        document->settings.push_back({kKey, is_switch ? "flash_attention_2" : kernel->value->text,
                                      kernel->where, "", false, is_switch ? name : ""});
      }
    }
  }
}

// The model that is loaded, by its name on the hub, where TrainingArguments name none and all calls name one.
void TakeModelName(const std::vector<PythonCall>& calls, Document* document) {
  const PythonArgument* named = nullptr;
  for (const PythonCall& call : calls) {
    const bool loads = call.function == "from_pretrained" &&
                       (call.object.find("ForCausalLM") != std::string::npos ||
                        call.object.find("AutoModel") != std::string::npos);
    const PythonArgument* model = call.function.ends_with("Trainer") ? call.Find("model") : nullptr;
    // A Trainer takes a name of the hub as well, in the first place.
    const bool in_front = !call.arguments.empty() && call.arguments.front().name.empty();
    if (call.function.ends_with("Trainer") && model == nullptr && in_front)
      model = &call.arguments.front();
    if (loads && !call.arguments.empty()) model = &call.arguments.front();
    const bool text = model != nullptr && model->value != nullptr &&
                      model->value->kind == YamlTree::Kind::kScalar &&
                      (model->name.empty() || model->name == "model" ||
                       model->name == "pretrained_model_name_or_path");
    if (!text) continue;
    if (named != nullptr && named->value->text != model->value->text) return;
    named = model;
  }
  if (named != nullptr && !HasKey(document->settings, "args.model_name_or_path"))
    document->settings.push_back({"args.model_name_or_path", named->value->text, named->where, ""});
}

// TRL's own arguments of the model and its adapters, which its commands take as flags.
void TakeModelConfig(const std::vector<PythonCall>& calls, Document* document) {
  for (const PythonCall& call : calls) {
    if (call.function != "ModelConfig") continue;
    for (const PythonArgument& argument : call.arguments) {
      const std::string key = "args." + argument.name;
      if (argument.name.empty() || argument.name == "**" || HasKey(document->settings, key))
        continue;
      if (argument.value == nullptr) {
        document->settings.push_back(
            {key, "", argument.where,
             fmt::format("ModelConfig's {} {}", argument.name, kComputed)});
      } else if (argument.value->kind == YamlTree::Kind::kScalar) {
        document->settings.push_back({key, argument.value->text, argument.where, ""});
      } else if (argument.value->kind == YamlTree::Kind::kSequence) {
        std::vector<std::string> words;
        for (const auto& element : argument.value->elements) words.push_back(element->text);
        document->settings.push_back(
            {key, fmt::format("{}", fmt::join(words, " ")), argument.where, ""});
      }
    }
  }
}

}  // namespace

bool IsOfAdapters(std::string_view function) {
  constexpr std::string_view kNames[] = {"LoraConfig",         "get_peft_model",  "add_adapter",
                                         "BitsAndBytesConfig", "from_pretrained", "from_config",
                                         "ModelConfig"};
  return std::ranges::find(kNames, function) != std::end(kNames) ||
         std::ranges::find(kOtherKinds, function) != std::end(kOtherKinds);
}

void TakeAdapterCalls(const std::vector<PythonCall>& calls, Document* document) {
  for (const PythonCall& call : calls) {
    if (std::ranges::find(kOtherKinds, call.function) != std::end(kOtherKinds))
      throw InputError(
          {{call.where, fmt::format("adapters of the kind {} are not modelled", call.function),
            "LoraConfig, or --from a file without them"}});
  }
  TakeModelConfig(calls, document);
  const PythonCall* lora = AdaptersMade(calls);
  if (lora != nullptr)
    TakeLora(*lora, document);
  else
    NameOthers(calls, document);
  TakeBase(calls, HasKey(document->settings, "field.lora"), document);
  TakeType(calls, document);
  TakeAttention(calls, document);
  TakeModelName(calls, document);
}

}  // namespace orrery::exchange
