// SPDX-License-Identifier: Apache-2.0
// Adapters that programs around the Trainer ask for by flags of their own, as the arguments of TRL that the mapping knows.
//
// haotian-liu/LLaVA (lora_enable, bits), QwenLM/Qwen and lm-sys/FastChat (use_lora, q_lora), artidoro/qlora (bits, lora_modules,
// full_finetune), allenai/open-instruct (use_lora, use_qlora, lora_rank), pacman100/LLM-Workshop (use_peft_lora,
// use_4bit_quantization), yangjianxin1/Firefly (train_mode), modelscope/ms-swift (train_type, tuner_type),
// deepspeedai/DeepSpeedExamples' DeepSpeed-Chat (lora_dim).
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <string_view>

#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

using ArgumentNames = std::initializer_list<const char*>;

bool SwitchedOn(const Setting& setting) {
  const bool said = !setting.value.empty() || setting.flag;
  return setting.unresolved.empty() && said && !Off(setting.value) && setting.value != "0";
}

// Without "args.".
std::string_view ArgumentName(const Setting& setting) {
  std::string_view name = setting.key;
  if (name.starts_with("args.")) name.remove_prefix(5);
  return name;
}

bool IsArgument(const Setting& setting, ArgumentNames keys) {
  return setting.key.starts_with("args.") &&
         std::ranges::find(keys, ArgumentName(setting)) != keys.end();
}

Settings::iterator FindAny(Settings* settings, ArgumentNames keys) {
  for (const char* key : keys)
    if (const auto found = FindKey(settings, std::string("args.") + key);
        found != settings->end() && (!found->value.empty() || !found->unresolved.empty()))
      return found;
  return settings->end();
}

constexpr ArgumentNames kAdapterSwitches = {"lora_enable", "use_lora", "enable_lora",
                                            "use_peft_lora"};
constexpr ArgumentNames kAdapterKinds = {"peft_type", "train_mode", "tuner_type", "train_type"};
constexpr ArgumentNames kAdapterRanks = {"lora_r", "lora_rank", "lora_dim", "r"};
constexpr ArgumentNames kAdapterTargets = {"lora_target_modules", "lora_modules", "lora_target",
                                           "target_modules"};

std::string InLowerCase(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Of 4 or 8 bits per frozen weight; 0: no such setting.
int BitsOfBase(const Setting& setting) {
  if (IsArgument(setting, kAdapterKinds)) return InLowerCase(setting.value) == "qlora" ? 4 : 0;
  if (IsArgument(setting, {"bits"})) return setting.value == "4" ? 4 : setting.value == "8" ? 8 : 0;
  if (!SwitchedOn(setting)) return 0;
  if (IsArgument(setting,
                 {"load_in_4bit", "use_4bit_quantization", "q_lora", "use_qlora", "qlora"}))
    return 4;
  return IsArgument(setting, {"load_in_8bit", "use_8bit_quantization"}) ? 8 : 0;
}

// What says that adapters are trained, or null. A switch of their own that is off goes before ranks and the like, which are defaults
// then.
const Setting* OwnAdapters(const Settings& settings) {
  const auto kind = [](const Setting& one) {
    return IsArgument(one, kAdapterKinds) &&
           InLowerCase(one.value).find("lora") != std::string::npos;
  };
  const Setting* on = nullptr;
  bool off = false;
  for (const Setting& one : settings) {
    const bool asks = (IsArgument(one, kAdapterSwitches) && SwitchedOn(one)) || kind(one);
    if (asks && on == nullptr) on = &one;
    off |= (IsArgument(one, kAdapterSwitches) || IsArgument(one, {"use_peft"})) && Off(one.value);
    off |= IsArgument(one, {"full_finetune"}) && SwitchedOn(one);
    off |= IsArgument(one, kAdapterKinds) && InLowerCase(one.value).starts_with("full");
  }
  if (on != nullptr) return on;
  if (off) return nullptr;
  // Of a command; a file or a call of Python that holds a rank alone is TRL's, whose use_peft is off.
  const auto packed = std::ranges::find_if(
      settings, [](const Setting& one) { return one.flag && BitsOfBase(one) > 0; });
  if (packed != settings.end()) return &*packed;
  const auto said = std::ranges::find_if(settings, [](const Setting& one) {
    return one.flag && SwitchedOn(one) &&
           IsArgument(one, {"lora_r", "lora_rank", "lora_dim", "lora_alpha", "lora_modules",
                            "lora_target", "lora_target_modules"});
  });
  if (said != settings.end()) return &*said;
  const auto named = std::ranges::find(settings, "args.ADAPTER_PROGRAM", &Setting::key);
  return named != settings.end() ? &*named : nullptr;
}

// Of Python's and TRL's documents the readers know whether adapters are made, and a kind of LLaMA-Factory's is one of its own.
bool KnowsItsAdapters(const Settings& settings) {
  return std::ranges::any_of(settings, [](const Setting& one) {
    return one.key == "TRL" || one.key == "args.finetuning_type" ||
           (one.key == "args.use_peft" && SwitchedOn(one));
  });
}

void DropAdapters(Settings* settings) {
  std::erase_if(*settings, [](const Setting& one) {
    return IsArgument(one, kAdapterSwitches) || IsArgument(one, kAdapterKinds) ||
           IsArgument(one, kAdapterRanks) || IsArgument(one, kAdapterTargets) ||
           IsArgument(one, {"lora_alpha", "full_finetune", "q_lora", "use_qlora", "qlora", "bits",
                            "use_4bit_quantization", "use_8bit_quantization", "load_in_4bit",
                            "load_in_8bit"});
  });
}

const char* BaseNamed(int bits) { return bits == 4 ? "nf4" : "int8"; }

std::string SaidAs(const Setting& setting) {
  if (setting.key == "args.ADAPTER_PROGRAM") return setting.value;
  return fmt::format("{}{}{}", ArgumentName(setting), setting.value.empty() ? "" : " ",
                     setting.value);
}

// Another's adapters, by a flag or a file, are those that are predicted.
void LetAdaptersBeGiven(const Setting& asked, const Setting& given, const Setting* packed,
                        Settings* settings, std::vector<std::string>* notes) {
  if (packed != nullptr && given.value.empty())
    notes->push_back(fmt::format(
        "{}: {}: frozen weights in few bits are not read next to adapters that are given; give "
        "--lora-base {}",
        Place(packed->where), SaidAs(*packed), BaseNamed(BitsOfBase(*packed))));
  notes->push_back(
      fmt::format("{}: adapters ({}): those given by flags or another file are predicted instead",
                  Place(asked.where), SaidAs(asked)));
  DropAdapters(settings);
}

// Throws InputError: the program itself knows some of it.
void ReadOwnAdapters(const Setting& asked, const Setting* packed, Settings* settings,
                     std::vector<std::string>* notes) {
  const auto rank = FindAny(settings, kAdapterRanks);
  const auto alpha = FindAny(settings, {"lora_alpha"});
  const auto targets = FindAny(settings, kAdapterTargets);
  std::vector<std::string> missing;
  if (rank == settings->end()) missing.push_back("rank");
  if (alpha == settings->end()) missing.push_back("alpha");
  if (targets == settings->end()) missing.push_back("targets");
  // AdaLoRA and others are no plain pairs of matrices.
  const std::string kind = IsArgument(asked, kAdapterKinds) ? InLowerCase(asked.value) : "lora";
  if (kind != "lora" && kind != "qlora") missing.push_back("kind");
  if (!missing.empty())
    throw InputError(
        {{asked.where,
          fmt::format("adapters by flags of a program that is not known here ({}): it does not "
                      "say their {}",
                      SaidAs(asked), fmt::join(missing, ", ")),
          fmt::format(
              "--lora-rank {} --lora-targets MAPS{}",
              rank != settings->end() && !rank->value.empty() ? rank->value : "N",
              packed ? fmt::format(" --lora-base {}", BaseNamed(BitsOfBase(*packed))) : "")}});
  Settings read;
  read.push_back({"args.use_peft", "true", asked.where, "", asked.flag, asked.key});
  const std::array<std::pair<const char*, Setting>, 3> said = {
      {{"args.lora_r", *rank},
       {"args.lora_alpha", *alpha},
       {"args.lora_target_modules", *targets}}};
  for (const auto& [key, from] : said) {
    Setting& one = read.emplace_back(from);
    one.said = from.key;
    one.key = key;
  }
  if (read.back().value == "all") read.back().value = "all-linear";
  if (packed)
    read.push_back({BitsOfBase(*packed) == 4 ? "args.load_in_4bit" : "args.load_in_8bit", "true",
                    packed->where, "", packed->flag, packed->key});
  DropAdapters(settings);
  std::erase_if(*settings, [](const Setting& one) { return one.key == "args.use_peft"; });
  settings->insert(settings->end(), read.begin(), read.end());
  notes->push_back(
      fmt::format("{}: adapters ({}) of a program that is not known here are taken "
                  "as PEFT's, and nothing besides them as trained",
                  Place(asked.where), SaidAs(asked)));
}

}  // namespace

bool AsksAdapters(const Settings& settings) {
  return std::ranges::any_of(settings, [](const Setting& setting) {
    return setting.key == "ADAPTERS" || (setting.key == "args.use_peft" && !Off(setting.value)) ||
           (setting.key == "args.finetuning_type" && setting.value == "lora");
  });
}

void RespellAdapters(Settings* settings, std::vector<std::string>* notes) {
  const Setting* found = KnowsItsAdapters(*settings) ? nullptr : OwnAdapters(*settings);
  if (found != nullptr) {
    const Setting asked = *found;
    const auto by =
        std::ranges::find_if(*settings, [](const Setting& one) { return BitsOfBase(one) > 0; });
    const std::optional<Setting> packed = by != settings->end() ? std::optional(*by) : std::nullopt;
    if (const auto given = FindKey(settings, "ADAPTERS"); given != settings->end()) {
      LetAdaptersBeGiven(asked, Setting(*given), packed ? &*packed : nullptr, settings, notes);
    } else {
      ReadOwnAdapters(asked, packed ? &*packed : nullptr, settings, notes);
    }
  }
  std::erase_if(*settings, [](const Setting& one) { return one.key == "args.ADAPTER_PROGRAM"; });
  // Without adapters there is nothing that dropout stands in front of.
  if (AsksAdapters(*settings)) return;
  for (Setting& setting : *settings) {
    if (setting.key != "args.lora_dropout") continue;
    setting.said = setting.key;
    setting.key = "args.lora_without_adapters";
  }
}

}  // namespace orrery::exchange
