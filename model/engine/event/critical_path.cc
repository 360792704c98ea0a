// SPDX-License-Identifier: Apache-2.0
// Walks back from the task that ended last.
#include "model/engine/event/critical_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "model/base/check.h"
#include "model/engine/event/compute_clock.h"
#include "model/engine/event/index.h"

namespace orrery::sim {
namespace {

constexpr std::array<const char*, 8> kPathClassNames = {
    "GEMM",       "attention", "memory-bound", "optimizer",
    "collective", "transfer",  "input",        "copies to and from the host"};

constexpr double kPathRounding = 1e-9;
constexpr int kMostSeen = 64;  // messages looked at for the one that slows a kernel

// Where tasks come from: predecessors, and their number among the messages of a line.
struct StageLinks {
  std::vector<int32_t> before;                 // by task: the one before it on its stream, or -1
  std::vector<std::vector<int32_t>> waits;     // by task: those on other streams
  std::vector<int32_t> number;                 // by task: of its line's messages, in this direction
  std::vector<std::vector<int32_t>> messages;  // by 2 * line + receives: tasks in order
  std::vector<int32_t> opens;                  // by epoch: the task that the host waits for
};

StageLinks LinksOf(const StageTasks& stage, std::size_t lines) {
  StageLinks links;
  links.before.assign(stage.tasks.size(), -1);
  links.number.assign(stage.tasks.size(), 0);
  links.waits.resize(stage.tasks.size());
  links.messages.resize(2 * lines);
  links.opens = OpenersOf(stage);
  for (const std::vector<int32_t>& order : stage.on_stream) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i > 0) links.before[At(order[i])] = order[i - 1];
      const Task& task = stage.tasks[At(order[i])];
      if (task.line < 0) continue;
      std::vector<int32_t>& messages = links.messages[At(2 * task.line + task.receives)];
      links.number[At(order[i])] = static_cast<int32_t>(messages.size());
      messages.push_back(order[i]);
    }
  }
  for (std::size_t t = 0; t < stage.tasks.size(); ++t) {
    for (uint32_t i = stage.tasks[t].successors; i < stage.tasks[t].successors_end; ++i)
      links.waits[At(stage.successors[i])].push_back(static_cast<int32_t>(t));
  }
  return links;
}

// Of the plan's mesh: "tp", or several ("pp+dp"); a group of some coordinates only goes by its own name.
std::string AxisName(const ir::Plan& plan, const Line& line) {
  if (line.axis >= 0) return plan.mesh.axes[At(line.axis)].name;
  const ir::Group& group = plan.groups[At(line.group)];
  std::string name;
  for (std::size_t a = 0; a < plan.mesh.axes.size(); ++a) {
    if ((group.axes >> a & 1) == 0 || plan.mesh.axes[a].size == 1) continue;
    name += (name.empty() ? "" : "+") + plan.mesh.axes[a].name;
  }
  return name.empty() || group.restricted_axis >= 0 ? group.name : name;
}

// As schedules are written: blocks that begin and end the step belong to no micro-batch.
std::string WordsOf(const ir::Block& block, const ir::Instance& at) {
  const bool of_the_step = block.name == "P" || block.name == "E";
  return of_the_step ? block.name : fmt::format("{}[{}]", block.name, at.micro_batch);
}

struct Spot {
  uint32_t rank = 0;  // index into executed ranks
  int32_t task = -1;
};

// Ranks and spans that both walks look at.
class PathBase {
 protected:
  PathBase(const ir::Plan& plan, const PlanTasks& tasks, const CommunicatorTable& communicators,
           const Timeline& timeline)
      : tasks_(tasks), communicators_(communicators), timeline_(timeline) {
    for (const int64_t rank : communicators.ranks)
      stage_.push_back(At(plan.mesh.Coords(rank)[At(plan.mesh.program_axis)]));
  }

  const TaskSpan& SpanOf(Spot at) const { return timeline_[at.rank][At(at.task)]; }
  const Task& TaskOf(Spot at) const { return tasks_.stages[stage_[at.rank]].tasks[At(at.task)]; }

  const PlanTasks& tasks_;
  const CommunicatorTable& communicators_;
  const Timeline& timeline_;
  std::vector<std::size_t> stage_;  // by executed rank
};

// From task to binding predecessor.
class BackwardWalk : PathBase {
 public:
  BackwardWalk(const ir::Plan& plan, const PlanTasks& tasks, const CommunicatorTable& communicators,
               const Timeline& timeline)
      : PathBase(plan, tasks, communicators, timeline) {
    for (const StageTasks& stage : tasks.stages)
      links_.push_back(LinksOf(stage, tasks.lines.size()));
  }

  std::vector<PathTask> Walk() const {
    std::vector<PathTask> path;
    for (Spot at = Last(); at.task >= 0;) {
      const Spot left = TaskOf(at).line >= 0 ? LastToCome(at) : at;
      path.push_back({at.rank, at.task, left.rank, left.task});
      at = Before(left);
    }
    return path;
  }

 private:
  Spot Last() const {
    Spot last;
    for (std::size_t r = 0; r < timeline_.size(); ++r) {
      for (std::size_t t = 0; t < timeline_[r].size(); ++t) {
        if (last.task < 0 || timeline_[r][t].end > SpanOf(last).end)
          last = {static_cast<uint32_t>(r), static_cast<int32_t>(t)};
      }
    }
    return last;
  }

  // Of the partners in a message.
  Spot LastToCome(Spot at) const {
    const Task& task = TaskOf(at);
    const int32_t m = communicators_.of[At(2 * task.line + task.receives)][at.rank];
    const Communicator& communicator = communicators_.communicators[At(m)];
    const int32_t number = links_[stage_[at.rank]].number[At(at.task)];
    Spot last = at;
    for (int32_t i = 0; i < communicator.members; ++i) {
      const int64_t rank = communicators_.members[At(communicator.first_member + i)];
      const auto found = std::ranges::lower_bound(communicators_.ranks, rank);
      if (found == communicators_.ranks.end() || *found != rank) continue;
      const auto r = static_cast<uint32_t>(found - communicators_.ranks.begin());
      const bool receives = tasks_.lines[At(task.line)].line.axis >= 0 && i == 1;
      const Spot other = {r, links_[stage_[r]].messages[At(2 * task.line + receives)][At(number)]};
      if (SpanOf(other).start > SpanOf(last).start) last = other;
    }
    return last;
  }

  // The predecessor that ended last, or what the host waited for before it issued the task; no task: the step begins.
  Spot Before(Spot at) const {
    const int32_t opens = links_[stage_[at.rank]].opens[At(TaskOf(at).epoch)];
    const Spot own = LastOf(at);
    if (opens < 0 || opens == at.task) return own;
    const Spot host = LastOf({at.rank, opens});
    return host.task >= 0 && (own.task < 0 || SpanOf(host).end > SpanOf(own).end) ? host : own;
  }

  Spot LastOf(Spot at) const {
    const StageLinks& links = links_[stage_[at.rank]];
    Spot best = {at.rank, links.before[At(at.task)]};
    for (const int32_t wait : links.waits[At(at.task)]) {
      const Spot other = {at.rank, wait};
      if (best.task < 0 || SpanOf(other).end > SpanOf(best).end) best = other;
    }
    return best;
  }

  std::vector<StageLinks> links_;  // by stage
};

class PathWalk : PathBase {
 public:
  PathWalk(const ir::Plan& plan, const PlanTasks& tasks, const CommunicatorTable& communicators,
           const Timeline& timeline, const std::vector<TaskOps>& ops,
           const Perturbation& perturbation)
      : PathBase(plan, tasks, communicators, timeline),
        plan_(plan),
        ops_(ops),
        perturbation_(perturbation) {}

  CriticalPath Walk(const std::vector<PathTask>& tasks) {
    if (tasks.empty()) return {};
    date_ = SpanOf({tasks.front().rank, tasks.front().task}).end;
    for (std::size_t i = 0; i < tasks.size(); ++i) {
      const Spot at = {tasks[i].rank, tasks[i].task};
      const Spot left = {tasks[i].last_rank, tasks[i].last_task};
      ++path_.tasks;
      Enter(at);
      if (TaskOf(at).line >= 0) {
        TakeMessage(at, left);
      } else {
        TakeCompute(at, TaskOf(at));
      }
      const bool more = i + 1 < tasks.size();
      TakeGap(left, more ? SpanOf({tasks[i + 1].rank, tasks[i + 1].task}).end : 0);
    }
    path_.stretches.back().begin = 0;
    std::ranges::reverse(path_.stretches);
    for (const auto& [name, seconds] : seconds_) path_.classes.push_back({name, seconds});
    std::ranges::stable_sort(path_.classes, std::greater<>(), &PathClass::seconds);
    return std::move(path_);
  }

 private:
  // The path comes, backwards, to a task, maybe on another rank.
  void Enter(Spot at) {
    const TaskOps& ops = ops_[stage_[at.rank]];
    const ir::Instance& instance = ops.Of(at.task).front();
    const std::string words = WordsOf(ops.program().blocks[At(instance.block)], instance);
    const int64_t rank = communicators_.ranks[at.rank];
    if (path_.stretches.empty() || path_.stretches.back().rank != rank) {
      if (!path_.stretches.empty()) path_.stretches.back().begin = date_;
      path_.stretches.push_back({rank, ops.program().stage, 0, date_, words, words});
    }
    path_.stretches.back().first = words;
  }

  void Book(const std::string& name, double from) {
    if (date_ > from) seconds_[name] += date_ - from;
    date_ = std::min(date_, from);
  }

  // Back to the rendezvous, and over to who came last.
  void TakeMessage(Spot at, Spot last) {
    const Task& task = TaskOf(at);
    const TaskSpan& span = SpanOf(at);
    const int32_t m = communicators_.of[At(2 * task.line + task.receives)][at.rank];
    const Communicator& communicator = communicators_.communicators[At(m)];
    const Exchange& exchange =
        communicators_.exchanges[At(communicator.first_exchange + task.message)];
    const std::string axis = AxisName(plan_, tasks_.lines[At(task.line)].line);
    Book(axis + " traffic", std::min(span.end, span.met + exchange.latency));
    Book(axis + " latency", span.met);
    Book(axis + " traffic", SpanOf(last).start);  // of other messages of its communicator
    if (last.rank != at.rank) Enter(last);
  }

  void TakeCompute(Spot at, const Task& task) {
    const TaskSpan& span = SpanOf(at);
    const TaskOps& ops = ops_[stage_[at.rank]];
    const std::span<const ir::Instance> instances = ops.Of(at.task);
    const double whole = std::max(0.0, date_ - span.start);
    const double factor =
        ComputeFactor(perturbation_, communicators_.ranks[at.rank], at.task, task);
    const double host = HostShare(task, span, factor);
    const double lost = LostToMessages(at, task, factor);
    std::array<double, kPathClassNames.size()> share{};
    double before = 0;
    for (std::size_t i = 0; i < instances.size(); ++i) {
      const double after = ops.EndShare(at.task, i);
      share[At(static_cast<int>(ir::Info(ops.OpOf(instances[i]).kind).op_class))] += after - before;
      before = after;
    }
    for (std::size_t c = 0; c < share.size(); ++c) {
      if (share[c] > 0) seconds_[kPathClassNames[c]] += whole * (1 - lost) * (1 - host) * share[c];
    }
    if (host > 0) seconds_["host"] += whole * (1 - lost) * host;
    if (lost > 0) seconds_[SlowingAxis(at) + " traffic"] += whole * lost;
    date_ = std::min(date_, span.start);
  }

  // Share of a kernel's span by which messages slow it down. Ranks that share cores slow each other: still kernels.
  double LostToMessages(Spot at, const Task& task, double factor) const {
    const TaskSpan& span = SpanOf(at);
    const double took = span.end - span.start;
    const double own = std::max(task.seconds * factor, span.earliest - span.start);
    if (communicators_.cores > 0 || took <= own * (1 + kPathRounding)) return 0;
    return 1 - own / took;
  }

  // The axis of the message that takes most from a kernel.
  std::string SlowingAxis(Spot at) {
    const std::vector<int32_t>& messages = MessagesOf(at.rank);
    const TaskSpan& span = SpanOf(at);
    std::map<std::string, double> lost;
    // By departure; one that left before the kernel may still be under way.
    auto next = std::ranges::lower_bound(
        messages, span.end, {}, [&](int32_t id) { return timeline_[at.rank][At(id)].met; });
    for (int seen = 0; next != messages.begin() && seen < kMostSeen; ++seen) {
      const Spot message = {at.rank, *--next};
      const double both =
          std::min(span.end, SpanOf(message).end) - std::max(span.start, SpanOf(message).met);
      if (both <= 0) continue;
      const Line& line = tasks_.lines[At(TaskOf(message).line)].line;
      lost[AxisName(plan_, line)] += both * ExchangeOf(message).slowdown;
    }
    const auto most =
        std::ranges::max_element(lost, {}, [](const auto& one) { return one.second; });
    return most == lost.end() ? "other" : most->first;
  }

  const Exchange& ExchangeOf(Spot at) const {
    const Task& task = TaskOf(at);
    const int32_t m = communicators_.of[At(2 * task.line + task.receives)][at.rank];
    return communicators_
        .exchanges[At(communicators_.communicators[At(m)].first_exchange + task.message)];
  }

  const std::vector<int32_t>& MessagesOf(uint32_t rank) {
    const auto [at, added] = messages_.try_emplace(rank);
    std::vector<int32_t>& messages = at->second;
    if (!added) return messages;
    const std::vector<Task>& tasks = tasks_.stages[stage_[rank]].tasks;
    for (std::size_t t = 0; t < tasks.size(); ++t) {
      const Spot spot = {rank, static_cast<int32_t>(t)};
      if (tasks[t].line >= 0 && ExchangeOf(spot).route >= 0 && ExchangeOf(spot).slowdown > 0)
        messages.push_back(spot.task);
    }
    std::ranges::stable_sort(messages, {}, [&](int32_t id) { return timeline_[rank][At(id)].met; });
    return messages;
  }

  // What lies between a task and its predecessor's end is the host, late with a message.
  void TakeGap(Spot at, double end) { Book(SpanOf(at).earliest > end ? "host" : "waiting", end); }

  const ir::Plan& plan_;
  const std::vector<TaskOps>& ops_;
  const Perturbation& perturbation_;
  std::map<uint32_t, std::vector<int32_t>>
      messages_;  // by rank: those that slow kernels, by departure
  std::map<std::string, double> seconds_;
  double date_ = 0;  // the path is known from here on
  CriticalPath path_;
};

}  // namespace

std::vector<PathTask> TasksOfPath(const ir::Plan& plan, const PlanTasks& tasks,
                                  const CommunicatorTable& communicators,
                                  const Timeline& timeline) {
  return BackwardWalk(plan, tasks, communicators, timeline).Walk();
}

double HostShare(const Task& task, const TaskSpan& span, double compute_factor) {
  const double until_issued = span.earliest - span.start;
  const double busy = task.seconds * compute_factor;
  return until_issued > busy ? 1 - busy / until_issued : 0;
}

CriticalPath FindCriticalPath(const ir::Plan& plan, const PlanTasks& tasks,
                              const CommunicatorTable& communicators, const Timeline& timeline,
                              const std::vector<TaskOps>& ops, const Perturbation& perturbation) {
  return PathWalk(plan, tasks, communicators, timeline, ops, perturbation)
      .Walk(TasksOfPath(plan, tasks, communicators, timeline));
}

}  // namespace orrery::sim
