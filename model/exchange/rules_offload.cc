// SPDX-License-Identifier: Apache-2.0
// Offload as Megatron and DeepSpeed spell it.
#include <fmt/format.h>

#include <algorithm>

#include "model/exchange/fields.h"
#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

constexpr int64_t kMostLayers = 1 << 20;

// `aware`, `shards`: what Megatron's arguments and its OptimizerConfig assert of a job whose states are on the CPU.
struct OffloadKeys {
  std::string optimizer, share, layers, aware, shards;
};

OffloadKeys OffloadKeysOf(bool bridge) {
  if (!bridge)
    return {"optimizer-cpu-offload", "optimizer-offload-fraction", "cpu-offloading-num-layers",
            "use-precision-aware-optimizer", "use-distributed-optimizer"};
  return {"optimizer.optimizer_cpu_offload", "optimizer.optimizer_offload_fraction",
          "model.cpu_offloading_num_layers", "optimizer.use_precision_aware_optimizer",
          "optimizer.use_distributed_optimizer"};
}

Written WriteMegatronOffload(const Case& c, bool bridge) {
  const OffloadKeys keys = OffloadKeysOf(bridge);
  const Offload& offload = c.strategy.offload;
  if (offload.weights) return No("keeps weights on the GPU");
  Settings settings;
  if (offload.optimizer > 0) {
    if (c.work.optimizer != Optimizer::kAdam && c.work.optimizer != Optimizer::kAdamW)
      return No("offloads the states of Adam alone");
    if (Shares(c) && c.strategy.zero == 0)
      return No("offloads the states of its distributed optimizer (ZeRO 1) alone");
    const std::string on = bridge ? "true" : "";
    settings.push_back(Set(keys.optimizer, on));
    settings.push_back(Set(keys.share, fmt::format("{}", offload.optimizer)));
    settings.push_back(Set(keys.aware, on));
    if (!Shares(c)) {  // of one rank; else the row of ZeRO says so
      settings.push_back(Set(keys.shards, on));
      if (bridge) settings.push_back(Set("ddp.use_distributed_optimizer", on));
    }
  }
  if (offload.activations) {
    if (c.strategy.pp > 1) return No("offloads activations without pipeline stages alone");
    if (c.strategy.recompute != Recompute::kNone)
      return No("offloads activations without recomputation alone");
    if (bridge) settings.push_back(Set("model.cpu_offloading", "true"));
    const int layers = offload.activation_layers;
    settings.push_back(Set(keys.layers, layers > 0 ? int64_t{layers} : c.model.layers - 1));
  }
  return Say(std::move(settings));
}

double ShareOf(const SettingIndex& settings, const std::string& key) {
  const double share = settings.Number(key).value_or(1);
  if (share >= 0 && share <= 1) return share;
  throw InputError(
      {{settings.Find(key)->where, fmt::format("{} is {}", key, share), "a share from 0 to 1"}});
}

void RequireOfOffload(const Setting& optimizer, bool there, const std::string& key) {
  if (there) return;
  throw InputError({{optimizer.where, fmt::format("{} without {}", optimizer.key, key),
                     fmt::format("add --{}, as Megatron asserts", key)}});
}

// Of layers that a number says: Megatron's arguments take the number for the switch (validate_args), Bridge has both.
bool OffloadsActivations(const SettingIndex& settings, bool bridge) {
  const Setting* on = settings.Find(bridge ? "model.cpu_offloading" : "cpu-offloading");
  const Setting* activations =
      settings.Find(bridge ? "model.cpu_offloading_activations" : "cpu-offloading-activations");
  if (activations != nullptr && Off(activations->value)) return false;
  return !bridge || on == nullptr || on->value == "true";
}

// core/transformer/transformer_config.py: __post_init__.
void CheckOffloadedActivations(const Setting& layers, const Values& values) {
  const auto refuse = [&](const Value& other, const std::string& what) {
    throw InputError({{layers.where,
                       fmt::format("{} next to {} ({})", layers.key, what,
                                   other.where.source ? Place(other.where) : "a default"),
                       "one of them: Megatron offloads layers without pipeline stages and without "
                       "recomputation alone"}});
  };
  const auto pp = values.find("pp"), recompute = values.find("recompute");
  if (NumberOf(values, "pp", 1) > 1) refuse(pp->second, "pp " + pp->second.text);
  if (recompute != values.end() && recompute->second.text != "none")
    refuse(recompute->second, "recomputation " + recompute->second.text);
}

std::optional<Value> ReadMegatronOffload(const SettingIndex& settings, const Values& values,
                                         bool bridge) {
  const OffloadKeys keys = OffloadKeysOf(bridge);
  Offload offload;
  const double share = ShareOf(settings, keys.share);
  const Setting* optimizer = settings.Find(keys.optimizer);
  if (optimizer != nullptr && optimizer->value != "false") {
    offload.optimizer = share;
    const Setting* aware = settings.Find(keys.aware);
    if (!bridge && share > 0) {
      RequireOfOffload(*optimizer, aware != nullptr, keys.aware);
      RequireOfOffload(*optimizer, settings.Find(keys.shards) != nullptr, keys.shards);
    }
  }
  // Megatron-DeepSpeed's: DeepSpeed's Adam of the CPU, which takes states that its file leaves there.
  if (const Setting* cpu = bridge ? nullptr : settings.Find("cpu-optimizer")) {
    optimizer = cpu;
    offload.optimizer = 1;
  }
  const auto layers = settings.Whole(keys.layers, 0);
  if (layers.value_or(0) > 0 && OffloadsActivations(settings, bridge)) {
    CheckOffloadedActivations(*settings.Find(keys.layers), values);
    offload.activations = true;
    offload.activation_layers = static_cast<int>(std::min<int64_t>(*layers, kMostLayers));
  }
  if (!offload.on()) return std::nullopt;
  return From(offload.optimizer > 0 ? optimizer : settings.Find(keys.layers), OffloadText(offload));
}

}  // namespace

Cell MegatronOffload(bool bridge) {
  return Rule([bridge](const Case& c) { return WriteMegatronOffload(c, bridge); },
              [bridge](const SettingIndex& settings, const Values& values) {
                return ReadMegatronOffload(settings, values, bridge);
              });
}

Cell DeepSpeedOffload() {
  static constexpr const char* kDevice = "zero_optimization.offload_optimizer.device";
  static constexpr const char* kRatio = "zero_optimization.offload_optimizer.ratio";
  static constexpr const char* kWeights = "zero_optimization.offload_param.device";
  return Rule(
      [](const Case& c) {
        const Offload& offload = c.strategy.offload;
        if (offload.activations)
          return No(
              "keeps checkpoints of activations on the CPU (cpu_checkpointing), whole layers "
              "alone");
        if (c.strategy.zero == 0) return No("offloads an optimizer with ZeRO 1 or more alone");
        if (c.strategy.zero < 3 && offload.optimizer < 1)
          return No("offloads a part of the states with ZeRO 3 alone");
        Settings settings{Set(kDevice, "cpu"),
                          Set("zero_optimization.offload_optimizer.pin_memory", "true")};
        if (offload.optimizer < 1)
          settings.push_back(Set(kRatio, fmt::format("{}", offload.optimizer)));
        if (offload.weights) {
          settings.push_back(Set(kWeights, "cpu"));
          settings.push_back(Set("zero_optimization.offload_param.pin_memory", "true"));
        }
        return Say(std::move(settings));
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        const double share = ShareOf(settings, kRatio);
        const auto zero = values.find("zero");
        if (share < 1 && (zero == values.end() || zero->second.text != "3"))
          throw InputError(
              {{settings.Find(kRatio)->where, fmt::format("ratio {:g} without ZeRO 3", share),
                "stage 3, or no ratio; DeepSpeed asserts it"}});
        (void)settings.Find("zero_optimization.offload_optimizer.pin_memory");
        (void)settings.Find("zero_optimization.offload_param.pin_memory");
        // Other devices stay unread: they are not modelled.
        if (settings.Peek(kDevice) != "cpu" || share == 0) return std::nullopt;
        Offload offload{share};
        offload.weights = settings.Peek(kWeights) == "cpu" && settings.Has(kWeights);
        if (offload.weights && share < 1)
          throw InputError(
              {{settings.Find(kRatio)->where,
                fmt::format("weights on the CPU are modelled with all of the "
                            "optimizer's states there, and the file moves {:g} of them",
                            share),
                "ratio 1, or no offload_param"}});
        return From(settings.Find(kDevice), OffloadText(offload));
      });
}

// FSDP moves all together; DeepSpeed's part of the file has a device for states and one for weights.
Cell AccelerateOffload() {
  static constexpr const char* kFsdp = "fsdp_config.fsdp_offload_params";
  static constexpr const char* kStates = "deepspeed_config.offload_optimizer_device";
  static constexpr const char* kWeights = "deepspeed_config.offload_param_device";
  return Rule(
      [](const Case& c) {
        const Offload& offload = c.strategy.offload;
        if (offload.activations) return No("keeps activations on the GPU");
        if (offload.optimizer < 1) return No("offloads all states, or none");
        if (c.strategy.zero == 0) return No("replicas keep everything on the GPU");
        if (!ByDeepSpeed(c)) {
          if (!offload.weights) return No("moves weights, gradients and states together");
          return Say({Set(kFsdp, "true")});
        }
        if (!offload.weights) return Say({Set(kStates, "cpu")});
        if (c.strategy.zero < 3) return No("offloads weights with ZeRO 3 alone");
        return Say({Set(kStates, "cpu"), Set(kWeights, "cpu")});
      },
      [](const SettingIndex& settings, const Values& values) -> std::optional<Value> {
        Offload offload{.optimizer = 1};
        const Setting* fsdp = settings.Find(kFsdp);
        offload.weights = fsdp != nullptr && fsdp->value == "true";
        if (const auto zero = values.find("zero");
            offload.weights && zero != values.end() && zero->second.text == "2")
          throw InputError({{fsdp->where,
                             fmt::format("offload of weights that stay gathered between passes "
                                         "({}) is not modelled",
                                         zero->second.key),
                             "weights that each pass gathers, or no offload"}});
        if (offload.weights) return From(fsdp, OffloadText(offload));
        // Other devices stay unread: they are not modelled.
        if (settings.Peek(kStates) != "cpu") return std::nullopt;
        offload.weights = settings.Peek(kWeights) == "cpu" && settings.Has(kWeights);
        return From(settings.Find(kStates), OffloadText(offload));
      });
}

}  // namespace orrery::exchange
