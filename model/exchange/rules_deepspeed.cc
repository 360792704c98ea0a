// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's rules of the mapping.
#include <fmt/format.h>

#include "model/exchange/fields.h"
#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"
#include "model/framework/presets.h"

namespace orrery::exchange {

bool ByDeepSpeed(const Case& c) {
  const Strategy& s = c.strategy;
  if (s.zero < 2 || !Shares(c)) return s.zero == 1;
  const std::string name = FindFramework(SplitReference(c.framework).name).name;
  const bool predicted =
      name == "huggingface" || name.substr(0, name.find('@')) == InfoOf(kDeepSpeed).framework;
  return predicted && s.tp == 1 && s.cp == 1 && s.dp_outer == 1;
}

Cell AccelerateZero(Cell choices) {
  choices.write = [](const Case& c) {
    if (!ByDeepSpeed(c)) return Written{Status::kOwn, {}, ""};
    return Say({Set("deepspeed_config.zero_stage", int64_t{c.strategy.zero}),
                Set("distributed_type", "DEEPSPEED")});
  };
  return choices;
}

Cell DeepSpeedGradType() {
  return Rule(
      [](const Case& c) {
        const char* half = c.work.precision == Precision::kBf16 ? "bf16" : "fp16";
        return Say({Set("data_types.grad_accum_dtype", c.strategy.fp32_grads ? "fp32" : half)});
      },
      [](const SettingIndex& settings, const Values&) -> std::optional<Value> {
        const Setting* type = settings.Find("data_types.grad_accum_dtype");
        if (type == nullptr) return std::nullopt;
        return From(type, OnOff(type->value == "fp32"));
      });
}

namespace {

// Its own default (runtime/zero/config.py): on with stage 3, off with 1 and 2. Replicas have no such key.
std::optional<Value> OverlapOfStage(const Values& values) {
  const auto zero = values.find("zero");
  if (zero == values.end() || (zero->second.text != "1" && zero->second.text != "2"))
    return std::nullopt;
  return Value{"off", {}, ""};
}

}  // namespace

Cell DeepSpeedOverlap() {
  static constexpr const char* kOverlap = "zero_optimization.overlap_comm";
  return Rule(
      [](const Case& c) {
        return Say({Set(kOverlap, c.strategy.overlap_grad_reduce ? "true" : "false")});
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const Setting* setting = settings.Find(kOverlap);
        if (setting == nullptr || setting->value == "null") return OverlapOfStage(values);
        return From(setting, OnOff(setting->value != "false"));
      });
}

// Its part for DeepSpeed has no key for it.
Cell AccelerateOverlap() {
  return Rule(
      [](const Case& c) {
        const bool deepspeed = ByDeepSpeed(c), theirs = !deepspeed || c.strategy.zero == 3;
        if (c.strategy.overlap_grad_reduce == theirs) return Default("default");
        return No(!deepspeed ? "reduces on a stream of its own"
                             : fmt::format("leaves DeepSpeed's overlap_comm at its default, {}",
                                           OnOff(theirs)));
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        if (settings.Peek("deepspeed_config.zero_stage").empty()) return std::nullopt;
        return OverlapOfStage(values);
      });
}

Cell DeepSpeedReplicas() {
  return Rule(
      [](const Case& c) {
        if (c.strategy.dp_outer == 1) return Default("one copy of the shards");
        if (c.strategy.zero != 3) return No("hybrid sharding (MiCS) exists for stage 3 only");
        return Say({Set("zero_optimization.mics_shard_size", c.strategy.dp)});
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const Setting* setting = settings.Find("zero_optimization.mics_shard_size");
        if (setting == nullptr || setting->value == "-1") return Value{"1", {}, ""};
        const auto shard = settings.Whole("zero_optimization.mics_shard_size", 1);
        const auto nodes = settings.Whole("NNODES", 1), gpus = settings.Whole("GPUS_PER_NODE", 1);
        if (!nodes || !gpus)
          throw InputError(
              {{setting->where, "mics_shard_size needs the number of GPUs",
                "--nodes N and --gpus-per-node N, or the launch script: --from train.sh --from "
                "ds_config.json"}});
        const int64_t dp = *nodes * *gpus / ModelRanks(values);
        if (dp % *shard != 0)
          throw InputError(
              {{setting->where,
                fmt::format("shards of {} ranks do not divide {} ranks", *shard, dp), ""}});
        return From(setting, Text(dp / *shard));
      });
}

namespace {

constexpr const char *kBatchKey = "train_batch_size", *kMicroKey = "train_micro_batch_size_per_gpu",
                     *kStepsKey = "gradient_accumulation_steps";

std::optional<int64_t> Said(const SettingIndex& settings, const char* key) {
  const Setting* setting = settings.Find(key);
  if (setting == nullptr || setting->value == kAuto) return std::nullopt;
  return settings.Whole(key, 1);
}

// What a run of the Trainer fills in.
bool FilledIn(const SettingIndex& settings) {
  for (const char* key : {kBatchKey, kMicroKey, kStepsKey})
    if (settings.Peek(key) == kAuto) return true;
  return false;
}

}  // namespace

// What a file leaves out follows from the others (DeepSpeedConfig, runtime/config.py: _set_batch_related_parameters), and steps
// are 1 where nothing says them: train_batch_size = micro-batch x steps x ranks.
Cell DeepSpeedMicroBatch() {
  return Rule(
      [](const Case& c) { return Say({Set(kMicroKey, c.strategy.micro_batch)}); },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        if (const Setting* micro = settings.Find(kMicroKey)) return From(micro, micro->value);
        const auto all = Said(settings, kBatchKey);
        const auto ranks = ReplicasOf(settings, values);
        if (!all || !ranks || FilledIn(settings)) return std::nullopt;
        const int64_t steps = Said(settings, kStepsKey).value_or(1), parts = steps * *ranks;
        const Setting* setting = settings.Find(kBatchKey);
        if (*all % parts == 0) return From(setting, Text(*all / parts));
        throw InputError({{setting->where,
                           fmt::format("train_batch_size {} is no multiple of {} step{} x {} "
                                       "data-parallel ranks",
                                       *all, steps, steps == 1 ? "" : "s", *ranks),
                           "DeepSpeed asserts that they agree"}});
      });
}

Cell DeepSpeedBatch() {
  return Rule(
      [](const Case& c) {
        return Say({Set(kBatchKey, c.work.global_batch), Set(kStepsKey, c.micro_batches())});
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const auto all = Said(settings, kBatchKey), steps = Said(settings, kStepsKey);
        const auto ranks = ReplicasOf(settings, values);
        const int64_t micro = NumberOf(values, "micro_batch", 0);
        const Setting* batch = settings.Find(kBatchKey);
        const Setting* first = batch != nullptr ? batch : settings.Find(kStepsKey);
        if (FilledIn(settings) && (!ranks || !steps || micro == 0)) {
          if (all) return From(batch, Text(*all));
          return first == nullptr ? std::nullopt : From(first, kAuto);
        }
        if (all && (!ranks || !steps || micro == 0)) return From(batch, Text(*all));
        if (!ranks || micro == 0 || (!steps && !settings.Has(kMicroKey))) return std::nullopt;
        const int64_t product = micro * steps.value_or(1) * *ranks;
        if (all && *all != product)
          throw InputError({{batch->where,
                             fmt::format("train_batch_size {} is not {} per GPU x {} steps x {} "
                                         "data-parallel ranks",
                                         *all, micro, *steps, *ranks),
                             "DeepSpeed asserts that they agree"}});
        return From(steps ? settings.Find(kStepsKey) : settings.Find(kMicroKey), Text(product));
      });
}

std::optional<OpenBatch> DeepSpeedOpenBatch(const SettingIndex& settings, const Values& values) {
  if (FilledIn(settings)) return std::nullopt;
  constexpr const char* kHint = "--nodes N, the launch script (--from train.sh), or ";
  const bool micro = NumberOf(values, "micro_batch", 0) > 0;
  const Setting* all = settings.Find(kBatchKey);
  if (all != nullptr) {
    if (micro) return std::nullopt;
    return OpenBatch{all->where,
                     fmt::format("{} {} / GPUs is the micro-batch, and nothing says how many GPUs "
                                 "there are",
                                 kBatchKey, all->value),
                     std::string(kHint) + "--micro-batch N", true, true};
  }
  const Setting* steps = settings.Find(kStepsKey);
  const Setting* each = settings.Find(kMicroKey);
  if (steps != nullptr && each == nullptr && !micro)
    return OpenBatch{steps->where,
                     fmt::format("{} {} without {} or {}, of which DeepSpeed asserts one",
                                 kStepsKey, steps->value, kBatchKey, kMicroKey),
                     "--micro-batch N and --global-batch N"};
  if (each == nullptr) return std::nullopt;
  return OpenBatch{
      each->where,
      fmt::format("{}micro-batch {} x GPUs is the global batch, and nothing says how "
                  "many GPUs there are",
                  steps != nullptr ? fmt::format("{} {} x ", kStepsKey, steps->value) : "",
                  each->value),
      std::string(kHint) + "--global-batch N"};
}

}  // namespace orrery::exchange
