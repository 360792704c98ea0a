// SPDX-License-Identifier: Apache-2.0
// Options with what stands behind them, and the program that takes such.
#include "model/exchange/command_settings.h"

#include <algorithm>

#include "model/exchange/launch_words.h"

namespace orrery::exchange {
namespace {

// Switches of Megatron and its kin: what a variable behind one holds is no value of it.
bool TakesNothing(const std::string& key) {
  static constexpr std::string_view kFronts[] = {"no-",
                                                 "use-",
                                                 "disable-",
                                                 "overlap-",
                                                 "untie-",
                                                 "enable-",
                                                 "log-",
                                                 "deepspeed-",
                                                 "recompute-activations",
                                                 "checkpoint-activations"};
  static constexpr std::string_view kWhole[] = {
      "bf16",      "fp16",         "swiglu",          "sequence-parallel", "group-query-attention",
      "mock-data", "squared-relu", "tp-comm-overlap", "qk-layernorm"};
  return std::ranges::find(kWhole, key) != std::end(kWhole) ||
         (key.find('_') == std::string::npos &&
          std::ranges::any_of(kFronts,
                              [&](std::string_view front) { return key.starts_with(front); }));
}

bool IsTruth(const std::string& text) {
  return text == "True" || text == "False" || text == "true" || text == "false";
}

bool HasPart(const Settings& settings, const char* part) {
  return std::ranges::any_of(settings,
                             [&](const Setting& setting) { return setting.key.starts_with(part); });
}

// tyro, which reads torchtitan's arguments, takes '-' for '_' and "--compile.no-enable" for "--compile.enable False": the
// "no-" stands behind the last dot (tyro's flag_to_inverse).
void ReadAsTyro(Setting* setting) {
  const std::size_t dot = setting->key.rfind('.');
  if (dot == std::string::npos) return;
  std::ranges::replace(setting->key, '-', '_');
  constexpr std::string_view kNo = "no_";
  if (!setting->value.empty() || !setting->unresolved.empty() ||
      !std::string_view(setting->key).substr(dot + 1).starts_with(kNo))
    return;
  setting->key.erase(dot + 1, kNo.size());
  setting->value = "False";
}

}  // namespace

Settings OptionsOf(std::span<const Word> words, Words* lost) {
  Settings settings;
  bool takes = false;  // the last setting may still take words
  for (const Word& word : words) {
    if (!word.unresolved.empty() && word.text.empty()) {
      if (takes && settings.back().value.empty()) {
        settings.back().unresolved = word.unresolved;
        takes = false;
      } else if (lost != nullptr) {
        lost->push_back(word);
      }
      continue;
    }
    if (IsOption(word.text)) {
      std::string key = word.text.substr(word.text.find_first_not_of('-'));
      const std::size_t equals = key.find('=');
      std::string value = equals == std::string::npos ? "" : key.substr(equals + 1);
      settings.push_back(
          {key.substr(0, equals), std::move(value), word.where, word.unresolved, true});
      const Word* next = &word + 1 < words.data() + words.size() ? &word + 1 : nullptr;
      takes = equals == std::string::npos &&
              (!TakesNothing(key) || (next != nullptr && IsTruth(next->text)));
      continue;
    }
    if (takes) {
      Setting& last = settings.back();
      last.value += (last.value.empty() ? "" : " ") + word.text;
      if (last.unresolved.empty()) last.unresolved = word.unresolved;
      continue;
    }
    const std::size_t equals = word.text.find('=');
    if (equals != std::string::npos && equals > 0) {
      // Hydra adds a key by "+", and adds or replaces it by "++".
      const std::size_t front = std::min(word.text.find_first_not_of('+'), equals);
      std::string key = word.text.substr(front, equals - front);
      settings.push_back({key, word.text.substr(equals + 1), word.where, word.unresolved, true});
    }
  }
  return settings;
}

Settings SettingsOf(const Words& words, std::size_t program, Words* lost) {
  Settings settings;
  const auto rest = std::span(words).subspan(std::min(program + 1, words.size()));
  bool option = false;
  Words plain;
  for (const Word& word : rest) {
    const bool assigns =
        !option && !IsOption(word.text) && word.text.find('=') != std::string::npos;
    if (assigns) {
      for (Setting& setting : OptionsOf(std::span(&word, 1))) settings.push_back(setting);
      continue;
    }
    option = IsOption(word.text);
    plain.push_back(word);
  }
  // mpirun's "-x NAME", once per variable, is nothing that a program is given.
  for (Setting& setting : OptionsOf(plain, lost)) {
    if (setting.key != "x") settings.push_back(std::move(setting));
  }
  const bool accelerate = std::ranges::any_of(
      std::span(words).first(program), [](const Word& word) { return word.text == "accelerate"; });
  const std::string& name = words[program].text;
  if (const char* what = TrainsBesides(name);
      what != nullptr && (accelerate || TargetOf(settings) == kAccelerate))
    settings.push_back({what, name.substr(name.rfind('/') + 1), words[program].where, "", true});
  if (const auto target = TargetOf(settings); target == kTitan || target == kTitanToml)
    std::ranges::for_each(settings, [](Setting& setting) { ReadAsTyro(&setting); });
  return settings;
}

bool Has(const Settings& settings, std::initializer_list<const char*> keys) {
  return std::ranges::any_of(settings, [&](const Setting& setting) {
    return std::ranges::any_of(keys, [&](const char* key) { return setting.key == key; });
  });
}
bool NamesConfiguration(const std::string& setting) {
  static constexpr std::string_view kFiles[] = {
      "config_file",           "deepspeed",
      "fsdp_config",           "deepspeed_config",
      "deepspeed-config",      "job.config_file",
      "deepspeed_config_file", "deepspeed_config.deepspeed_config_file"};
  const std::string_view key = setting;
  return std::ranges::find(kFiles, key.starts_with("args.") ? key.substr(5) : key) !=
         std::end(kFiles);
}

std::optional<Target> TargetOf(const Settings& settings) {
  if (Has(settings, {"tensor-model-parallel-size", "pipeline-model-parallel-size", "hidden-size",
                     "num-attention-heads", "micro-batch-size", "model-parallel-size"}))
    return kMegatron;
  if (IsNemo(settings)) return kMegatron;
  if (HasPart(settings, "model.tensor_model_parallel") || HasPart(settings, "train.micro_batch") ||
      HasPart(settings, "ddp."))
    return kBridge;
  if (Has(settings, {"per_device_train_batch_size", "gradient_accumulation_steps", "num_processes",
                     "num_machines"}))
    return kAccelerate;
  if (Has(settings, {"module"}) && Has(settings, {"config"})) return kTitan;  // since 2026
  for (const char* section :
       {"parallelism.", "experimental.", "training.", "job.config_file", "model.flavor"})
    if (HasPart(settings, section)) return kTitanToml;
  return std::nullopt;
}

}  // namespace orrery::exchange
