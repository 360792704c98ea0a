// SPDX-License-Identifier: Apache-2.0
// Cuts a command into its launchers and reads the options of each.
#include "model/exchange/launch_words.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "model/base/plain_text.h"
#include "model/exchange/command_settings.h"
#include "model/exchange/launch_options.h"

namespace orrery::exchange {
namespace {

constexpr int64_t kMostTasks = int64_t{1} << 24;

struct KeyRow {
  LaunchKind launcher;
  const char* option;
  const char* key;
};
// TASKS and TASKS_PER_NODE: processes, which are ranks or the agents that start them.
constexpr KeyRow kKeys[] = {
    {LaunchKind::kTorchrun, "nnodes", "NNODES"},
    {LaunchKind::kTorchrun, "nproc-per-node", "GPUS_PER_NODE"},
    {LaunchKind::kDeepSpeed, "num-nodes", "NNODES"},
    {LaunchKind::kDeepSpeed, "num-gpus", "GPUS_PER_NODE"},
    {LaunchKind::kAccelerate, "num-machines", "num_machines"},
    {LaunchKind::kAccelerate, "num-processes", "num_processes"},
    {LaunchKind::kMpirun, "np", "TASKS"},
    {LaunchKind::kMpirun, "n", "TASKS"},
    {LaunchKind::kMpirun, "N", "TASKS_PER_NODE"},
    {LaunchKind::kMpirun, "npernode", "TASKS_PER_NODE"},
    {LaunchKind::kMpirun, "ppn", "TASKS_PER_NODE"},
    {LaunchKind::kMpirun, "perhost", "TASKS_PER_NODE"},
    {LaunchKind::kMpirun, "map-by", "MAP"},
    {LaunchKind::kMpirun, "bynode", "BY_NODE"},
    {LaunchKind::kMpirun, "hostfile", "HOSTFILE"},
    {LaunchKind::kMpirun, "machinefile", "HOSTFILE"},
    {LaunchKind::kMpirun, "f", "HOSTFILE"},
    {LaunchKind::kDeepSpeed, "hostfile", "HOSTFILE"},
    {LaunchKind::kDeepSpeed, "H", "HOSTFILE"},
    {LaunchKind::kDeepSpeed, "include", "INCLUDE"},
    {LaunchKind::kDeepSpeed, "i", "INCLUDE"},
    {LaunchKind::kDeepSpeed, "exclude", "EXCLUDE"},
    {LaunchKind::kDeepSpeed, "e", "EXCLUDE"},
    {LaunchKind::kAccelerate, "deepspeed-hostfile", "HOSTFILE"},
    {LaunchKind::kMpirun, "host", "HOSTS"},
    {LaunchKind::kMpirun, "hosts", "HOSTS"},
    {LaunchKind::kMpirun, "H", "HOSTS"},
    {LaunchKind::kSrun, "nodes", "NNODES"},
    {LaunchKind::kSrun, "N", "NNODES"},
    {LaunchKind::kSrun, "ntasks", "TASKS"},
    {LaunchKind::kSrun, "n", "TASKS"},
    {LaunchKind::kSrun, "ntasks-per-node", "TASKS_PER_NODE"},
    {LaunchKind::kSrun, "gpus-per-node", "GPUS_PER_NODE"},
    {LaunchKind::kSrun, "gres", "GPUS_PER_NODE"},
    {LaunchKind::kSrun, "gpus", "STEP_GPUS"},
    {LaunchKind::kSrun, "G", "STEP_GPUS"},
    {LaunchKind::kSrun, "gpus-per-task", "GPUS_PER_TASK"},
    {LaunchKind::kJsrun, "nrs", "TASKS"},
    {LaunchKind::kJsrun, "n", "TASKS"},
    {LaunchKind::kJsrun, "np", "ALL_TASKS"},
    {LaunchKind::kJsrun, "p", "ALL_TASKS"},
    {LaunchKind::kJsrun, "tasks-per-rs", "TASKS_OF_SET"},
    {LaunchKind::kJsrun, "a", "TASKS_OF_SET"},
    {LaunchKind::kJsrun, "gpu-per-rs", "GPUS_OF_SET"},
    {LaunchKind::kJsrun, "g", "GPUS_OF_SET"},
    {LaunchKind::kJsrun, "rs-per-host", "TASKS_PER_NODE"},
    {LaunchKind::kJsrun, "r", "TASKS_PER_NODE"},
    // Of a launcher that a variable names, by whatever name is its alone.
    {LaunchKind::kNone, "nnodes", "NNODES"},
    {LaunchKind::kNone, "num-nodes", "NNODES"},
    {LaunchKind::kNone, "nodes", "NNODES"},
    {LaunchKind::kNone, "nproc-per-node", "GPUS_PER_NODE"},
    {LaunchKind::kNone, "num-gpus", "GPUS_PER_NODE"},
    {LaunchKind::kNone, "gpus-per-node", "GPUS_PER_NODE"},
    {LaunchKind::kNone, "num-machines", "num_machines"},
    {LaunchKind::kNone, "num-processes", "num_processes"},
};

std::string Dashed(std::string key) {
  std::ranges::replace(key, '_', '-');
  return key;
}

// Hosts of "a:8,b:8" and the slots of the last; 0: one of them says none.
std::pair<int64_t, int64_t> HostsOf(const std::string& list) {
  int64_t hosts = 0, slots = -1;
  for (std::size_t begin = 0; begin < list.size();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string host = list.substr(begin, end - begin);
    begin = end + 1;
    int64_t own = 0;
    if (const std::size_t colon = host.find(':'); colon != std::string::npos)
      (void)ParseInteger(host.substr(colon + 1), &own);
    slots = slots == 0 ? 0 : own;
    ++hosts;
  }
  return {hosts, std::max<int64_t>(0, slots)};
}

class LaunchReader {
 public:
  void Segment(LaunchKind launcher, std::span<const Word> words) {
    says_.torch |= launcher == LaunchKind::kTorchrun;
    says_.accelerate |= launcher == LaunchKind::kAccelerate;
    says_.deepspeed |= launcher == LaunchKind::kDeepSpeed;
    tasks_.reset();
    each_.reset();
    hostfile_.reset();
    listed_.reset();
    filter_.reset();
    of_set_.reset();
    gpus_of_set_.reset();
    spread_ = placed_ = false;
    Location where;
    if (launcher == LaunchKind::kJob) return TakeJob(words);
    for (const LaunchOption& option : LaunchOptions(launcher, words)) {
      where = option.where;
      const std::string slurm =
          launcher == LaunchKind::kSrun ? SlurmOption(option.key, option.dashes) : "";
      const std::string name = slurm.empty() ? Dashed(option.key) : slurm;
      const auto row = std::ranges::find_if(
          kKeys, [&](const KeyRow& key) { return key.launcher == launcher && name == key.option; });
      if (row != std::end(kKeys)) {
        if (launcher == LaunchKind::kSrun) TakeStep(row->key, option);
        if (launcher == LaunchKind::kTorchrun ||
            (launcher == LaunchKind::kDeepSpeed && std::string_view(row->key) == "GPUS_PER_NODE"))
          TakeAgent(row->key, option);
        Take(row->key, option);
      } else if (launcher == LaunchKind::kAccelerate) {
        if (auto setting = OfAccelerate(option)) says_.settings.push_back(std::move(*setting));
      }
    }
    says_.srun |= launcher == LaunchKind::kSrun;
    if (launcher == LaunchKind::kTorchrun) says_.one_node = OneNodeOf(words);
    if (launcher == LaunchKind::kSrun) FindUnknown(words);
    if (launcher == LaunchKind::kJsrun) CountSets();
    if (launcher == LaunchKind::kMpirun || launcher == LaunchKind::kSrun ||
        launcher == LaunchKind::kJsrun)
      Tasks(launcher == LaunchKind::kSrun);
    if (launcher == LaunchKind::kMpirun) FindFilled();
    if (hostfile_ || listed_ || filter_) {
      says_.hostfiles.push_back(Using());
      says_.hostfiles.back().fills = launcher == LaunchKind::kMpirun && !spread_ && !each_;
    }
  }

  Hostfile Using() const {
    Hostfile use;
    if (hostfile_)
      use.file = {"hostfile", hostfile_->value, hostfile_->where, hostfile_->unresolved, true};
    else if (listed_)
      use.file = {"hosts", listed_->value, listed_->where, listed_->unresolved, true};
    if (filter_) {
      use.excludes = excludes_;
      use.filter = {filter_->key, filter_->value, filter_->where, filter_->unresolved, true};
    }
    (void)Counted(tasks_, &use.tasks);
    (void)Counted(each_, &use.each);
    use.spread = spread_;
    return use;
  }
  static bool Counted(const std::optional<LaunchOption>& option, int64_t* number) {
    return option && option->unresolved.empty() && IsWhole(option->value) &&
           ParseInteger(option->value, number) == NumberFault::kNone;
  }

  LaunchSays Done() {
    CheckFilters();
    if (says_.srun && says_.torch) FindLoop();
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
  // Open MPI, MPICH and Intel MPI fill the slots of a node before the next one, unless options place the ranks.
  void FindFilled() {
    int64_t count = 0;
    if (!Counted(tasks_, &count)) return;
    const bool of_job =
        hostfile_ && hostfile_->unresolved.find("PBS_NODEFILE") != std::string::npos;
    says_.processes = Setting{"TASKS", tasks_->value, tasks_->where, ""};
    if (!each_ && !spread_ && !placed_ && (!hostfile_ || of_job) && !listed_ &&
        !Has(says_.settings, {"NNODES"}))
      says_.fills = says_.processes;
  }

  // With the word behind them that may be their value: a plugin knows.
  void FindUnknown(std::span<const Word> words) {
    const std::span<const Word> own = WordsOfSrun(words);
    for (std::size_t i = 0; i < own.size(); ++i) {
      const std::string& text = own[i].text;
      if (!IsOption(text) || !own[i].unresolved.empty() ||
          SrunOptionTakes(text.substr(0, text.find('='))) != OptionTakes::kUnknown)
        continue;
      const std::string behind = i + 1 < words.size() ? words[i + 1].text : "";
      const bool may = text.find('=') == std::string::npos && !behind.empty() &&
                       !IsOption(behind) && !StartsCommand(behind);
      says_.unknown.push_back(
          {text.substr(0, text.find('=')), may ? behind : "", own[i].where, ""});
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

  // Options of the job, as its directives.
  void TakeJob(std::span<const Word> words) {
    for (const LaunchOption& option : LaunchOptions(LaunchKind::kJob, words)) {
      const std::string name = SlurmOption(option.key, option.dashes);
      if (name.empty()) continue;
      const bool nodes = name == "nodes" || name == "N";
      if (option.unresolved.empty())
        says_.job.push_back({name, option.value, option.where, ""});
      else if (nodes)
        says_.settings.push_back({"NNODES", "", option.where, option.unresolved, true});
    }
  }

  // A step of one task is one of several, on a node each, where torchrun counts more: a loop over hosts.
  void FindLoop() {
    const auto of = [](const std::map<std::string, Setting>& settings, const char* key) {
      const auto at = settings.find(key);
      return at == settings.end() ? nullptr : &at->second;
    };
    const Setting *tasks = of(says_.step, "TASKS"), *nodes = of(says_.step, "NNODES"),
                  *all = of(says_.agents, "NNODES");
    const Setting* const one = tasks != nullptr ? tasks : nodes;
    if (one == nullptr || one->value != "1" || all == nullptr || all->value == "1") return;
    if (nodes != nullptr && nodes->value != "1") return;
    const auto derived = [&](const Setting& setting, const Setting* from) {
      return from != nullptr && setting.where.line == from->where.line &&
             setting.where.column == from->where.column;
    };
    std::erase_if(says_.settings, [&](const Setting& setting) {
      return setting.key == "NNODES" && !derived(setting, all) &&
             (derived(setting, nodes) || derived(setting, tasks));
    });
    says_.steps = *one;
    says_.steps->value = all->value;
    says_.step.clear();
    says_.srun = false;
  }

  // What srun itself is told, for what follows from it next to the job's directives.
  void TakeStep(const std::string& key, const LaunchOption& option) {
    Setting setting{key, option.value, option.where, option.unresolved, true};
    const bool gpus = key == "GPUS_PER_NODE" || key == "STEP_GPUS" || key == "GPUS_PER_TASK";
    if (gpus) setting.value = GpusIn(option.value, option.key == "gres");
    if (gpus && option.unresolved.empty())
      says_.gpus.push_back({option.dashes ? option.key : "G", option.value, option.where, ""});
    setting.said = (option.dashes ? "--" : "-") + option.key;
    if (setting.unresolved.empty() && IsWhole(setting.value))
      says_.step.insert_or_assign(key, std::move(setting));
  }
  // torchrun's --nnodes counts agents, and --nproc-per-node the ranks of each. DeepSpeed starts its other nodes itself.
  void TakeAgent(const std::string& key, const LaunchOption& option) {
    if (option.unresolved.empty() && IsWhole(option.value))
      says_.agents.insert_or_assign(key, Setting{key, option.value, option.where, ""});
  }

  void Take(const std::string& key, const LaunchOption& option) {
    if (key == "STEP_GPUS" || key == "GPUS_PER_TASK") return;  // of TakeStep() alone
    if (key == "HOSTS") {
      const auto [hosts, slots] = HostsOf(option.value);
      if (option.unresolved.empty() && hosts == 0) return;
      if (slots > 0) {  // counted as those of a hostfile
        listed_ = option;
        return;
      }
      Add("NNODES", std::to_string(hosts), option);
      return;
    }
    spread_ |= key == "BY_NODE" ||
               (key == "MAP" && (option.value == "node" || option.value.starts_with("node:")));
    placed_ |= key == "MAP" && (!option.unresolved.empty() || option.value.starts_with("ppr:") ||
                                Dashed(option.value).find("span") != std::string::npos);
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
  void TakeFilter(const LaunchOption& option, bool excludes) {
    if (option.value.empty() && option.unresolved.empty()) return;
    if (filter_ && excludes_ != excludes)
      throw InputError(
          {{option.where, "--include and --exclude exclude each other", "keep one of them"}});
    filter_ = option;
    filter_->key = excludes ? "exclude" : "include";
    excludes_ = excludes;
  }

  void Add(const std::string& key, const std::string& value, const LaunchOption& option) {
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
      if (!each_) each_ = LaunchOption{"", "1", tasks_->where, ""};
      tasks_.reset();
    }
    std::optional<LaunchOption>* const counts[] = {all_tasks_ ? nullptr : &tasks_, &each_};
    if (Counted(gpus_of_set_, &gpus) && Counted(each_, &sets) && gpus < kMostTasks &&
        sets < kMostTasks)
      Add("SET_GPUS", std::to_string(gpus * sets), *gpus_of_set_);
    if (of_set_ && !Counted(of_set_, &tasks)) {  // nobody knows it, and no product either
      for (std::optional<LaunchOption>* all : counts)
        if (all != nullptr && *all) (*all)->unresolved = of_set_->unresolved;
      return;
    }
    for (std::optional<LaunchOption>* all : counts) {
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
    if (each > 1 && !slurm) crowd_ = each_;
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
  std::optional<LaunchOption> crowd_;  // several tasks on a node
  std::optional<LaunchOption> tasks_, each_, hostfile_, listed_, filter_, of_set_, gpus_of_set_;
  bool excludes_ = false, spread_ = false, all_tasks_ = false;
  bool placed_ = false;  // --map-by says how many are where
};

}  // namespace

LaunchSays LaunchOf(std::span<const Word> words) {
  LaunchReader reader;
  const std::vector<bool> values = ValuesIn(words);
  LaunchKind launcher = LaunchKind::kNone;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= words.size(); ++i) {
    const bool end = i == words.size();
    const LaunchKind next = end || values[i] ? LaunchKind::kNone : LaunchKindOf(words[i].text);
    if (!end && next == LaunchKind::kNone) continue;
    reader.Segment(launcher, words.subspan(begin, i - begin));
    begin = i + 1;
    launcher = next;
  }
  LaunchSays says = reader.Done();
  const std::string assigned = std::string(kAgentNodes) + "=";  // env NAME=... command
  if (std::ranges::any_of(words, [&](const Word& word) { return word.text.starts_with(assigned); }))
    says.one_node.reset();
  return says;
}

}  // namespace orrery::exchange
