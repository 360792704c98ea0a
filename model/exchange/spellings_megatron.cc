// SPDX-License-Identifier: Apache-2.0
// Spellings of Megatron's older releases and of its forks: Megatron-DeepSpeed (commit 4efb479d) and BigScience's (8387ae17).
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

struct OldArgument {
  const char* key;
  const char* now;
  const char* value;  // "": that of the old one
};
constexpr OldArgument kOldArguments[] = {
    {"model-parallel-size", "tensor-model-parallel-size", ""},
    {"pipe-parallel-size", "pipeline-model-parallel-size", ""},  // Megatron-DeepSpeed's
    {"ds-sequence-parallel-size", "context-parallel-size", ""},  // of all of its ranks
    {"rotary-position-embeddings-theta", "rotary-base", ""},     // Megatron-DeepSpeed's
    {"recompute-activations", "recompute-granularity", "selective"},
    {"checkpoint-activations", "recompute-granularity", "full"},
    {"activations-checkpoint-method", "recompute-method", ""},  // of 2021 and 2022
    {"activations-checkpoint-num-layers", "recompute-num-layers", ""},
    {"checkpoint-num-layers", "recompute-num-layers", ""},
    {"use-flash-attn-v1", "use-flash-attn", ""},
    {"use-flash-attn-v2", "attention-backend", "flash"},
    {"batch-size", "micro-batch-size", ""},
    {"use-custom-fsdp", "use-megatron-fsdp", ""},
    {"layernorm-epsilon", "norm-epsilon", ""},  // up to 2023
    {"fp8-hybrid", "fp8-format", "hybrid"},     // up to 2023
    {"fp8-e4m3", "fp8-format", "e4m3"},
};

Settings::iterator ArgumentAt(Settings* settings, std::string_view key) {
  return std::ranges::find(*settings, key, &Setting::key);
}
bool HasArgument(const Settings& settings, std::string_view key) {
  return std::ranges::find(settings, key, &Setting::key) != settings.end();
}
// Before there was a granularity, a method said that whole layers are repeated.
void AddGranularity(Settings* settings) {
  const auto method = ArgumentAt(settings, "recompute-method");
  if (method == settings->end() || method->value == "None" ||
      HasArgument(*settings, "recompute-granularity"))
    return;
  settings->push_back({"recompute-granularity", "full", method->where, "", method->flag});
}

// A list of experts, [1] unless it is told otherwise: dense layers. Megatron-LM's own --num-experts 1 makes layers of one expert
// with a router (core/models/gpt/gpt_layer_specs.py).
void DropOneExpert(bool deepspeed, Settings* settings) {
  std::erase_if(*settings, [&](const Setting& setting) {
    if (setting.key != "num-experts" || !setting.unresolved.empty()) return false;
    const std::vector<std::string> counts = WordsOf(setting.value);
    return (deepspeed || setting.value.starts_with('[')) && !counts.empty() &&
           std::ranges::all_of(counts, [](const std::string& count) { return count == "1"; });
  });
}

// Groups of queries by their number of keys, which dumps have of each model.
void SayGroups(Settings* settings) {
  const auto keys = ArgumentAt(settings, "num-key-value-heads");
  if (keys == settings->end()) return;
  keys->key = "num-query-groups";
  if (HasArgument(*settings, "group-query-attention")) return;
  settings->push_back({"group-query-attention", "", keys->where, "", keys->flag});
}

// Of its attention there is one profile, of the second release; the first has no kernel of its own here.
void NameFlash(Settings* settings, std::vector<std::string>* notes) {
  const auto old = ArgumentAt(settings, "use-flash-attn");
  if (old == settings->end() || HasArgument(*settings, "attention-backend")) return;
  if (HasArgument(*settings, "use-flash-attn-triton") ||
      HasArgument(*settings, "use-flash-attn-builder"))
    return;
  notes->push_back(
      fmt::format("{}: {} is flash attention 1 here, which is predicted as flash attention 2: that "
                  "is about twice as fast (arXiv 2307.08691)",
                  Place(old->where), old->said));
  settings->push_back({"attention-backend", "flash", old->where, "", old->flag, old->said});
}

}  // namespace

void RespellMegatron(Settings* settings, std::vector<std::string>* notes) {
  for (Setting& setting : *settings) {
    for (const OldArgument& old : kOldArguments) {
      if (setting.key != old.key) continue;
      if (old.value[0] != '\0' && Off(setting.value)) {
        setting.key.clear();  // a switch that is off: as if it were not there
        break;
      }
      setting.key = old.now;
      if (old.value[0] != '\0') setting.value = old.value;
      break;
    }
  }
  std::erase_if(*settings, [](const Setting& setting) { return setting.key.empty(); });
  const bool deepspeed =
      HasArgument(*settings, "deepspeed") || HasArgument(*settings, "zero-stage");
  AddGranularity(settings);
  DropOneExpert(deepspeed, settings);
  SayGroups(settings);
  if (!deepspeed) return;
  NameFlash(settings, notes);
  // Its engine adds gradients up by itself, and validate_args has no all-reduce beside a product next to it.
  std::erase_if(*settings, [](const Setting& setting) {
    return setting.key == "no-gradient-accumulation-fusion" ||
           setting.key == "no-async-tensor-model-parallel-allreduce";
  });
  if (const auto stage = ArgumentAt(settings, "zero-stage");
      stage != settings->end() && stage->value == "1.0")  // its default, as dumps have it
    stage->value = "1";
  // Ulysses is the only way in which it shares sequences.
  const auto ulysses = ArgumentAt(settings, "context-parallel-size");
  if (ulysses != settings->end() && HasArgument(*settings, "deepspeed") && ulysses->value != "1" &&
      !HasArgument(*settings, "cp-comm-type"))
    settings->push_back({"cp-comm-type", "a2a", ulysses->where, "", ulysses->flag});
}

}  // namespace orrery::exchange
