// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's rules of the mapping.
#include <fmt/format.h>

#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {

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

Cell DeepSpeedBatch() {
  return Rule(
      [](const Case& c) {
        return Say({Set("train_batch_size", c.work.global_batch),
                    Set("gradient_accumulation_steps", c.micro_batches())});
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const auto known = [&](const char* key) -> std::optional<int64_t> {
          const Setting* setting = settings.Find(key);
          if (setting == nullptr || setting->value == kAuto) return std::nullopt;
          return settings.Whole(key, 1);
        };
        const auto all = known("train_batch_size"), steps = known("gradient_accumulation_steps");
        const auto nodes = known("NNODES"), gpus = known("GPUS_PER_NODE");
        const int64_t micro = NumberOf(values, "micro_batch", 0);
        if (!nodes || !gpus || !steps || micro == 0) {
          const Setting* batch = settings.Find("train_batch_size");
          if (all) return From(batch, Text(*all));
          if (batch == nullptr) batch = settings.Find("gradient_accumulation_steps");
          return batch == nullptr ? std::nullopt : From(batch, kAuto);
        }
        const int64_t dp = *nodes * *gpus / ModelRanks(values);
        if (all && *all != micro * *steps * dp)
          throw InputError({{settings.Find("train_batch_size")->where,
                             fmt::format("train_batch_size {} is not {} per GPU x {} steps x {} "
                                         "data-parallel ranks",
                                         *all, micro, *steps, dp),
                             "DeepSpeed asserts that they agree"}});
        return From(settings.Find("gradient_accumulation_steps"), Text(micro * *steps * dp));
      });
}

}  // namespace orrery::exchange
