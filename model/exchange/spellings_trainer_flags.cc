// SPDX-License-Identifier: Apache-2.0
// Flags of programs around the Trainer that say what is trained, and whether anything is.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>

#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

// Examples of transformers and LLaMA-Factory train where do_train says so alone; TRL's and others' files of arguments, which train
// always, are not asked.
void CheckThatItTrains(const Settings& settings) {
  const bool factory = HasKey(settings, "args.stage");
  const auto find = [&](std::string_view key) {
    const auto found = std::ranges::find(settings, key, &Setting::key);
    const bool counts =
        found != settings.end() && found->unresolved.empty() && (found->flag || factory);
    return counts ? &*found : nullptr;
  };
  const Setting* train = find("args.do_train");
  if (train != nullptr ? !Off(train->value) : HasKey(settings, "args.do_train")) return;
  const Setting* other = train;
  for (const char* key : {"args.do_eval", "args.do_predict"})
    if (const Setting* does = find(key); other == nullptr && does != nullptr && !Off(does->value))
      other = does;
  if (other == nullptr) return;
  throw InputError({{other->where,
                     fmt::format("{}{}: evaluates a model, and trains nothing",
                                 std::string_view(other->key).substr(5),
                                 train != nullptr ? " " + train->value : " without do_train"),
                     "a command that trains (--do_train)"}});
}

// Arguments that begin as Accelerate's own do, and a switch for the attention of programs around the Trainer.
void RespellOwnFlags(Settings* settings) {
  constexpr std::string_view kLaunchers[] = {"num_processes", "num_machines",
                                             "num_cpu_threads_per_process"};
  for (Setting& setting : *settings)
    if (setting.key.starts_with("num_") && setting.flag &&
        std::ranges::find(kLaunchers, setting.key) == std::end(kLaunchers))
      setting.said = setting.key = "args." + setting.key;
  for (const char* key : {"args.use_flash_attn", "args.use_flash_attention"})
    if (const auto found = FindKey(settings, key);
        found != settings->end() && found->unresolved.empty() && !Off(found->value) &&
        !HasKey(*settings, "args.attn_implementation")) {
      found->said = key;
      found->key = "args.attn_implementation";
      found->value = "flash_attention_2";
    }
}

// Preferences: pairs of sequences, and a model to compare with that is not trained.
void NamePairs(const Settings& settings, std::vector<std::string>* notes) {
  constexpr std::string_view kStages[] = {"dpo", "kto", "rm", "ppo"};
  const auto found = std::ranges::find_if(settings, [&](const Setting& setting) {
    return (setting.key == "args.stage" &&
            std::ranges::find(kStages, setting.value) != std::end(kStages)) ||
           setting.key == "PREFERENCES" || setting.key == "args.PREFERENCES" ||
           setting.key == "args.max_prompt_length" || setting.key == "args.beta";
  });
  if (found == settings.end()) return;
  notes->push_back(fmt::format(
      "{}: not modelled: training on preferences (pairs of sequences, and passes of a reference "
      "model where there is one); a step is predicted as one of plain sequences, and takes about "
      "twice that or more",
      Place(found->where)));
}

// TRL's GRPO generates several answers per prompt; LLaVA's first stage trains what stands between images and a frozen model.
void RefuseOtherTrainings(const Settings& settings) {
  const auto projector = std::ranges::find(settings, "args.tune_mm_mlp_adapter", &Setting::key);
  if (projector != settings.end() && !Off(projector->value))
    throw InputError({{projector->where,
                       "tune_mm_mlp_adapter: a projector of images alone is trained, which is not "
                       "modelled",
                       "a command that trains the language model"}});
  const auto found = std::ranges::find(settings, "args.num_generations", &Setting::key);
  if (found == settings.end()) return;
  throw InputError(
      {{found->where, "num_generations: learns by reinforcement, which is not modelled",
        "a file of a training on given sequences, such as TRL's sft"}});
}

}  // namespace

// huggingface/transformers, src/transformers/training_args.py (OptimizerNames).
const char* OptimizerNotModelled(std::string_view optim) {
  constexpr std::pair<std::string_view, const char*> kOthers[] = {
      {"adafactor", "Adafactor's factored moments"},
      {"galore_", "GaLore's projected states"},
      {"apollo_", "APOLLO's projected states"},
      {"lion_", "Lion's single moment"},
      {"paged_lion_", "Lion's single moment"},
      {"ademamix", "AdEMAMix's third moment"},
      {"paged_ademamix", "AdEMAMix's third moment"},
      {"lomo", "LOMO's updates in the backward pass"},
      {"adalomo", "AdaLOMO's updates in the backward pass"},
      {"rmsprop", "RMSprop"},
      {"adagrad", "Adagrad"},
      {"schedule_free_", "optimizers that are free of schedules"}};
  const auto row = std::ranges::find_if(
      kOthers, [&](const auto& other) { return optim.starts_with(other.first); });
  return row == std::end(kOthers) ? nullptr : row->second;
}

void RespellTrainerFlags(Settings* settings, std::vector<std::string>* notes) {
  RespellOwnFlags(settings);
  RefuseOtherTrainings(*settings);
  CheckThatItTrains(*settings);
  NamePairs(*settings, notes);
}

}  // namespace orrery::exchange
