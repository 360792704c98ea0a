// SPDX-License-Identifier: Apache-2.0
// Works out nodes and GPUs of a job from the directives of its script.
#include "model/exchange/slurm_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "model/base/host_list.h"
#include "model/base/plain_text.h"
#include "model/exchange/command_settings.h"
#include "model/exchange/launch_words.h"

namespace orrery::exchange {
namespace {

constexpr std::size_t kMostSlurmHosts = 65536;
constexpr int64_t kMostTasksOfNode = 65536;

}  // namespace

void JobCounts::Add(const std::string& key, const std::string& value, const Location& where) {
  const std::span command(document->settings.data(), of_command);
  const auto own = std::ranges::find(command, key, &Setting::key);
  int64_t all = 0, taken = 0;
  if (own != command.end() && (key == "GPUS_PER_NODE" || (key == "NNODES" && step)) &&
      ParseInteger(value, &all) == NumberFault::kNone &&
      ParseInteger(own->value, &taken) == NumberFault::kNone && taken < all) {
    document->notes.push_back(
        fmt::format("{}: the command takes {} of {} {} ({})", Place(own->where), taken, all,
                    key == "NNODES" ? "nodes" : "GPUs of a node", Place(where)));
    return;
  }
  document->settings.push_back({key, value, where, "", true});
}

void JobCounts::AddNodes(const std::string& count, const Location& where) {
  Setting setting = CountedNodes({"NNODES", count, where, ""});
  if (setting.unresolved.empty())
    Add("NNODES", setting.value, where);
  else
    unknown.emplace("NNODES", std::move(setting));
}

void SlurmCounts::Take(const Setting& setting, JobCounts* counts) {
  counts->slurm = true;
  if (setting.key == "nodes" || setting.key == "N") {
    nodes_ = setting;
    counts->AddNodes(setting.value, setting.where);
  } else if (setting.key == "nodelist" || setting.key == "w") {
    hosts_ = setting;
  } else if (setting.key == "gpus" || setting.key == "G") {
    gpus_ = setting;
  } else if (setting.key == "ntasks" || setting.key == "n") {
    if (IsWhole(setting.value)) all_ = setting;
  } else if (setting.key == "ntasks-per-node") {
    if (IsWhole(setting.value)) each_ = setting;
    if (IsWhole(setting.value) && setting.value != "1") tasks_ = setting;
  } else if (setting.key == "gpus-per-node" || setting.key == "gres") {
    const std::string count = GpusIn(setting.value, setting.key == "gres");
    if (!count.empty()) {
      each_gpus_ = Setting{"", count, setting.where, ""};
      counts->Add("GPUS_PER_NODE", count, setting.where);
    }
  } else if (setting.key == "ntasks-per-gpu") {
    if (IsWhole(setting.value)) per_gpu_ = setting;
  } else if (setting.key == "gpus-per-task") {
    per_task_ = setting;
    per_task_->value = GpusIn(setting.value, false);
  }
  TakeKind(setting, counts->document);
}

void TakeKind(const Setting& option, Document* document) {
  const bool list = option.key == "gres";
  if (option.key == "constraint" || option.key == "C")  // features of nodes, often their chip
    document->gpus.push_back({option.key, option.value, option.where, ""});
  if (!list && option.key != "G" && !option.key.starts_with("gpus")) return;
  CheckOneKind(option);
  std::string kind;
  (void)GpusIn(option.value, list, &kind);
  if (kind.empty()) return;
  document->gpus.push_back({option.key, kind, option.where, ""});
  document->notes.push_back(fmt::format("{} requests {} GPUs", Place(option.where), kind));
}

void SlurmCounts::Count(JobCounts* counts) {
  int64_t gpus = 0, tasks = 0;
  if (per_gpu_ && each_gpus_ && !each_ && !all_ &&
      ParseInteger(each_gpus_->value, &gpus) == NumberFault::kNone &&
      ParseInteger(per_gpu_->value, &tasks) == NumberFault::kNone && gpus <= kMostTasksOfNode &&
      tasks <= kMostTasksOfNode) {
    each_ = Setting{per_gpu_->key, std::to_string(gpus * tasks), per_gpu_->where, ""};
    if (gpus * tasks > 1) tasks_ = each_;
  }
  CountHosts(counts);
  CountTasks(counts);
  CountGpus(counts);
  // As many tasks as GPUs, where nothing else counts those.
  if (tasks_ && !Has(counts->document->settings, {"GPUS_PER_NODE", "num_processes"}))
    counts->Add("GPUS_PER_NODE", tasks_->value, tasks_->where);
  CheckGpus(*counts);
  TakeStep(counts);
  FillSlots(counts);
}

// sbatch's SLURM_TASKS_PER_NODE are the slots that Open MPI finds (8(x4)).
void SlurmCounts::FillSlots(JobCounts* counts) const {
  int64_t slots = 0, all = 0, on = 0;
  if (each_ && ParseInteger(each_->value, &slots) == NumberFault::kNone)
    return counts->FillSlots(slots, each_->where);
  if (all_ && nodes_ && ParseInteger(all_->value, &all) == NumberFault::kNone &&
      ParseInteger(nodes_->value, &on) == NumberFault::kNone && on > 0 && all % on == 0)
    counts->FillSlots(all / on, all_->where);
}

// Where no line has a number of nodes: the hosts of a list, and all GPUs of the job ("40", "h100:40").
void SlurmCounts::CountHosts(JobCounts* counts) const {
  if (Has(counts->document->settings, {"NNODES", "WORLD", "num_machines"}) ||
      counts->unknown.contains("NNODES"))
    return;
  if (hosts_) {
    const std::size_t hosts = ExpandHosts(hosts_->value, kMostSlurmHosts + 1).size();
    const bool known = hosts > 0 && hosts <= kMostSlurmHosts;
    counts->AddNodes(known ? std::to_string(hosts) : hosts_->value, hosts_->where);
  } else if (gpus_) {
    const std::string count = gpus_->value.substr(gpus_->value.rfind(':') + 1);
    int64_t all = 0, each = 0;
    const bool divides = each_gpus_ && ParseInteger(count, &all) == NumberFault::kNone &&
                         ParseInteger(each_gpus_->value, &each) == NumberFault::kNone && each > 0 &&
                         all % each == 0;
    if (divides)
      counts->AddNodes(std::to_string(all / each), gpus_->where);
    else if (IsWhole(count))
      counts->Add("WORLD", count, gpus_->where);
  }
}

// Directives against each other: a step of the command may be on fewer nodes.
void SlurmCounts::CheckTasks() const {
  int64_t tasks = 0, on = 0, most = 0;
  if (!all_ || !each_ || !nodes_ || ParseInteger(nodes_->value, &on) != NumberFault::kNone ||
      ParseInteger(all_->value, &tasks) != NumberFault::kNone ||
      ParseInteger(each_->value, &most) != NumberFault::kNone || tasks == on * most)
    return;
  throw InputError({{all_->where,
                     fmt::format("{} tasks here, and {} on each of {} nodes ({}, {})", tasks, most,
                                 on, Place(each_->where), Place(nodes_->where)),
                     "Slurm takes the second for the most: keep one of them"}});
}

// Slurm's tasks of the whole job, where no line has a number of nodes: with those of a node, or as ranks on its GPUs.
void SlurmCounts::CountTasks(JobCounts* counts) const {
  if (!all_ || Has(counts->document->settings, {"WORLD", "num_machines"})) return;
  if (const auto machines = std::ranges::find(counts->document->settings, "NNODES", &Setting::key);
      machines != counts->document->settings.end()) {
    CheckTasks();
    // Ranks, where there are more than one on a node: how many of its GPUs have one.
    int64_t tasks = 0, on = 0;
    if (counts->spread && !counts->agents && !per_task_ && !each_ &&
        ParseInteger(machines->value, &on) == NumberFault::kNone &&
        ParseInteger(all_->value, &tasks) == NumberFault::kNone && tasks > on)
      counts->Add("WORLD", all_->value, all_->where);
    return;
  }
  const auto gpus = std::ranges::find(counts->document->settings, "GPUS_PER_NODE", &Setting::key);
  const Setting* each = each_                                                        ? &*each_
                        : counts->agents || gpus == counts->document->settings.end() ? nullptr
                                                                                     : &*gpus;
  int64_t all = 0, one = 0;
  (void)ParseInteger(all_->value, &all);
  if (each == nullptr || ParseInteger(each->value, &one) != NumberFault::kNone || one <= 0 ||
      all % one != 0) {
    if (!counts->agents && all > 1) counts->Add("WORLD", all_->value, all_->where);
    return;
  }
  const int64_t nodes = all / one;
  if (const auto range = counts->unknown.find("NNODES"); range != counts->unknown.end()) {
    const std::string& text = range->second.value;
    const std::size_t sign = text.find('-');
    int64_t least = 0, most = 0;
    if (sign != std::string::npos &&
        ParseInteger(text.substr(0, sign), &least) == NumberFault::kNone &&
        ParseInteger(text.substr(sign + 1), &most) == NumberFault::kNone &&
        (nodes < least || nodes > most))
      throw InputError({{range->second.where,
                         fmt::format("{} to {} nodes here, and {} tasks with {} on each node are "
                                     "{} nodes ({})",
                                     least, most, all, one, nodes, Place(all_->where)),
                         "keep one of them"}});
  }
  counts->Add("NNODES", std::to_string(nodes), all_->where);
}

// Where no line has the GPUs of a node: those of its tasks, or tasks of the job as ranks on its nodes.
void SlurmCounts::CountGpus(JobCounts* counts) const {
  const auto nodes = std::ranges::find(counts->document->settings, "NNODES", &Setting::key);
  if (nodes == counts->document->settings.end() ||
      Has(counts->document->settings, {"GPUS_PER_NODE"}))
    return;
  int64_t all = 0, each = 0, count = 0, gpus = 1;
  if (gpus_) {  // of the job
    const std::string text = gpus_->value.substr(gpus_->value.rfind(':') + 1);
    if (ParseInteger(text, &all) == NumberFault::kNone &&
        ParseInteger(nodes->value, &count) == NumberFault::kNone && count > 0 && all > 0 &&
        all % count == 0)
      return counts->Add("GPUS_PER_NODE", std::to_string(all / count), gpus_->where);
    all = count = 0;
  }
  if (tasks_) return;
  if (each_) (void)ParseInteger(each_->value, &each);
  if (all_) (void)ParseInteger(all_->value, &all);
  (void)ParseInteger(nodes->value, &count);
  if (each == 0 && count > 0 && all % count == 0) each = all / count;
  if (per_task_ && ParseInteger(per_task_->value, &gpus) != NumberFault::kNone) return;
  if (!per_task_ && (counts->agents || each < 2)) return;
  if (each * gpus > 0)
    counts->Add("GPUS_PER_NODE", std::to_string(each * gpus),
                per_task_ ? per_task_->where : all_->where);
}

// What --gpus and --gpus-per-task ask for, against the GPUs of nodes: those that directives say, else those that the command
// takes, which may be fewer.
void SlurmCounts::CheckGpus(const JobCounts& counts) const {
  const Settings& settings = counts.document->settings;
  const auto counted = [&](const std::optional<Setting>& own, const char* key) {
    int64_t number = 0;
    if (own && ParseInteger(own->value, &number) == NumberFault::kNone) return &*own;
    const auto at = std::ranges::find(settings, key, &Setting::key);
    return at == settings.end() ? nullptr : &*at;
  };
  const Setting *nodes = counted(nodes_, "NNODES"), *gpus = counted(each_gpus_, "GPUS_PER_NODE");
  int64_t each = 0, on = 0;
  if (gpus == nullptr || nodes == nullptr ||
      ParseInteger(gpus->value, &each) != NumberFault::kNone ||
      ParseInteger(nodes->value, &on) != NumberFault::kNone)
    return;
  const auto of_command = [&](const Setting* one) {
    return std::ranges::any_of(std::span(settings).first(counts.of_command),
                               [&](const Setting& setting) { return &setting == one; });
  };
  const bool command = of_command(nodes) || of_command(gpus);
  const auto hold = [&](int64_t asked, const Setting& by) {
    if (asked == each * on || (command && asked > each * on)) return;
    throw InputError(
        {{by.where,
          fmt::format("{} GPUs here, and {} node{} of {} ({}, {})", asked, on, on == 1 ? "" : "s",
                      each, Place(nodes->where), Place(gpus->where)),
          "keep one of them"}});
  };
  int64_t all = 0, per_task = 0, tasks = 1;
  if (gpus_ &&
      ParseInteger(gpus_->value.substr(gpus_->value.rfind(':') + 1), &all) == NumberFault::kNone)
    hold(all, *gpus_);
  if (!per_task_ || ParseInteger(per_task_->value, &per_task) != NumberFault::kNone) return;
  if (all_ && ParseInteger(all_->value, &tasks) == NumberFault::kNone)
    hold(per_task * tasks, *per_task_);
  else if (!each_ || ParseInteger(each_->value, &tasks) == NumberFault::kNone)
    hold(per_task * tasks * on, *per_task_);
}

}  // namespace orrery::exchange
