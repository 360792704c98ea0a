// SPDX-License-Identifier: Apache-2.0
// How the Trainer and Accelerate spell the strategies of both releases of FSDP.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <optional>
#include <string_view>

#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

Settings::iterator FindFsdp(Settings* settings, std::string_view key) {
  return std::ranges::find(*settings, key, &Setting::key);
}

std::string UpperCase(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::toupper(c); });
  return text;
}

bool IsStrategy(std::string_view name) {
  static constexpr std::string_view kStrategies[] = {"FULL_SHARD",
                                                     "SHARD_GRAD_OP",
                                                     "NO_SHARD",
                                                     "HYBRID_SHARD",
                                                     "HYBRID_SHARD_ZERO2",
                                                     "1",
                                                     "2",
                                                     "3",
                                                     "4",
                                                     "5"};
  return std::ranges::find(kStrategies, name) != std::end(kStrategies);
}

// --fsdp "full_shard offload auto_wrap", or a list of these words
void WordsOfTrainer(Settings* settings) {
  std::vector<Setting> added;
  const auto fsdp = FindFsdp(settings, "args.fsdp");
  if (fsdp == settings->end() || !fsdp->unresolved.empty()) return;
  if (fsdp->value.find("offload") != std::string::npos)
    added.push_back({"fsdp_config.fsdp_offload_params", "true", fsdp->where, "", fsdp->flag});
  constexpr std::pair<std::string_view, const char*> kWords[] = {
      {"full_shard", "FULL_SHARD"},
      {"shard_grad_op", "SHARD_GRAD_OP"},
      {"hybrid_shard_zero2", "HYBRID_SHARD_ZERO2"},
      {"hybrid_shard", "HYBRID_SHARD"},
      {"no_shard", "NO_SHARD"}};
  for (const auto& [word, name] : kWords) {
    if (fsdp->value.find(word) == std::string::npos) continue;
    Setting strategy{
        "fsdp_config.fsdp_sharding_strategy", name, fsdp->where, "", fsdp->flag, "args.fsdp"};
    *fsdp = std::move(strategy);
    break;
  }
  std::ranges::move(added, std::back_inserter(*settings));
}

// Accelerate, utils/environment.py, str_to_bool; nullopt: no truth.
std::optional<bool> Truth(const std::string& value) {
  static constexpr std::string_view kTrue[] = {"Y", "YES", "T", "TRUE", "ON", "1"};
  static constexpr std::string_view kFalse[] = {"N", "NO", "F", "FALSE", "OFF", "0"};
  const auto is = [&](std::string_view word) { return UpperCase(value) == word; };
  if (std::ranges::any_of(kTrue, is)) return true;
  if (std::ranges::any_of(kFalse, is)) return false;
  return std::nullopt;
}

// A strategy of FSDP 1 under FSDP 2's key. FSDP 1 prefers sharding_strategy, which `accelerate launch` always sets, to
// FULL_SHARD where nobody says otherwise (16cb6eb8: utils/launch.py, prepare_multi_gpu_env; accelerator.py, prepare_model).
void StrategyOfReshard(Settings* settings, Settings::iterator reshard,
                       std::vector<std::string>* notes) {
  const auto strategy = FindFsdp(settings, "fsdp_config.fsdp_sharding_strategy");
  if (strategy != settings->end()) {
    if (UpperCase(strategy->value) != reshard->value)
      notes->push_back(fmt::format("{}: fsdp_sharding_strategy {} goes before {} of {}",
                                   Place(strategy->where), strategy->value, reshard->value,
                                   Place(reshard->where)));
    settings->erase(reshard);
    return;
  }
  if (reshard->value != "FULL_SHARD" && reshard->value != "1")
    notes->push_back(
        fmt::format("{}: {} is taken as fsdp_sharding_strategy; `accelerate launch` gives FSDP 1 "
                    "FULL_SHARD unless that key says so, too",
                    Place(reshard->where), reshard->value));
  reshard->key = "fsdp_config.fsdp_sharding_strategy";
}

// FSDP 1's, in any case, with the "_" of PyTorch's _HYBRID_SHARD_ZERO2 or without, or by number (Accelerate,
// utils/dataclasses.py, FullyShardedDataParallelPlugin.__post_init__).
void RespellStrategy(Settings* settings) {
  const auto strategy = FindFsdp(settings, "fsdp_config.fsdp_sharding_strategy");
  if (strategy == settings->end() || !strategy->unresolved.empty() || strategy->value == kAuto)
    return;
  std::string name = UpperCase(strategy->value);
  if (name == "_HYBRID_SHARD_ZERO2") name.erase(0, 1);
  if (!IsStrategy(name))
    throw InputError(
        {{strategy->where,
          fmt::format("fsdp_sharding_strategy '{}' is none that FSDP 1 has", strategy->value),
          "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, HYBRID_SHARD_ZERO2, or "
          "1 to 5"}});
  strategy->value = std::move(name);
}

// Since 2025 one key holds the strategy of FSDP 1 and the truth of FSDP 2 (Accelerate, utils/dataclasses.py).
void RespellReshard(Settings* settings, std::vector<std::string>* notes) {
  const auto reshard = FindFsdp(settings, "fsdp_config.fsdp_reshard_after_forward");
  if (reshard == settings->end() || !reshard->unresolved.empty() || reshard->value == kAuto) return;
  const auto version = FindFsdp(settings, "fsdp_config.fsdp_version");
  const bool second = version != settings->end() && version->value == "2";
  const std::string upper = UpperCase(reshard->value);
  const auto truth = Truth(reshard->value);
  if (!second && IsStrategy(upper)) {
    reshard->value = upper;
    StrategyOfReshard(settings, reshard, notes);
  } else if (truth) {
    reshard->value = *truth ? "true" : "false";
  } else {
    throw InputError({{reshard->where,
                       fmt::format("fsdp_reshard_after_forward '{}' is no choice of FSDP {}",
                                   reshard->value, second ? 2 : 1),
                       second ? "true or false; names of strategies are those of fsdp_version 1"
                              : "FULL_SHARD, SHARD_GRAD_OP, NO_SHARD, HYBRID_SHARD, "
                                "HYBRID_SHARD_ZERO2; true and false are those of fsdp_version 2"}});
  }
}

// The Trainer's own part has Accelerate's keys, with fsdp_ in front or without (transformers, training_args.py).
void PartOfTrainer(Settings* settings, std::vector<std::string>* notes) {
  constexpr std::string_view kPart = "args.fsdp_config.", kFront = "fsdp_";
  for (Setting& setting : *settings) {
    if (!setting.key.starts_with(kPart)) continue;
    std::string name = setting.key.substr(kPart.size());
    if (name.starts_with(kFront)) name.erase(0, kFront.size());
    if (name != "version" && name != "reshard_after_forward" && name != "offload_params") continue;
    setting.key = "fsdp_config.fsdp_" + name;
  }
  const auto reshard = FindFsdp(settings, "fsdp_config.fsdp_reshard_after_forward");
  const auto strategy = FindFsdp(settings, "fsdp_config.fsdp_sharding_strategy");
  if (reshard == settings->end() || strategy == settings->end() ||
      !strategy->said.starts_with("args.fsdp") || !reshard->unresolved.empty())
    return;
  // Of FSDP 2, which has this truth in the place of a strategy.
  const auto truth = Truth(reshard->value);
  if (!truth) return;
  const bool copies = strategy->value.starts_with("HYBRID_SHARD");
  const char* const meant = copies ? (*truth ? "HYBRID_SHARD" : "HYBRID_SHARD_ZERO2")
                                   : (*truth ? "FULL_SHARD" : "SHARD_GRAD_OP");
  if (strategy->value != meant)
    notes->push_back(fmt::format("{}: reshard_after_forward {} replaces {} of {}",
                                 Place(reshard->where), reshard->value, strategy->value,
                                 Place(strategy->where)));
  *strategy = {strategy->key, meant, reshard->where, "", reshard->flag, reshard->said};
  settings->erase(reshard);
}

}  // namespace

void RespellFsdp(Settings* settings, std::vector<std::string>* notes) {
  WordsOfTrainer(settings);
  PartOfTrainer(settings, notes);
  RespellStrategy(settings);
  RespellReshard(settings, notes);
}

}  // namespace orrery::exchange
