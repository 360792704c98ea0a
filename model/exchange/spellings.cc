// SPDX-License-Identifier: Apache-2.0
// Tables of spellings, and the settings of older releases of torchtitan.
#include "model/exchange/spellings.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "model/base/plain_text.h"

namespace orrery::exchange {
namespace {

struct Alias {
  Target target;
  const char* key;
  const char* now;
  const char* value;  // "": that of the old one
};
constexpr Alias kAliases[] = {
    {kDeepSpeed, "bfloat16.enabled", "bf16.enabled", ""},
    {kDeepSpeed, "zero_optimization.zero_hpz_partition_size", "zero_hpz", ""},
    // Before offload had sections of its own (runtime/zero/config.py).
    {kDeepSpeed, "zero_optimization.cpu_offload", "zero_optimization.offload_optimizer.device",
     "cpu"},
    {kDeepSpeed, "zero_optimization.cpu_offload_param", "zero_optimization.offload_param.device",
     "cpu"},
    {kDeepSpeed, "zero_optimization.cpu_offload_params", "zero_optimization.offload_param.device",
     "cpu"},
    // torchtitan before 2025.
    {kTitanToml, "training.batch_size", "training.local_batch_size", ""},
    {kTitanToml, "training.tensor_parallel_degree", "parallelism.tensor_parallel_degree", ""},
    {kTitanToml, "training.data_parallel_degree", "parallelism.data_parallel_shard_degree", ""},
    {kTitanToml, "training.data_parallel_shard_degree", "parallelism.data_parallel_shard_degree",
     ""},
    {kTitanToml, "training.data_parallel_replicate_degree",
     "parallelism.data_parallel_replicate_degree", ""},
    {kTitanToml, "training.fsdp_reshard_after_forward", "parallelism.fsdp_reshard_after_forward",
     ""},
    {kTitanToml, "training.compile", "compile.enable", ""},
    {kTitanToml, "experimental.enable_async_tensor_parallel",
     "parallelism.enable_async_tensor_parallel", ""},
    {kTitanToml, "float8.enable_float8_linear", "model.converters", "float8"},
    {kTitanToml, "training.enable_float8_linear", "model.converters", "float8"},
    {kTitanToml, "training.fp8_linear", "model.converters", "float8"},
};

int64_t WholeAt(Settings* settings, std::string_view key, int64_t missing) {
  const auto at = FindKey(settings, key);
  int64_t number = 0;
  if (at == settings->end() || ParseInteger(at->value, &number) != NumberFault::kNone || number < 1)
    return missing;
  return number;
}

// Products in 16 bits over weights in fp32: PyTorch's autocast (torch_autocast) and apex's (amp).
void SayAutocast(Settings* settings) {
  for (const std::string by : {"torch_autocast", "amp"}) {
    const auto on = FindKey(settings, by + ".enabled");
    if (on == settings->end() || Off(on->value) || !on->unresolved.empty()) continue;
    const auto type = FindKey(settings, by + ".dtype");
    const bool fp16 = by == "amp" || (type != settings->end() && type->value.ends_with("float16") &&
                                      !type->value.ends_with("bfloat16"));
    const Setting half{fp16 ? "fp16.enabled" : "bf16.enabled", "true", on->where, "", on->flag};
    settings->push_back(half);
  }
}

// What is off is as if it were not there.
void RespellDeepSpeed(Settings* settings) {
  // The old form (runtime/zero/config.py: read_zero_config_deprecated).
  for (Setting& setting : *settings) {
    if (setting.key != "zero_optimization" || (setting.value != "true" && !Off(setting.value)))
      continue;
    setting.key = "zero_optimization.stage";
    setting.value = setting.value == "true" ? "1" : "0";
  }
  // Weights leave the GPU with stage 3 alone (docs/_pages/config-json.md).
  const auto stage = FindKey(settings, "zero_optimization.stage");
  for (Setting& setting : *settings) {
    constexpr std::string_view kWeights = "zero_optimization.offload_param";
    if (!setting.key.starts_with(kWeights) || stage == settings->end() || stage->value == "3" ||
        stage->value == kAuto || !stage->unresolved.empty())
      continue;
    setting.said = setting.key;
    setting.key = "offload_param of another stage";
  }
  std::erase_if(*settings, [](const Setting& setting) {
    return ((setting.key == "bf16.enabled" || setting.key == "fp16.enabled") &&
            Off(setting.value)) ||
           (setting.key == "zero_hpz" && setting.value == "1");
  });
  SayAutocast(settings);
}

// OmegaConf takes Python's words for truths, too.
void RespellBridge(Settings* settings) {
  for (Setting& setting : *settings) {
    if (setting.value == "True" || setting.value == "TRUE") setting.value = "true";
    if (setting.value == "False" || setting.value == "FALSE") setting.value = "false";
  }
}

// split_points "layers.8", ... as the lists of modules that followed them.
std::string ModulesOf(const std::string& points, int64_t layers) {
  std::vector<int64_t> ends;
  for (std::size_t at = points.find("layers."); at != std::string::npos;
       at = points.find("layers.", at + 1)) {
    const std::size_t begin = at + 7;
    const std::size_t end = std::min(points.find_first_not_of("0123456789", begin), points.size());
    int64_t layer = 0;
    if (ParseInteger(std::string_view(points).substr(begin, end - begin), &layer) !=
            NumberFault::kNone ||
        layer > layers || (!ends.empty() && layer < ends.back()))
      return "";
    ends.push_back(layer);
  }
  ends.push_back(layers);
  std::string text = "[";
  int64_t next = 0;
  for (const int64_t end : ends) {
    text += text.size() > 1 ? ", [" : "[";
    for (bool first = true; next < end; ++next, first = false)
      text += fmt::format("{}\"layers.{}\"", first ? "" : ", ", next);
    text += "]";
  }
  return text + "]";
}

// data_parallel_type "ddp" of 2024: the one degree, or all GPUs (-1), counts replicas.
void ReplicasOfTitan(Settings* settings) {
  const auto type = FindKey(settings, "training.data_parallel_type");
  if (type == settings->end()) return;
  const bool replicas = type->value == "ddp";
  if (!replicas && type->value != "fsdp")
    throw InputError(
        {{type->where, fmt::format("data_parallel_type '{}' is no known choice", type->value),
          "known: fsdp, ddp"}});
  const Setting by = *type;
  settings->erase(type);
  if (!replicas) return;
  const auto degree = FindKey(settings, "parallelism.data_parallel_shard_degree");
  std::string copies = "-1";
  if (degree != settings->end()) std::swap(copies, degree->value);
  settings->push_back({"parallelism.data_parallel_replicate_degree", copies, by.where, ""});
  if (degree == settings->end())
    settings->push_back({"parallelism.data_parallel_shard_degree", "1", by.where, ""});
  FindKey(settings, "parallelism.data_parallel_shard_degree")->value = "1";
}

// Pipelines lay in [experimental] with a number of micro-batches, later in [parallelism] with their size.
void RespellTitan(std::optional<int64_t> layers, Settings* settings) {
  for (Setting& setting : *settings) {
    if (setting.flag && setting.value.empty() && setting.unresolved.empty()) setting.value = "true";
    if (setting.key.starts_with("experimental.pipeline_parallel_") ||
        setting.key.starts_with("experimental.context_parallel_"))
      setting.key = "parallelism." + setting.key.substr(13);
    for (const char* part : {"float8.", "mx."})  // of 2025
      if (setting.key.starts_with(part)) setting.key.insert(0, "quantize.linear.");
  }
  ReplicasOfTitan(settings);
  const int64_t stages = WholeAt(settings, "parallelism.pipeline_parallel_degree", 1);
  const auto points = FindKey(settings, "parallelism.pipeline_parallel_split_points");
  if (points != settings->end() && stages > 1 && layers) {
    const std::string modules = ModulesOf(points->value, *layers);
    if (!modules.empty() && points->value.find("layers.") != std::string::npos) {
      points->key = "parallelism.module_fqns_per_model_part";
      points->value = modules;
    }
  }
  const auto count = FindKey(settings, "parallelism.pipeline_parallel_microbatches");
  if (count == settings->end() || stages == 1) return;
  const int64_t number = WholeAt(settings, "parallelism.pipeline_parallel_microbatches", stages);
  const int64_t local = WholeAt(settings, "training.local_batch_size", 8);
  if (local % number == 0) {
    count->key = "parallelism.pipeline_parallel_microbatch_size";
    count->value = std::to_string(local / number);
  }
}

}  // namespace

Settings::iterator FindKey(Settings* settings, std::string_view key) {
  return std::ranges::find(*settings, key, &Setting::key);
}
bool HasKey(const Settings& settings, std::string_view key) {
  return std::ranges::find(settings, key, &Setting::key) != settings.end();
}

bool Off(const std::string& value) {
  return value == "false" || value == "False" || value == "none" || value == "None" ||
         value == "null" || value == "no" || value == "NO";
}

void Respell(Target target, std::optional<int64_t> layers, Settings* settings,
             std::vector<std::string>* notes) {
  for (Setting& setting : *settings) {
    if (setting.said.empty()) setting.said = setting.key;
    for (const Alias& alias : kAliases) {
      if (alias.target != target || setting.key != alias.key) continue;
      if (alias.value[0] != '\0' && Off(setting.value)) {
        setting.key.clear();  // a switch that is off: as if it were not there
        break;
      }
      setting.key = alias.now;
      if (alias.value[0] != '\0') setting.value = alias.value;
    }
  }
  std::erase_if(*settings, [](const Setting& setting) { return setting.key.empty(); });
  if (target == kMegatron) RespellMegatron(settings, notes);
  if (target == kBridge) RespellBridge(settings);
  if (target == kDeepSpeed) RespellDeepSpeed(settings);
  if (target == kAccelerate) RespellAccelerate(settings, notes);
  if (target == kTitanToml) RespellTitan(layers, settings);
}

void LetFlagsWin(Target target, Settings* settings, std::vector<std::string>* notes) {
  if (target != kAccelerate && target != kTitan && target != kTitanToml) return;
  const Settings all = *settings;
  std::erase_if(*settings, [&](const Setting& setting) {
    if (setting.flag) return false;
    const auto flag = std::ranges::find_if(
        all, [&](const Setting& other) { return other.flag && other.key == setting.key; });
    if (flag == all.end()) return false;
    if (flag->value != setting.value)
      notes->push_back(fmt::format("{}: {} {} replaces {} of {}", Place(flag->where), flag->key,
                                   flag->value, setting.value, Place(setting.where)));
    return true;
  });
}

}  // namespace orrery::exchange
