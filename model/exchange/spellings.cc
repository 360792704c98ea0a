// SPDX-License-Identifier: Apache-2.0
// Tables of spellings, and the settings of TrainingArguments and of older releases of torchtitan.
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

Settings::iterator FindKey(Settings* settings, std::string_view key) {
  return std::ranges::find(*settings, key, &Setting::key);
}
bool HasKey(const Settings& settings, std::string_view key) {
  return std::ranges::find(settings, key, &Setting::key) != settings.end();
}
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

bool SaysPrecision(const Settings& settings) {
  return HasKey(settings, "args.bf16") || HasKey(settings, "args.fp16") ||
         HasKey(settings, "args.tf32") || HasKey(settings, "mixed_precision") ||
         HasKey(settings, "args.deepspeed");
}

// The Trainer tells Accelerate its own precision (TrainingArguments.__post_init__), so that it goes before the file's.
void PrecisionOfTrainer(Settings* settings, std::vector<std::string>* notes) {
  for (const char* type : {"bf16", "fp16"}) {
    const auto own = FindKey(settings, std::string("args.") + type);
    if (own == settings->end()) continue;
    std::erase_if(*settings, [&, own = *own](const Setting& setting) {
      if (setting.key != "mixed_precision" || setting.value == type) return false;
      notes->push_back(fmt::format("{}: {} of the Trainer replaces mixed_precision {} of {}",
                                   Place(own.where), type, setting.value, Place(setting.where)));
      return true;
    });
  }
}

// Whoever loads its model in another type has that one, and TRL's classes take bf16 by themselves from 2025 on.
bool SaysType(const Settings& settings) {
  constexpr const char* kTypes[] = {"args.torch_dtype",  "args.dtype",        "args.precision",
                                    "args.load_in_4bit", "args.load_in_8bit", "TRL"};
  return SaysPrecision(settings) ||
         std::ranges::any_of(kTypes, [&](const char* key) { return HasKey(settings, key); });
}

// Where settings are those of a Trainer, its defaults hold.
void AddTrainerDefaults(Settings* settings, std::vector<std::string>* notes) {
  const auto trainer = std::ranges::find_if(
      *settings, [](const Setting& setting) { return setting.key.starts_with("args."); });
  if (trainer == settings->end()) return;
  const Location where = trainer->where;
  const bool micro = HasKey(*settings, "args.per_device_train_batch_size") ||
                     HasKey(*settings, "args.train_batch_size");
  const bool steps = HasKey(*settings, "args.gradient_accumulation_steps");
  // Other programs with flags have batches of their own.
  const bool own = steps || (!HasKey(*settings, "args.deepspeed_config") &&
                             std::ranges::any_of(*settings, [](const Setting& setting) {
                               return setting.key == "args.output_dir" ||
                                      (setting.key.starts_with("args.") && !setting.flag);
                             }));
  if (!micro && own) {
    notes->push_back(
        fmt::format("{}: per_device_train_batch_size 8, the Trainer's default", Place(where)));
    settings->push_back({"args.per_device_train_batch_size", "8", where, ""});
  }
  if (!steps && (micro || own))
    settings->push_back({"args.gradient_accumulation_steps", "1", where, ""});
  if ((!micro && !own) || SaysType(*settings)) return;
  settings->push_back({"mixed_precision", "no", where, ""});
  notes->push_back(fmt::format(
      "{}: precision fp32, the Trainer's default: nothing says bf16 or fp16", Place(where)));
}

// distributed_type NO: accelerate starts one process, whatever else its file counts.
void OneProcess(Settings* settings) {
  const auto type = FindKey(settings, "distributed_type");
  if (type == settings->end() || !Off(type->value)) return;
  const Setting none = *type;
  type->value = "MULTI_GPU";
  for (const char* key : {"num_processes", "num_machines"}) {
    const auto count = FindKey(settings, key);
    if (count == settings->end()) {
      settings->push_back({key, "1", none.where, ""});
    } else if (count->value != "1") {
      throw InputError({{count->where,
                         fmt::format("{} {} contradicts distributed_type {} in {}", key,
                                     count->value, none.value, Place(none.where)),
                         "NO is one process: MULTI_GPU, FSDP or DEEPSPEED for more"}});
    }
  }
}

// The Trainer refuses a number of steps that is not that of DeepSpeed's part (HfTrainerDeepSpeedConfig.fill_match).
void StepsOfDeepSpeed(Settings* settings) {
  const auto file = FindKey(settings, "deepspeed_config.gradient_accumulation_steps");
  const auto own = FindKey(settings, "args.gradient_accumulation_steps");
  if (file == settings->end() || file->value == kAuto) return;
  if (own == settings->end()) {
    const bool trainer = std::ranges::any_of(
        *settings, [](const Setting& setting) { return setting.key.starts_with("args."); });
    if (trainer) file->key = "args.gradient_accumulation_steps";
    return;
  }
  if (own->value != file->value) {
    throw InputError({{own->where,
                       fmt::format("gradient_accumulation_steps is {} here and {} in {}",
                                   own->value, file->value, Place(file->where)),
                       "keep one of them, or \"auto\" in DeepSpeed's part"}});
  }
  settings->erase(file);
}

// Of whoever starts the Trainer without Accelerate, which is returned: replicas, unless it is told to shard.
std::optional<Setting> ReplicasByDefault(Settings* settings, std::vector<std::string>* notes) {
  std::optional<Setting> by;
  const auto launcher = FindKey(settings, "LAUNCHER");
  if (launcher != settings->end()) {
    by = *launcher;
    settings->erase(launcher);
    if (!SaysSharding(*settings) && by->value == "torchrun")
      settings->push_back({"distributed_type", "MULTI_GPU", by->where, "", true});
  } else if (const auto trainer = std::ranges::find_if(
                 *settings, [](const Setting& one) { return one.key.starts_with("args."); });
             trainer != settings->end() && !SaysSharding(*settings)) {
    // So does whoever runs its arguments by another launcher.
    const Location where = trainer->where;
    settings->push_back({"distributed_type", "MULTI_GPU", where, ""});
    notes->push_back(fmt::format(
        "{}: replicas (DistributedDataParallel), as nothing says fsdp or deepspeed", Place(where)));
  }
  return by;
}

void RespellAccelerate(Settings* settings, std::vector<std::string>* notes) {
  static constexpr std::string_view kTruths[] = {
      "args.bf16", "args.fp16", "args.tf32", "args.gradient_checkpointing", "args.torch_compile"};
  for (Setting& setting : *settings) {
    if (std::ranges::find(kTruths, setting.key) == std::end(kTruths)) continue;
    if (setting.value == "True" || setting.value == "TRUE" || setting.value == "1" ||
        (setting.value.empty() && setting.unresolved.empty()))
      setting.value = "true";
    if (setting.key == "args.torch_compile" && Off(setting.value)) setting.value = "false";
  }
  // TF32 is how what stays in fp32 is multiplied.
  const auto half = [](const Setting& setting) {
    return (setting.key == "args.bf16" || setting.key == "args.fp16") && setting.value == "true";
  };
  if (std::ranges::any_of(*settings, half))
    std::erase_if(*settings, [](const Setting& setting) { return setting.key == "args.tf32"; });
  OneProcess(settings);
  StepsOfDeepSpeed(settings);
  const auto off = [](const Setting& setting) {
    return (setting.key == "args.bf16" || setting.key == "args.fp16") && Off(setting.value);
  };
  const auto first_off = std::ranges::find_if(*settings, off);
  const std::optional<Location> single =
      first_off != settings->end() ? std::optional(first_off->where) : std::nullopt;
  std::erase_if(*settings, off);
  if (single && !SaysPrecision(*settings))
    settings->push_back({"mixed_precision", "no", *single, ""});
  PrecisionOfTrainer(settings, notes);
  // All but products is in bf16; whose they are is left to a library (fp8_config.backend), of which there is no profile.
  if (const auto mixed = FindKey(settings, "mixed_precision");
      mixed != settings->end() && mixed->value == "fp8") {
    mixed->value = "bf16";
    notes->push_back(
        fmt::format("{}: mixed_precision fp8: products in 8 bits by Accelerate are not modelled; "
                    "they are predicted in bf16",
                    Place(mixed->where)));
  }
  RespellFsdp(settings, notes);
  // Both releases of FSDP shard all unless they are told otherwise.
  if (const auto type = FindKey(settings, "distributed_type");
      type != settings->end() && type->value == "FSDP" &&
      !HasKey(*settings, "fsdp_config.fsdp_sharding_strategy") &&
      !HasKey(*settings, "fsdp_config.fsdp_reshard_after_forward"))
    settings->push_back({"fsdp_config.fsdp_sharding_strategy", "FULL_SHARD", type->where, ""});
  // DeepSpeed's examples make its configuration from arguments of their own.
  if (const auto stage = FindKey(settings, "args.zero_stage"); stage != settings->end())
    stage->key = "deepspeed_config.zero_stage";
  const std::optional<Setting> by = ReplicasByDefault(settings, notes);
  AddTrainerDefaults(settings, notes);
  if (by && !SaysType(*settings))
    settings->push_back({"mixed_precision", "no", by->where, "", true});
  std::erase_if(*settings, [](const Setting& setting) { return setting.key == "TRL"; });
  // Accelerate's own part says how to compile where its file holds no Trainer's arguments.
  const auto dynamo = FindKey(settings, "dynamo_config.dynamo_backend");
  if (dynamo != settings->end() && !HasKey(*settings, "args.torch_compile"))
    *dynamo = {"args.torch_compile", Off(dynamo->value) ? "false" : "true", dynamo->where, ""};
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

bool SaysSharding(const Settings& settings) {
  return HasKey(settings, "distributed_type") || HasKey(settings, "args.deepspeed") ||
         std::ranges::any_of(settings, [](const Setting& setting) {
           return setting.key == "args.fsdp" || setting.key.starts_with("fsdp_config.") ||
                  setting.key.starts_with("deepspeed_config.") ||
                  setting.key.starts_with("zero_optimization");
         });
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
