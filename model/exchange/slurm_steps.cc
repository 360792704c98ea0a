// SPDX-License-Identifier: Apache-2.0
// How often srun starts a command in a job with these directives, and on how many GPUs.
//
// sbatch sets SLURM_NNODES, SLURM_NTASKS (of --ntasks, or of --nodes and --ntasks-per-node) and SLURM_NTASKS_PER_NODE, which
// srun takes for its -N, -n and --ntasks-per-node (srun(1), INPUT ENVIRONMENT VARIABLES). So --ntasks-per-node of srun alone
// does not undo the tasks of the job: srun ignores it with a warning (seen with 22.05.8). -n does, and so does -N with
// --ntasks-per-node in newer releases (github.com/NVIDIA/cloudai/pull/729).
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "model/base/plain_text.h"
#include "model/exchange/command_settings.h"
#include "model/exchange/slurm_counts.h"

namespace orrery::exchange {
namespace {

const Setting* OfStep(const std::map<std::string, Setting>& settings, const char* key) {
  const auto at = settings.find(key);
  return at == settings.end() ? nullptr : &at->second;
}
// 0: no setting, or no number.
int64_t CountOf(const Setting* setting) {
  int64_t number = 0;
  return setting != nullptr && ParseInteger(setting->value, &number) == NumberFault::kNone ? number
                                                                                           : 0;
}
std::string Counted(int64_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

SlurmCounts::Step SlurmCounts::StepOf(const JobCounts& counts) const {
  Step step;
  const Setting *nodes = OfStep(counts.of_srun, "NNODES"), *tasks = OfStep(counts.of_srun, "TASKS"),
                *each = OfStep(counts.of_srun, "TASKS_PER_NODE");
  const Setting* const job = nodes_ ? &*nodes_ : nullptr;
  step.nodes = CountOf(nodes != nullptr ? nodes : job);
  if (step.nodes == 0 && !(counts.agents && nodes_)) {
    const Settings& settings = counts.document->settings;
    const auto at = std::ranges::find(settings, "NNODES", &Setting::key);
    if (at != settings.end()) step.nodes = CountOf(&*at);
  }
  const auto share = [&](const Setting& all) {
    const int64_t count = CountOf(&all);
    if (step.nodes == 0 || count == 0) return;
    step.by = &all;
    step.each = std::max<int64_t>(1, count / step.nodes);
    if (count > step.nodes && count % step.nodes != 0)
      throw InputError({{all.where,
                         fmt::format("{} here are not shared out evenly over {}",
                                     Counted(count, "task"), Counted(step.nodes, "node")),
                         "as many on each node"}});
  };
  const bool inherits = tasks == nullptr && !(nodes != nullptr && each != nullptr);
  if (tasks != nullptr) {
    share(*tasks);
    if (step.each == 0 && each != nullptr) step.each = CountOf(step.by = each);
  } else if (inherits && all_) {
    share(*all_);
  } else if (inherits && each_) {
    step.each = CountOf(step.by = &*each_);
  } else if (each != nullptr) {
    step.each = CountOf(step.by = each);
  } else {
    step.each = 1;
  }
  if (inherits && each != nullptr && step.by != each && step.each > 0 && CountOf(each) != step.each)
    step.ignored = each;
  return step;
}

std::optional<Setting> SlurmCounts::GpusOfStep(const Step& step, const JobCounts& counts) const {
  std::optional<Setting> least;
  const auto take = [&](const Setting* asked, int64_t gpus) {
    if (asked == nullptr || gpus == 0) return;
    if (each_gpus_ && CountOf(&*each_gpus_) < gpus)
      throw InputError({{asked->where,
                         fmt::format("{} are {} on a node, and the job has {} ({})",
                                     asked->said + " " + asked->value, Counted(gpus, "GPU"),
                                     each_gpus_->value, Place(each_gpus_->where)),
                         "Slurm refuses such a step"}});
    if (least && CountOf(&*least) <= gpus) return;
    least = *asked;
    least->value = std::to_string(gpus);
  };
  const Setting* const all = OfStep(counts.of_srun, "STEP_GPUS");
  const Setting* const task = OfStep(counts.of_srun, "GPUS_PER_TASK");
  take(OfStep(counts.of_srun, "GPUS_PER_NODE"), CountOf(OfStep(counts.of_srun, "GPUS_PER_NODE")));
  take(task, CountOf(task) * step.each);
  if (all != nullptr && step.nodes > 0) {
    if (CountOf(all) % step.nodes != 0)
      throw InputError({{all->where,
                         fmt::format("{} here are not shared out evenly over {}",
                                     Counted(CountOf(all), "GPU"), Counted(step.nodes, "node")),
                         "--gpus-per-node N"}});
    take(all, CountOf(all) / step.nodes);
  }
  return least;
}

void SlurmCounts::TakeAgents(const Step& step, JobCounts* counts) {
  const Setting *nodes = OfStep(counts->of_agent, "NNODES"),
                *ranks = OfStep(counts->of_agent, "GPUS_PER_NODE");
  const int64_t agents = CountOf(nodes);
  if (step.each <= 1) {
    const Setting* const tasks = OfStep(counts->of_srun, "TASKS");
    if (tasks == nullptr || agents == 0 || CountOf(tasks) == agents) return;
    throw InputError({{tasks->where,
                       fmt::format("{} here, and --nnodes {} ({})", Counted(CountOf(tasks), "task"),
                                   agents, Place(nodes->where)),
                       "a task for each of torchrun's nodes"}});
  }
  // Several agents on a node are so many nodes for torchrun.
  if (agents > 0 && agents == step.each * step.nodes && ranks != nullptr) {
    const std::string each = std::to_string(CountOf(ranks) * step.each);
    for (Setting& setting : std::span(counts->document->settings).first(counts->of_command)) {
      if (setting.key == "NNODES") setting.value = std::to_string(step.nodes);
      if (setting.key == "GPUS_PER_NODE" && setting.value == ranks->value) setting.value = each;
    }
    counts->of_agent.at("GPUS_PER_NODE").value = each;
    counts->document->notes.push_back(fmt::format(
        "{}: {} tasks on a node, each of which starts {}, are {} ranks on a node",
        Place(step.by->where), step.each, Counted(CountOf(ranks) / step.each, "rank"), each));
    return;
  }
  throw InputError(
      {{step.by->where,
        fmt::format("{} tasks on a node, and each starts the ranks of the node{}", step.each,
                    step.ignored == nullptr
                        ? ""
                        : fmt::format(": with these tasks of the job srun ignores {} ({})",
                                      step.ignored->said, Place(step.ignored->where))),
        "one task on a node, such as srun --ntasks=$SLURM_NNODES --ntasks-per-node=1, or the "
        "program without its launcher"}});
}

// Tasks that are no agents are ranks with a GPU each: a node's other GPUs are idle.
void SlurmCounts::TakeRanks(const Step& step, JobCounts* counts) {
  if (step.ignored != nullptr) {
    counts->document->notes.push_back(
        fmt::format("{}: srun ignores {} {} next to the tasks of the job ({}): {} on each node",
                    Place(step.ignored->where), step.ignored->said, step.ignored->value,
                    Place(step.by->where), Counted(step.each, "task")));
    for (Setting& setting : std::span(counts->document->settings).first(counts->of_command))
      if (setting.key == "GPUS_PER_NODE" && setting.value == step.ignored->value)
        setting.value = std::to_string(step.each);
  }
  if (step.each <= 1 || Has(counts->document->settings, {"WORLD"})) return;
  for (Setting& gpus : counts->document->settings) {
    const int64_t all = gpus.key == "GPUS_PER_NODE" ? CountOf(&gpus) : 0;
    if (all == 0 || all == step.each) continue;
    if (step.each > all)
      throw InputError({{step.by->where,
                         fmt::format("{} tasks on a node here, and {} in {}", step.each,
                                     Counted(all, "GPU"), Place(gpus.where)),
                         "a GPU for each rank: keep one of them"}});
    counts->document->notes.push_back(
        fmt::format("{}: {} tasks on a node of {} GPUs ({}) are {} ranks: the others are idle",
                    Place(step.by->where), step.each, all, Place(gpus.where), step.each));
    gpus = {"GPUS_PER_NODE", std::to_string(step.each), step.by->where, "", true};
  }
}

void SlurmCounts::TakeStep(JobCounts* counts) const {
  if (!counts->srun) return;
  const Step step = StepOf(*counts);
  if (step.each == 0) return;
  if (counts->agents) TakeAgents(step, counts);
  const auto gpus = GpusOfStep(step, *counts);
  const Setting* const own = OfStep(counts->of_agent, "GPUS_PER_NODE");
  const int64_t ranks = counts->agents ? CountOf(own) : step.each > 1 ? step.each : 0;
  if (gpus && ranks > CountOf(&*gpus)) {
    const Setting& by = own != nullptr ? *own : *step.by;
    throw InputError(
        {{gpus->where,
          fmt::format("{} on a node here, and {} in {}", Counted(CountOf(&*gpus), "GPU"),
                      Counted(ranks, "rank"), Place(by.where)),
          "a GPU for each rank"}});
  }
  if (gpus && ranks == 0) {
    // What a program finds, it uses.
    std::erase_if(counts->document->settings,
                  [](const Setting& setting) { return setting.key == "GPUS_PER_NODE"; });
    counts->document->settings.push_back({"GPUS_PER_NODE", gpus->value, gpus->where, "", true});
  }
  if (!counts->agents) TakeRanks(step, counts);
  if (!counts->agents && step.each > 1 && step.nodes > 0)
    counts->ranks = Setting{"TASKS", std::to_string(step.each * step.nodes), step.by->where, ""};
}

}  // namespace orrery::exchange
