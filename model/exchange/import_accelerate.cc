// SPDX-License-Identifier: Apache-2.0
// Counts Accelerate's processes as accelerate launch does.
#include "model/exchange/import_accelerate.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <string_view>

#include "model/base/plain_text.h"
#include "model/exchange/command_settings.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

// A flag goes before a file.
Setting* FindIn(Settings* settings, std::string_view key) {
  Setting* found = nullptr;
  for (Setting& setting : *settings)
    if (setting.key == key && (found == nullptr || (setting.flag && !found->flag)))
      found = &setting;
  return found;
}

std::optional<Setting> TakeAway(Settings* settings, std::string_view key) {
  const Setting* found = FindIn(settings, key);
  if (found == nullptr) return std::nullopt;
  Setting taken = *found;
  std::erase_if(*settings, [&](const Setting& setting) { return setting.key == key; });
  if (taken.unresolved.empty() && (taken.value.empty() || Off(taken.value))) return std::nullopt;
  return taken;
}

// 0: not said, or no number.
int64_t CountIn(Settings* settings, std::string_view key) {
  const Setting* setting = FindIn(settings, key);
  int64_t count = 0;
  if (setting == nullptr || ParseInteger(setting->value, &count) != NumberFault::kNone) return 0;
  return std::max<int64_t>(count, 0);
}

// What says a type of numbers, in the arguments or in the program that reads them.
bool SaysHalf(const Settings& trainer) {
  constexpr std::string_view kKeys[] = {
      "args.bf16",           "args.fp16",        "args.bf16_full_eval",
      "args.fp16_full_eval", "args.torch_dtype", "args.dtype",
      "args.precision",      "mixed_precision",  "TRL"};
  return std::ranges::any_of(trainer, [&](const Setting& setting) {
    return std::ranges::find(kKeys, setting.key) != std::end(kKeys) && !Off(setting.value);
  });
}

}  // namespace

void CheckMachines(const SettingIndex& index, const Values& given) {
  const auto each = given.find("gpus_per_node");
  if (given.contains("nodes") || (each != given.end() && !each->second.key.empty())) return;
  const auto all = index.Whole("num_processes", 1), machines = index.Whole("num_machines", 1);
  if (!all || !machines || *all % *machines == 0) return;
  throw InputError(
      {{index.Find("num_processes")->where,
        fmt::format("num_processes {} does not divide by num_machines {}", *all, *machines),
        "num_processes counts all machines together"}});
}

std::optional<OpenBatch> StepsWithoutBatch(const SettingIndex& index, const Values& values) {
  const Setting* steps = nullptr;
  for (const char* key :
       {"args.gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps"}) {
    if (steps == nullptr && !index.Peek(key).empty() && index.Peek(key) != kAuto)
      steps = index.Find(key);
  }
  if (steps == nullptr) return std::nullopt;
  const std::string name = steps->key.substr(steps->key.find('.') + 1) + " " + steps->value;
  const int64_t micro = NumberOf(values, "micro_batch", 0);
  if (micro == 0)
    return OpenBatch{steps->where, name + " of micro-batches whose size nothing says",
                     "--micro-batch N, --global-batch N, or --from a file of the TrainingArguments",
                     true};
  if (index.Has("num_processes")) return std::nullopt;
  return OpenBatch{steps->where,
                   fmt::format("{} x micro-batch {} x GPUs is the global batch, and nothing says "
                               "how many GPUs there are",
                               name, micro),
                   "--nodes N, the launch script (--from train.sh), or --global-batch N"};
}

void CountMachines(const Settings& launch, const Values& given,
                   std::map<Target, Settings>* targets) {
  const auto accelerate = targets->find(kAccelerate);
  if (accelerate == targets->end() || Has(launch, {"NNODES"})) return;
  Settings& own = accelerate->second;
  const auto processes = std::ranges::find(own, "num_processes", &Setting::key);
  if (processes == own.end() || Has(own, {"num_machines"})) return;
  const auto nodes = given.find("nodes");
  const Setting count = nodes == given.end()
                            ? Setting{"num_machines", "1", processes->where, ""}
                            : Setting{"num_machines", nodes->second.text, nodes->second.where, ""};
  own.push_back(count);
}

void TakeGpuIds(Settings* accelerate, std::vector<std::string>* notes) {
  const std::optional<Setting> ids = TakeAway(accelerate, "gpu_ids");
  if (!ids || ids->value == "all") return;
  if (!ids->unresolved.empty()) {
    notes->push_back(fmt::format("{}: gpu_ids: {}", Place(ids->where), ids->unresolved));
    return;
  }
  std::set<int64_t> gpus;
  for (std::size_t begin = 0; begin <= ids->value.size();) {
    const std::size_t end = std::min(ids->value.find(',', begin), ids->value.size());
    int64_t gpu = 0;
    const std::string one = ids->value.substr(begin, end - begin);
    if (ParseInteger(one, &gpu) != NumberFault::kNone || gpu < 0 || !gpus.insert(gpu).second)
      throw InputError({{ids->where, fmt::format("gpu_ids '{}': '{}' is no GPU", ids->value, one),
                         "all, or numbers such as 0,1,2,3"}});
    begin = end + 1;
  }
  const auto each = static_cast<int64_t>(gpus.size());
  const int64_t machines = std::max<int64_t>(CountIn(accelerate, "num_machines"), 1);
  const Setting* processes = FindIn(accelerate, "num_processes");
  if (processes == nullptr) {
    notes->push_back(fmt::format("{}: gpu_ids {}: {} GPU{} of a machine", Place(ids->where),
                                 ids->value, each, each == 1 ? "" : "s"));
    accelerate->push_back({"num_processes", Text(each * machines), ids->where, "", ids->flag});
  } else if (CountIn(accelerate, "num_processes") > each * machines) {
    throw InputError(
        {{processes->where,
          fmt::format("{} processes on {} machine{}, and gpu_ids in {} leaves {} GPU{} of each",
                      processes->value, machines, machines == 1 ? "" : "s", Place(ids->where), each,
                      each == 1 ? "" : "s"),
          "as many processes as GPUs, or gpu_ids all"}});
  }
}

std::optional<Hostfile> FilterOfAccelerate(Settings* accelerate,
                                           const std::vector<Hostfile>& launched,
                                           std::vector<std::string>* notes) {
  const std::string part = "deepspeed_config.deepspeed_";
  const auto includes = TakeAway(accelerate, part + "inclusion_filter");
  const auto excludes = TakeAway(accelerate, part + "exclusion_filter");
  if (!includes && !excludes) return std::nullopt;
  const auto hostfile = TakeAway(accelerate, part + "hostfile");
  const auto launcher = TakeAway(accelerate, part + "multinode_launcher");
  Hostfile use;
  use.filter = excludes ? *excludes : *includes;  // it looks at these first
  use.excludes = excludes.has_value();
  use.filter.key = use.excludes ? "deepspeed_exclusion_filter" : "deepspeed_inclusion_filter";
  const bool standard = launcher && launcher->value == "standard";
  if (standard || CountIn(accelerate, "num_machines") < 2) {
    notes->push_back(fmt::format("{}: {} has no effect {}", Place(use.filter.where), use.filter.key,
                                 standard ? "with the launcher standard" : "on one machine"));
    return std::nullopt;
  }
  const auto named =
      std::ranges::find_if(launched, [](const Hostfile& file) { return !file.file.value.empty(); });
  if (named != launched.end()) {
    use.file = named->file;
  } else if (hostfile) {
    use.file = *hostfile;
    use.file.key = "hostfile";
  }
  return use;
}

void ReplaceMachines(const Settings& made, Settings* accelerate) {
  const auto count = [&](const char* key) {
    const auto at = std::ranges::find(made, key, &Setting::key);
    return at == made.end() ? nullptr : &*at;
  };
  const Setting *nodes = count("NNODES"), *gpus = count("GPUS_PER_NODE");
  if (nodes == nullptr) return;
  const int64_t before = std::max<int64_t>(CountIn(accelerate, "num_machines"), 1);
  const int64_t each =
      gpus != nullptr ? std::stoll(gpus->value) : CountIn(accelerate, "num_processes") / before;
  std::erase_if(*accelerate, [](const Setting& setting) {
    return setting.key == "num_machines" || setting.key == "num_processes";
  });
  accelerate->push_back({"num_machines", nodes->value, nodes->where, "", true});
  if (each > 0)
    accelerate->push_back(
        {"num_processes", Text(std::stoll(nodes->value) * each), nodes->where, "", true});
}

void FillPrecision(std::map<Target, Settings>* targets, std::vector<std::string>* notes) {
  const auto trainer = targets->find(kAccelerate), file = targets->find(kDeepSpeed);
  if (trainer == targets->end() || file == targets->end() || SaysHalf(trainer->second)) return;
  bool named = false,
       others = false;  // a program with DeepSpeed's own --deepspeed_config fills in nothing
  for (const Setting& setting : trainer->second) {
    named = named || setting.key == "args.deepspeed";
    others = others || (setting.key.starts_with("args.") && setting.key != "args.deepspeed");
  }
  if (!named || !others) return;
  for (Setting& setting : file->second) {
    const std::string_view key = setting.key;
    if (setting.value != kAuto ||
        (key != "bf16.enabled" && key != "bfloat16.enabled" && key != "fp16.enabled"))
      continue;
    setting.value = "false";
    notes->push_back(
        fmt::format("{}: {} \"auto\" is off: the Trainer's arguments say neither bf16 "
                    "nor fp16",
                    Place(setting.where), key));
  }
}

}  // namespace orrery::exchange
