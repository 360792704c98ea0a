// SPDX-License-Identifier: Apache-2.0
// How the Trainer, TRL, LLaMA-Factory and Accelerate spell their settings, and the defaults that hold where they say nothing.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

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

// "bf16", "fp16" and "fp32" of "torch.bfloat16" and its like; "": none of them ("auto" is the checkpoint's own).
std::string TypeNamed(std::string_view type) {
  if (type.starts_with("torch.")) type.remove_prefix(6);
  constexpr std::pair<std::string_view, const char*> kNames[] = {
      {"bfloat16", "bf16"}, {"bf16", "bf16"},    {"float16", "fp16"}, {"fp16", "fp16"},
      {"half", "fp16"},     {"float32", "fp32"}, {"fp32", "fp32"},    {"float", "fp32"}};
  const auto row =
      std::ranges::find(kNames, type, &std::pair<std::string_view, const char*>::first);
  return row == std::end(kNames) ? "" : row->second;
}

// Accelerate's mixed_precision, or the Trainer's bf16 and fp16; "": none is on.
std::string MixedType(const Settings& settings) {
  for (const Setting& setting : settings) {
    if (setting.key == "mixed_precision" && !Off(setting.value)) return setting.value;
    if ((setting.key == "args.bf16" || setting.key == "args.fp16") && setting.value == "true")
      return setting.key.substr(5);
  }
  return "";
}

// The type that weights are loaded in (TRL's ModelConfig; LLaMA-Factory's pure_bf16) as WEIGHTS, which are trained so, or as BASE,
// which is frozen. FSDP with mixed precision casts them to fp32 (Accelerate 1.13, accelerator.py, prepare_model), DeepSpeed to
// what its own file says.
void WeightsOfTrainer(Settings* settings, std::vector<std::string>* notes) {
  const auto sharded = FindKey(settings, "distributed_type");
  const bool replicas = sharded != settings->end() && sharded->value == "MULTI_GPU";
  const bool fsdp = (sharded != settings->end() && sharded->value == "FSDP") ||
                    std::ranges::any_of(*settings, [](const Setting& setting) {
                      return setting.key == "args.fsdp" || setting.key.starts_with("fsdp_config.");
                    });
  const bool adapters = AsksAdapters(*settings);
  for (const char* key : {"args.pure_bf16", "args.torch_dtype", "args.dtype"}) {
    const auto loaded = FindKey(settings, key);
    if (loaded == settings->end() || !loaded->unresolved.empty()) continue;
    const bool pure = loaded->key == "args.pure_bf16";
    const std::string type = !pure ? TypeNamed(loaded->value) : Off(loaded->value) ? "" : "bf16";
    const std::string mixed = MixedType(*settings);
    if (type == "fp32" || (pure && type.empty()) || (fsdp && !mixed.empty() && !type.empty())) {
      settings->erase(loaded);
      continue;
    }
    if (type.empty() || (!replicas && !fsdp)) continue;
    const Location where = loaded->where;
    loaded->said = key;
    loaded->key = adapters ? "BASE" : "WEIGHTS";
    if (mixed.empty()) {
      std::erase_if(*settings, [](const Setting& setting) {
        return setting.key == "mixed_precision" || setting.key == "args.tf32";
      });
      settings->push_back({"mixed_precision", type, where, ""});
    }
    if (!adapters)
      notes->push_back(
          fmt::format("{}: {}: weights, gradients and states all in {}, without copies "
                      "in fp32",
                      Place(where), std::string_view(key).substr(5), type));
    return;
  }
  const auto factory = FindKey(settings, "args.finetuning_type");
  const std::string mixed = MixedType(*settings);
  if (!adapters || mixed.empty() || HasKey(*settings, "args.torch_dtype") ||
      HasKey(*settings, "args.dtype"))
    return;
  // LLaMA-Factory loads weights in the type that it computes in (model/loader.py: compute_dtype).
  if (factory != settings->end()) {
    settings->push_back({"BASE", mixed, factory->where, ""});
  } else if (replicas && !HasKey(*settings, "TRL")) {
    const auto asked = std::ranges::find_if(*settings, [](const Setting& setting) {
      return setting.key == "args.use_peft" || setting.key == "ADAPTERS";
    });
    if (!asked->value.empty() && asked->key == "ADAPTERS" && asked->value != "plain") return;
    for (const char* packed : {"args.load_in_4bit", "args.load_in_8bit"})
      if (const auto bits = FindKey(settings, packed); bits != settings->end() && !Off(bits->value))
        return;
    if (asked->said != asked->key &&
        asked->key != "ADAPTERS") {  // of another program, which may load them as it likes
      notes->push_back(fmt::format(
          "{}: frozen weights are taken in 16 bits: a program that loads them in fp32 holds 2 "
          "bytes more per parameter of the model",
          Place(asked->where)));
      return;
    }
    notes->push_back(fmt::format(
        "{}: not modelled: frozen weights in fp32, as no torch_dtype loads them in 16 bits; the "
        "prediction is without, 2 bytes per parameter of the model less than the job holds",
        Place(asked->where)));
  }
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
  constexpr std::string_view kOwn[] = {"args.bf16", "args.fp16", "args.do_train",
                                       "args.learning_rate", "args.num_train_epochs"};
  const bool named = HasKey(*settings, "args.model_name_or_path");
  const bool own =
      steps || (!HasKey(*settings, "args.deepspeed_config") &&
                std::ranges::any_of(*settings, [&](const Setting& setting) {
                  return setting.key == "args.output_dir" ||
                         (named && std::ranges::find(kOwn, setting.key) != std::end(kOwn)) ||
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

// LLaMA-Factory recomputes layers unless it is told not to (model/model_utils/checkpointing.py, prepare_model_for_training).
void FactoryRecompute(Settings* settings, std::vector<std::string>* notes, const Location where) {
  const auto off = FindKey(settings, "args.disable_gradient_checkpointing");
  const auto own = FindKey(settings, "fsdp_config.fsdp_activation_checkpointing");
  const bool disabled = off != settings->end() && !Off(off->value);
  if (const auto reentrant = FindKey(settings, "args.use_reentrant_gc");
      reentrant != settings->end())
    reentrant->key = "args.gradient_checkpointing_kwargs.use_reentrant";
  if (disabled) {
    std::erase_if(*settings, [](const Setting& setting) {
      return setting.key == "args.gradient_checkpointing";
    });
    FindKey(settings, "args.disable_gradient_checkpointing")->key = "args.gradient_checkpointing";
    FindKey(settings, "args.gradient_checkpointing")->value = "false";
    return;
  }
  if (off != settings->end()) settings->erase(off);
  if (own != settings->end() && !Off(own->value)) return;
  if (const auto said = FindKey(settings, "args.gradient_checkpointing");
      said != settings->end() && !Off(said->value))
    return;
  std::erase_if(*settings, [](const Setting& setting) {
    return setting.key == "args.gradient_checkpointing";
  });
  settings->push_back({"args.gradient_checkpointing", "true", where, ""});
  notes->push_back(fmt::format(
      "{}: LLaMA-Factory recomputes layers unless disable_gradient_checkpointing is true",
      Place(where)));
}

// LLaMA-Factory trains adapters unless it is told otherwise (hparams/finetuning_args.py); with Megatron's arguments it is another
// program.
void FactoryDefaults(Settings* settings, std::vector<std::string>* notes) {
  const auto stage = FindKey(settings, "args.stage");
  constexpr const char* kOwn[] = {"args.template", "args.cutoff_len", "args.finetuning_type",
                                  "args.dataset_dir"};
  if (stage == settings->end() ||
      std::ranges::none_of(kOwn, [&](const char* key) { return HasKey(*settings, key); }))
    return;
  for (const char* degree : {"args.tensor_model_parallel_size", "args.pipeline_model_parallel_size",
                             "args.expert_model_parallel_size", "args.context_parallel_size"})
    if (const auto found = FindKey(settings, degree);
        found != settings->end() && found->value != "1")
      throw InputError({{found->where,
                         fmt::format("{} {}: LLaMA-Factory's training with Megatron is not read",
                                     std::string_view(degree).substr(5), found->value),
                         "give its degrees by flags (--framework megatron --tp N --pp N)"}});
  const Location where = stage->where;
  FactoryRecompute(settings, notes, where);
  if (HasKey(*settings, "args.finetuning_type")) return;
  notes->push_back(fmt::format("{}: finetuning_type lora, LLaMA-Factory's default", Place(where)));
  settings->push_back({"args.finetuning_type", "lora", where, ""});
}

// Examples without a Trainer hand their own flag to Accelerator(), which goes before what the launcher says.
void PrecisionOfProgram(Settings* settings, std::vector<std::string>* notes) {
  const auto found = FindKey(settings, "args.mixed_precision");
  if (found == settings->end()) return;
  Setting own = *found;
  own.key = "mixed_precision";
  std::erase_if(*settings, [&](const Setting& setting) {
    if (setting.key == "mixed_precision" && setting.value != own.value)
      notes->push_back(fmt::format("{}: mixed_precision {} of the program replaces {} of {}",
                                   Place(own.where), own.value, setting.value,
                                   Place(setting.where)));
    return setting.key == "mixed_precision" || setting.key == "args.mixed_precision";
  });
  settings->push_back(std::move(own));
}

// Kinds of Accelerate's DistributedType (utils/dataclasses.py) that are no data parallelism on GPUs.
void CheckKindOfAccelerate(const Settings& settings) {
  const auto type = std::ranges::find(settings, "distributed_type", &Setting::key);
  if (type == settings.end() || !type->unresolved.empty()) return;
  if (type->value == "MEGATRON_LM")
    throw InputError({{type->where,
                       "distributed_type 'MEGATRON_LM': Accelerate's part for Megatron-LM "
                       "(megatron_lm_config) is not read",
                       "give its degrees by flags (--framework megatron --tp N --pp N), or "
                       "Megatron's own script; MULTI_GPU, FSDP and DEEPSPEED are read"}});
  const auto cpu = std::ranges::find(settings, "use_cpu", &Setting::key);
  if (cpu != settings.end() && (cpu->value == "true" || cpu->value == "True"))
    throw InputError(
        {{cpu->where, "use_cpu: a job without GPUs is not modelled", "use_cpu: false"}});
  constexpr std::string_view kOthers[] = {"MULTI_CPU",  "MULTI_XPU", "MULTI_NPU",
                                          "MULTI_MLU",  "MULTI_HPU", "MULTI_SDAA",
                                          "MULTI_MUSA", "TPU",       "XLA"};
  if (std::ranges::find(kOthers, type->value) != std::end(kOthers))
    throw InputError(
        {{type->where,
          fmt::format(
              "distributed_type '{}': a job on devices that are no GPUs of NVIDIA or AMD is "
              "not modelled",
              type->value),
          "MULTI_GPU, FSDP or DEEPSPEED for the same job on GPUs"}});
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

}  // namespace

bool SaysSharding(const Settings& settings) {
  return HasKey(settings, "distributed_type") || HasKey(settings, "args.deepspeed") ||
         std::ranges::any_of(settings, [](const Setting& setting) {
           return setting.key == "args.fsdp" || setting.key.starts_with("fsdp_config.") ||
                  setting.key.starts_with("deepspeed_config.") ||
                  setting.key.starts_with("zero_optimization");
         });
}

void RespellAccelerate(Settings* settings, std::vector<std::string>* notes) {
  RespellTrainerFlags(settings, notes);
  FactoryDefaults(settings, notes);
  RespellAdapters(settings, notes);
  CheckKindOfAccelerate(*settings);
  PrecisionOfProgram(settings, notes);
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
  WeightsOfTrainer(settings, notes);
  AddTrainerDefaults(settings, notes);
  if (by && !SaysType(*settings))
    settings->push_back({"mixed_precision", "no", by->where, "", true});
  std::erase_if(*settings, [](const Setting& setting) {
    return setting.key == "TRL" || setting.key == "ADAPTERS" || setting.key == "PREFERENCES" ||
           setting.key == "args.PREFERENCES";
  });
  // Accelerate's own part says how to compile where its file holds no Trainer's arguments.
  const auto dynamo = FindKey(settings, "dynamo_config.dynamo_backend");
  if (dynamo != settings->end() && !HasKey(*settings, "args.torch_compile"))
    *dynamo = {"args.torch_compile", Off(dynamo->value) ? "false" : "true", dynamo->where, ""};
}

}  // namespace orrery::exchange
