// SPDX-License-Identifier: Apache-2.0
// Cuts a command into its launchers and reads the options of each.
#include "model/exchange/launch_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "model/base/plain_text.h"

namespace orrery::exchange {
namespace {

constexpr int64_t kMostTasks = int64_t{1} << 24;

// Launchers by the meaning of their options.
enum class Kind { kNone, kTorch, kDeepSpeed, kAccelerate, kMpirun, kSrun, kJsrun };

Kind KindOf(const std::string& text) {
  const std::string name = text.substr(text.rfind('/') + 1);
  if (name == "torchrun" || name == "torch.distributed.run" || name == "torch.distributed.launch")
    return Kind::kTorch;
  if (name == "deepspeed" || name == "deepspeed.launcher.runner") return Kind::kDeepSpeed;
  if (name == "accelerate" || name == "accelerate-launch" || name == "accelerate.commands.launch")
    return Kind::kAccelerate;
  if (name == "mpirun" || name == "mpiexec" || name == "orterun" || name == "mpiexec.hydra")
    return Kind::kMpirun;
  return name == "srun" ? Kind::kSrun : name == "jsrun" ? Kind::kJsrun : Kind::kNone;
}

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
bool IsSwitch(const std::string& option) {
  return kSwitches.find(" " + KeyOf(option) + " ") != std::string_view::npos;
}
// "-N4": its value stands in it.
bool HoldsNumber(const std::string& option) {
  return option.size() > 2 && option[1] != '-' && IsWhole(option.substr(2));
}
bool TakesValue(const std::string& option) {
  return IsOption(option) && option.find('=') == std::string::npos && !IsSwitch(option) &&
         !HoldsNumber(option);
}
bool IsModule(const std::string& option) { return option == "-m" || option == "--module"; }

// An option of a launcher and what stands behind it.
struct Option {
  std::string key, value;
  Location where;
  std::string unresolved;
  bool dashes = false;  // "--key"
};

std::vector<Option> OptionsIn(std::span<const Word> words) {
  std::vector<Option> options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& text = words[i].text;
    if (!IsOption(text)) continue;
    Option option{KeyOf(text), "", words[i].where, words[i].unresolved, text.starts_with("--")};
    if (const std::size_t equals = option.key.find('='); equals != std::string::npos) {
      option.value = option.key.substr(equals + 1);
      option.key.resize(equals);
    } else if (HoldsNumber(text)) {
      option.value = option.key.substr(1);
      option.key.resize(1);
    } else if (i + 1 < words.size() && TakesValue(text) && !IsOption(words[i + 1].text)) {
      option.value = words[++i].text;
      if (option.unresolved.empty()) option.unresolved = words[i].unresolved;
    }
    options.push_back(std::move(option));
  }
  return options;
}

struct KeyRow {
  Kind kind;
  const char* option;
  const char* key;
};
// TASKS and TASKS_PER_NODE: processes, which are ranks or the agents that start them.
constexpr KeyRow kKeys[] = {
    {Kind::kTorch, "nnodes", "NNODES"},
    {Kind::kTorch, "nproc-per-node", "GPUS_PER_NODE"},
    {Kind::kDeepSpeed, "num-nodes", "NNODES"},
    {Kind::kDeepSpeed, "num-gpus", "GPUS_PER_NODE"},
    {Kind::kAccelerate, "num-machines", "num_machines"},
    {Kind::kAccelerate, "num-processes", "num_processes"},
    {Kind::kMpirun, "np", "TASKS"},
    {Kind::kMpirun, "n", "TASKS"},
    {Kind::kMpirun, "N", "TASKS_PER_NODE"},
    {Kind::kMpirun, "npernode", "TASKS_PER_NODE"},
    {Kind::kMpirun, "ppn", "TASKS_PER_NODE"},
    {Kind::kMpirun, "perhost", "TASKS_PER_NODE"},
    {Kind::kMpirun, "map-by", "MAP"},
    {Kind::kMpirun, "bynode", "BY_NODE"},
    {Kind::kMpirun, "hostfile", "HOSTFILE"},
    {Kind::kMpirun, "machinefile", "HOSTFILE"},
    {Kind::kMpirun, "f", "HOSTFILE"},
    {Kind::kDeepSpeed, "hostfile", "HOSTFILE"},
    {Kind::kDeepSpeed, "H", "HOSTFILE"},
    {Kind::kDeepSpeed, "include", "INCLUDE"},
    {Kind::kDeepSpeed, "i", "INCLUDE"},
    {Kind::kDeepSpeed, "exclude", "EXCLUDE"},
    {Kind::kDeepSpeed, "e", "EXCLUDE"},
    {Kind::kAccelerate, "deepspeed-hostfile", "HOSTFILE"},
    {Kind::kMpirun, "host", "HOSTS"},
    {Kind::kMpirun, "hosts", "HOSTS"},
    {Kind::kMpirun, "H", "HOSTS"},
    {Kind::kSrun, "nodes", "NNODES"},
    {Kind::kSrun, "N", "NNODES"},
    {Kind::kSrun, "ntasks", "TASKS"},
    {Kind::kSrun, "n", "TASKS"},
    {Kind::kSrun, "ntasks-per-node", "TASKS_PER_NODE"},
    {Kind::kSrun, "gpus-per-node", "GPUS_PER_NODE"},
    {Kind::kSrun, "gres", "GPUS_PER_NODE"},
    {Kind::kJsrun, "nrs", "TASKS"},
    {Kind::kJsrun, "n", "TASKS"},
    {Kind::kJsrun, "np", "ALL_TASKS"},
    {Kind::kJsrun, "p", "ALL_TASKS"},
    {Kind::kJsrun, "tasks-per-rs", "TASKS_OF_SET"},
    {Kind::kJsrun, "a", "TASKS_OF_SET"},
    {Kind::kJsrun, "gpu-per-rs", "GPUS_OF_SET"},
    {Kind::kJsrun, "g", "GPUS_OF_SET"},
    {Kind::kJsrun, "rs-per-host", "TASKS_PER_NODE"},
    {Kind::kJsrun, "r", "TASKS_PER_NODE"},
    // Of a launcher that a variable names, by whatever name is its alone.
    {Kind::kNone, "nnodes", "NNODES"},
    {Kind::kNone, "num-nodes", "NNODES"},
    {Kind::kNone, "nodes", "NNODES"},
    {Kind::kNone, "nproc-per-node", "GPUS_PER_NODE"},
    {Kind::kNone, "num-gpus", "GPUS_PER_NODE"},
    {Kind::kNone, "gpus-per-node", "GPUS_PER_NODE"},
    {Kind::kNone, "num-machines", "num_machines"},
    {Kind::kNone, "num-processes", "num_processes"},
};

std::string Dashed(std::string key) {
  std::ranges::replace(key, '_', '-');
  return key;
}

// Hosts of "a:8,b:8" and the slots of each; 0: not said, or not the same.
std::pair<int64_t, int64_t> HostsOf(const std::string& list) {
  int64_t hosts = 0, slots = -1;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string host = list.substr(begin, end - begin);
    begin = end + 1;
    int64_t own = 0;
    if (const std::size_t colon = host.find(':'); colon != std::string::npos)
      (void)ParseInteger(host.substr(colon + 1), &own);
    slots = slots < 0 || slots == own ? own : 0;
    ++hosts;
  }
  return {hosts, std::max<int64_t>(0, slots)};
}

// accelerate launch's options by the keys of its configuration.
std::optional<Setting> OfAccelerate(const Option& option) {
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

class LaunchReader {
 public:
  void Segment(Kind kind, std::span<const Word> words) {
    says_.torch |= kind == Kind::kTorch;
    says_.accelerate |= kind == Kind::kAccelerate;
    says_.deepspeed |= kind == Kind::kDeepSpeed;
    tasks_.reset();
    each_.reset();
    hostfile_.reset();
    filter_.reset();
    of_set_.reset();
    gpus_of_set_.reset();
    spread_ = false;
    Location where;
    for (const Option& option : OptionsIn(words)) {
      where = option.where;
      const std::string slurm = kind == Kind::kSrun ? SlurmOption(option.key, option.dashes) : "";
      const std::string name = slurm.empty() ? Dashed(option.key) : slurm;
      const auto row = std::ranges::find_if(
          kKeys, [&](const KeyRow& key) { return key.kind == kind && name == key.option; });
      if (row != std::end(kKeys)) {
        says_.step |= kind == Kind::kSrun && std::string_view(row->key) == "NNODES";
        Take(row->key, option);
      } else if (kind == Kind::kAccelerate) {
        if (auto setting = OfAccelerate(option)) says_.settings.push_back(std::move(*setting));
      }
    }
    if (kind == Kind::kSrun) FindUnknown(words);
    if (kind == Kind::kJsrun) CountSets();
    if (kind == Kind::kMpirun || kind == Kind::kSrun || kind == Kind::kJsrun)
      Tasks(kind == Kind::kSrun);
    if (hostfile_ || filter_) says_.hostfiles.push_back(Using());
  }

  Hostfile Using() const {
    Hostfile use;
    if (hostfile_)
      use.file = {"hostfile", hostfile_->value, hostfile_->where, hostfile_->unresolved, true};
    if (filter_) {
      use.excludes = excludes_;
      use.filter = {filter_->key, filter_->value, filter_->where, filter_->unresolved, true};
    }
    (void)Counted(tasks_, &use.tasks);
    (void)Counted(each_, &use.each);
    use.spread = spread_;
    return use;
  }
  static bool Counted(const std::optional<Option>& option, int64_t* number) {
    return option && option->unresolved.empty() && IsWhole(option->value) &&
           ParseInteger(option->value, number) == NumberFault::kNone;
  }

  LaunchSays Done() {
    CheckFilters();
    for (Hostfile& use : says_.hostfiles)
      use.agents = says_.torch || says_.accelerate || (says_.deepspeed && use.tasks > 0);
    // The agents that a launcher starts are no ranks: each starts those of its node.
    const bool agents = says_.torch || says_.accelerate || says_.deepspeed;
    if (agents && crowd_)
      throw InputError(
          {{crowd_->where,
            fmt::format("{} tasks on a node, and each starts the ranks of the node", crowd_->value),
            "one task on a node, or the program without its launcher"}});
    if (agents)
      std::erase_if(says_.settings, [](const Setting& setting) {
        return setting.key == "RANKS" || setting.key == "TASKS";
      });
    for (Setting& setting : says_.settings)
      if (setting.key == "TASKS") setting.key = "WORLD";
    const auto has = [&](const char* key) {
      return std::ranges::find(says_.settings, key, &Setting::key) != says_.settings.end();
    };
    // Ranks of a node have a GPU each; agents find those of their sets.
    for (const char* ranks : {"RANKS", "SET_GPUS"}) {
      for (Setting& setting : says_.settings)
        if (setting.key == ranks) setting.key = has("GPUS_PER_NODE") ? "" : "GPUS_PER_NODE";
    }
    std::erase_if(says_.settings, [](const Setting& setting) { return setting.key.empty(); });
    return std::move(says_);
  }

 private:
  // Of srun itself: behind its first word that is none of its options stands what it starts.
  void FindUnknown(std::span<const Word> words) {
    std::size_t own = 0;
    while (own < words.size() && IsOption(words[own].text))
      own += TakesValue(words[own].text) && own + 1 < words.size() ? 2 : 1;
    for (const Option& option : OptionsIn(words.first(std::min(own, words.size())))) {
      if (option.unresolved.empty() && SlurmOption(option.key, option.dashes).empty())
        says_.unknown.push_back({(option.dashes ? "--" : "-") + option.key, "", option.where, ""});
    }
  }

  void CheckFilters() const {
    for (const Hostfile& use : says_.hostfiles) {
      const auto count = std::ranges::find_if(says_.settings, [&](const Setting& setting) {
        return use.filters() && says_.deepspeed &&
               (setting.key == "NNODES" || setting.key == "GPUS_PER_NODE");
      });
      if (count != says_.settings.end())
        throw InputError(
            {{use.filter.where,
              fmt::format("--{} here, and a number of {} in {}", use.filter.key,
                          count->key == "NNODES" ? "nodes" : "GPUs", Place(count->where)),
              "DeepSpeed takes one of them"}});
    }
  }

  void Take(const std::string& key, const Option& option) {
    if (key == "HOSTS") {
      const auto [hosts, slots] = HostsOf(option.value);
      if (option.unresolved.empty() && hosts == 0) return;
      Add("NNODES", std::to_string(hosts), option);
      if (slots > 0) each_ = Option{"", std::to_string(slots), option.where, ""};
      return;
    }
    spread_ |= key == "BY_NODE" || (key == "MAP" && option.value == "node");
    if (key == "BY_NODE") {
    } else if (key == "HOSTFILE") {
      hostfile_ = option;
    } else if (key == "INCLUDE" || key == "EXCLUDE") {
      TakeFilter(option, key == "EXCLUDE");
    } else if (key == "MAP") {  // ppr:8:node
      if (!option.value.starts_with("ppr:") || !option.value.ends_with(":node")) return;
      each_ = option;
      each_->value = option.value.substr(4, option.value.size() - 9);
    } else if (key == "TASKS_OF_SET") {
      of_set_ = option;
    } else if (key == "GPUS_OF_SET") {
      gpus_of_set_ = option;
    } else if (key == "TASKS" || (key == "ALL_TASKS" && !tasks_)) {
      tasks_ = option;
      all_tasks_ = key == "ALL_TASKS";
    } else if (key == "TASKS_PER_NODE") {
      each_ = option;
    } else {
      const std::string gpus =
          key == "GPUS_PER_NODE" ? GpusIn(option.value, option.key == "gres") : "";
      Add(key, gpus.empty() ? option.value : gpus, option);
    }
  }

  // DeepSpeed takes one of both, and no counts next to it.
  void TakeFilter(const Option& option, bool excludes) {
    if (option.value.empty() && option.unresolved.empty()) return;
    if (filter_ && excludes_ != excludes)
      throw InputError(
          {{option.where, "--include and --exclude exclude each other", "keep one of them"}});
    filter_ = option;
    filter_->key = excludes ? "exclude" : "include";
    excludes_ = excludes;
  }

  void Add(const std::string& key, const std::string& value, const Option& option) {
    Setting setting{key, value, option.where, option.unresolved, true};
    if (setting.unresolved.empty() && key == "NNODES") setting = CountedNodes(std::move(setting));
    if (setting.unresolved.empty() && !IsWhole(setting.value)) {
      // Words such as "gpu" count what a node has.
      if (!setting.value.empty() && setting.value[0] >= '0' && setting.value[0] <= '9')
        throw InputError(
            {{setting.where, fmt::format("{}: '{}' is no whole number", option.key, setting.value),
              "digits alone, such as 8"}});
      says_.all_gpus |= key == "GPUS_PER_NODE";
      return;
    }
    says_.settings.push_back(std::move(setting));
  }

  // jsrun counts sets of cores and GPUs, each with so many tasks (1 unless it is told). "-n ALL_HOSTS" is a set on each host.
  void CountSets() {
    int64_t tasks = 1, gpus = 0, sets = 0;
    if (tasks_ && tasks_->value == "ALL_HOSTS" && !all_tasks_) {
      if (!each_) each_ = Option{"", "1", tasks_->where, ""};
      tasks_.reset();
    }
    std::optional<Option>* const counts[] = {all_tasks_ ? nullptr : &tasks_, &each_};
    if (Counted(gpus_of_set_, &gpus) && Counted(each_, &sets) && gpus < kMostTasks &&
        sets < kMostTasks)
      Add("SET_GPUS", std::to_string(gpus * sets), *gpus_of_set_);
    if (of_set_ && !Counted(of_set_, &tasks)) {  // nobody knows it, and no product either
      for (std::optional<Option>* all : counts)
        if (all != nullptr && *all) (*all)->unresolved = of_set_->unresolved;
      return;
    }
    for (std::optional<Option>* all : counts) {
      int64_t count = 0;
      if (all != nullptr && Counted(*all, &count) && count < kMostTasks && tasks < kMostTasks)
        (*all)->value = std::to_string(count * tasks);
    }
  }

  // Processes of MPI or Slurm. Of Slurm's several tasks alone are ranks: one a node is an agent.
  void Tasks(bool slurm) {
    int64_t all = 0, each = 0;
    (void)Counted(tasks_, &all);
    (void)Counted(each_, &each);
    if (each > 1) crowd_ = each_;
    if (each > 1 || (each == 1 && !slurm)) Add("RANKS", std::to_string(each), *each_);
    const auto nodes = std::ranges::find(says_.settings, "NNODES", &Setting::key);
    if (all == 0) {
      if (tasks_ && !tasks_->unresolved.empty() && nodes == says_.settings.end())
        Add("NNODES", "", *tasks_);
      return;
    }
    if (each > 0 && all % each == 0) {
      if (nodes == says_.settings.end()) Add("NNODES", std::to_string(all / each), *tasks_);
      return;
    }
    int64_t count = 0;
    if (nodes != says_.settings.end() && nodes->unresolved.empty() &&
        ParseInteger(nodes->value, &count) == NumberFault::kNone && count > 0) {
      if (each == 0 && all % count == 0 && all > count)
        Add("RANKS", std::to_string(all / count), *tasks_);
    } else if (all > 1) {
      Add("TASKS", std::to_string(all), *tasks_);
    }
  }

  LaunchSays says_;
  std::optional<Option> crowd_;  // several tasks on a node
  std::optional<Option> tasks_, each_, hostfile_, filter_, of_set_, gpus_of_set_;
  bool excludes_ = false, spread_ = false, all_tasks_ = false;
};

}  // namespace

bool IsOption(const std::string& text) {
  if (text.size() < 2 || text[0] != '-') return false;
  if (text[1] == '-') return text.size() > 2;
  return (text[1] >= 'a' && text[1] <= 'z') || (text[1] >= 'A' && text[1] <= 'Z');
}

bool IsArgumentsFile(const std::string& text) {
  return !IsOption(text) &&
         (text.ends_with(".json") || text.ends_with(".yaml") || text.ends_with(".yml"));
}

bool IsWhole(const std::string& text) {
  int64_t number = 0;
  return ParseInteger(text, &number) == NumberFault::kNone && number > 0;
}

bool StartsLlamaFactory(const std::string& text) {
  const std::string name = text.substr(text.rfind('/') + 1);
  return name == "llamafactory-cli" || name == "lmf";
}

std::size_t ProgramOf(const Words& words) {
  const auto value = [&](std::size_t i) { return i > 0 && TakesValue(words[i - 1].text); };
  // Behind a program -m is an option of its own.
  const auto scripts = [&](std::size_t end) {
    return std::ranges::any_of(std::span(words).first(end),
                               [](const Word& word) { return word.text.ends_with(".py"); });
  };
  for (std::size_t i = words.size(); i-- > 0;) {
    const std::string& text = words[i].text;
    const bool module = i > 0 && words[i - 1].text == "-m";  // --module is torchtitan's own, too
    if (module && KindOf(text) == Kind::kNone && !text.empty() && !scripts(i)) return i;
    if (text.ends_with(".py") && !value(i)) return i;
    if (text == "torchtitan.train" || text == "train.train") return i;
    if (text == "train" && i > 0 && StartsLlamaFactory(words[i - 1].text)) return i;
  }
  // A program that a variable names stands before the first option behind the launcher's, or before a file of arguments.
  for (std::size_t i = 0; i + 1 < words.size(); ++i) {
    if (words[i].unresolved.empty() || value(i) || words[i].text.ends_with('=')) continue;
    if (IsOption(words[i + 1].text) || IsArgumentsFile(words[i + 1].text)) return i;
  }
  return words.size();
}

LaunchSays LaunchOf(std::span<const Word> words) {
  LaunchReader reader;
  Kind kind = Kind::kNone;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= words.size(); ++i) {
    const bool end = i == words.size();
    const bool value =
        !end && i > 0 && TakesValue(words[i - 1].text) && !IsModule(words[i - 1].text);
    const Kind next = end || value ? Kind::kNone : KindOf(words[i].text);
    if (!end && next == Kind::kNone) continue;
    reader.Segment(kind, words.subspan(begin, i - begin));
    begin = i + 1;
    kind = next;
  }
  return reader.Done();
}

}  // namespace orrery::exchange
