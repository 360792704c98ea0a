// SPDX-License-Identifier: Apache-2.0
// Tells the values of launchers' options from the words that they start.
#include "model/exchange/launch_options.h"

#include <algorithm>
#include <string_view>

#include "model/exchange/launch_words.h"

namespace orrery::exchange {
namespace {

// Options of launchers and of Python that take no value.
constexpr std::string_view kSwitches =
    " "
    "u standalone no-python no_python use_env use-env multi_gpu use_fsdp use_deepspeed "
    "use_megatron_lm quiet debug same_network tpu cpu use_cpu no_local_rank force_multi "
    "no_ssh_check bind_cores_to_rank label exclusive allow-run-as-root oversubscribe "
    "tag-output report-bindings use-hwthread-cpus no-kill unbuffered overlap no_ssh "
    "dynamo_use_dynamic enable_cpu_affinity bynode l ";

std::string KeyOf(const std::string& option) {
  return option.substr(std::min(option.find_first_not_of('-'), option.size()));
}
// "-N4": its value stands in it.
bool HoldsNumber(const std::string& option) {
  return option.size() > 2 && option[1] != '-' && IsWhole(option.substr(2));
}

}  // namespace

bool StartsCommand(const std::string& text) {
  const std::string name = text.substr(text.rfind('/') + 1);
  return LaunchKindOf(text) != LaunchKind::kNone || name.starts_with("python") ||
         name.ends_with(".py") || name.ends_with(".sh") || name == "bash" || name == "sh" ||
         name == "env" || name == "singularity" || name == "apptainer";
}

namespace {

bool IsOfSlurm(LaunchKind launcher) {
  return launcher == LaunchKind::kSrun || launcher == LaunchKind::kJob;
}

// `next`: the word behind it, which is no option.
bool TakesValue(LaunchKind launcher, const std::string& option, const std::string& next) {
  if (option.find('=') != std::string::npos || HoldsNumber(option)) return false;
  if (!IsOfSlurm(launcher)) return kSwitches.find(" " + KeyOf(option) + " ") == kSwitches.npos;
  switch (SrunOptionTakes(option)) {
    case OptionTakes::kValue:
      return true;
    case OptionTakes::kNothing:
      return false;
    case OptionTakes::kUnknown:
      break;
  }
  // Plugins add long ones alone.
  return option.starts_with("--") && !StartsCommand(next);
}

}  // namespace

LaunchKind LaunchKindOf(const std::string& text) {
  const std::string name = text.substr(text.rfind('/') + 1);
  if (name == "torchrun" || name == "torch.distributed.run" || name == "torch.distributed.launch")
    return LaunchKind::kTorchrun;
  if (name == "deepspeed" || name == "deepspeed.launcher.runner") return LaunchKind::kDeepSpeed;
  if (name == "accelerate" || name == "accelerate-launch" || name == "accelerate.commands.launch")
    return LaunchKind::kAccelerate;
  if (name == "mpirun" || name == "mpiexec" || name == "orterun" || name == "mpiexec.hydra")
    return LaunchKind::kMpirun;
  if (name == "salloc" || name == "sbatch") return LaunchKind::kJob;
  return name == "srun"    ? LaunchKind::kSrun
         : name == "jsrun" ? LaunchKind::kJsrun
                           : LaunchKind::kNone;
}

bool IsModule(const std::string& option) { return option == "-m" || option == "--module"; }

std::vector<bool> ValuesIn(std::span<const Word> words) {
  std::vector<bool> values(words.size(), false);
  LaunchKind launcher = LaunchKind::kNone;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (values[i]) continue;
    const std::string& text = words[i].text;
    if (!IsOption(text)) {
      if (const LaunchKind next = LaunchKindOf(text); next != LaunchKind::kNone)
        launcher = next;
      else if (IsOfSlurm(launcher) && words[i].unresolved.empty())
        launcher = LaunchKind::kNone;  // what it starts
      continue;
    }
    if (i + 1 < words.size() && !IsOption(words[i + 1].text) && !IsModule(text))
      values[i + 1] = TakesValue(launcher, text, words[i + 1].text);
  }
  return values;
}

std::span<const Word> WordsOfSrun(std::span<const Word> words) {
  std::size_t own = 0;
  while (own < words.size()) {
    const std::string& text = words[own].text;
    if (!IsOption(text)) {
      if (words[own].unresolved.empty()) break;
      ++own;  // a variable with options, or none
      continue;
    }
    const bool takes = own + 1 < words.size() && !IsOption(words[own + 1].text) &&
                       TakesValue(LaunchKind::kSrun, text, words[own + 1].text);
    own += takes ? 2 : 1;
  }
  return words.first(own);
}

std::vector<LaunchOption> LaunchOptions(LaunchKind launcher, std::span<const Word> words) {
  if (IsOfSlurm(launcher)) words = WordsOfSrun(words);
  std::vector<LaunchOption> options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    if (!IsOption(text)) continue;
    LaunchOption option{KeyOf(text), "", words[i].where, words[i].unresolved,
                        text.starts_with("--")};
    if (const std::size_t equals = option.key.find('='); equals != std::string::npos) {
      option.value = option.key.substr(equals + 1);
      option.key.resize(equals);
    } else if (HoldsNumber(text)) {
      option.value = option.key.substr(1);
      option.key.resize(1);
    } else if (i + 1 < words.size() && !IsOption(words[i + 1].text) &&
               TakesValue(launcher, text, words[i + 1].text)) {
      option.value = words[++i].text;
      if (option.unresolved.empty()) option.unresolved = words[i].unresolved;
    }
    options.push_back(std::move(option));
  }
  return options;
}

// Without --nnodes one is torchrun's default (torch/distributed/run.py), and with --standalone the rendezvous is this machine's
// alone. Words that nobody knows may hold --nnodes.
std::optional<Setting> OneNodeOf(std::span<const Word> words) {
  const std::vector<bool> values = ValuesIn(words);
  for (std::size_t i = 0; i < words.size(); ++i)
    if (!values[i] && !words[i].unresolved.empty() && words[i].text.empty()) return std::nullopt;
  bool standalone = false, nodes = false;
  for (const LaunchOption& option : LaunchOptions(LaunchKind::kTorchrun, words)) {
    standalone |= option.key == "standalone";
    nodes |= option.key == "nnodes";
  }
  if (nodes && !standalone) return std::nullopt;
  Setting one{"NNODES", "1", words.empty() ? Location{} : words.front().where, ""};
  one.said = standalone ? "with --standalone" : "without --nnodes";
  return one;
}

std::optional<Setting> OfAccelerate(const LaunchOption& option) {
  std::string key = option.key;
  std::ranges::replace(key, '-', '_');
  std::string value = option.value;
  if (key == "multi_gpu" || key == "use_fsdp" || key == "use_deepspeed") {
    value = key == "use_fsdp" ? "FSDP" : key == "use_deepspeed" ? "DEEPSPEED" : "MULTI_GPU";
    key = "distributed_type";
  } else if (key == "zero_stage" || key == "gradient_clipping" ||
             key == "gradient_accumulation_steps" || key.starts_with("offload_") ||
             key == "deepspeed_config_file" || key.starts_with("deepspeed_inclusion") ||
             key.starts_with("deepspeed_exclusion") || key == "deepspeed_multinode_launcher") {
    key = "deepspeed_config." + key;
  } else if (key.starts_with("fsdp_")) {
    key = "fsdp_config." + key;
  } else if (key.starts_with("parallelism_config_")) {
    key = "parallelism_config." + key;
  } else if (key != "mixed_precision" && key != "config_file" && key != "gpu_ids") {
    return std::nullopt;
  }
  return Setting{std::move(key), std::move(value), option.where, option.unresolved, true};
}

}  // namespace orrery::exchange
