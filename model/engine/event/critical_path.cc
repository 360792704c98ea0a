// SPDX-License-Identifier: Apache-2.0
// Walks back from the task that ended last.
#include "model/engine/event/critical_path.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "model/base/check.h"
#include "model/engine/event/axis_time.h"
#include "model/engine/event/compute_clock.h"
#include "model/engine/event/index.h"

namespace orrery::sim {
namespace {

constexpr std::array<const char*, 7> kPathClassNames = {
    "GEMM", "attention", "memory-bound", "optimizer", "collective", "transfer", "input"};

// Where tasks come from: predecessors, and their number among the messages of a line.
struct StageLinks {
  std::vector<int32_t> before;                 // by task: the one before it on its stream, or -1
  std::vector<std::vector<int32_t>> waits;     // by task: those on other streams
  std::vector<int32_t> number;                 // by task: of its line's messages, in this direction
  std::vector<std::vector<int32_t>> messages;  // by 2 * line + receives: tasks in order
};

StageLinks LinksOf(const StageTasks& stage, std::size_t lines) {
  StageLinks links;
  links.before.assign(stage.tasks.size(), -1);
  links.number.assign(stage.tasks.size(), 0);
  links.waits.resize(stage.tasks.size());
  links.messages.resize(2 * lines);
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

// As schedules are written: blocks that begin and end the step belong to no micro-batch.
std::string WordsOf(const ir::Block& block, const ir::Instance& at) {
  const bool of_the_step = block.name == "P" || block.name == "E";
  return of_the_step ? block.name : fmt::format("{}[{}]", block.name, at.micro_batch);
}

struct Spot {
  uint32_t rank = 0;  // index into executed ranks
  int32_t task = -1;
};

class PathWalk {
 public:
  PathWalk(const ir::Plan& plan, const PlanTasks& tasks, const MeetingTable& meetings,
           const Timeline& timeline, const std::vector<TaskOps>& ops,
           const Perturbation& perturbation)
      : plan_(plan),
        tasks_(tasks),
        meetings_(meetings),
        timeline_(timeline),
        ops_(ops),
        perturbation_(perturbation) {
    for (const StageTasks& stage : tasks.stages)
      links_.push_back(LinksOf(stage, tasks.lines.size()));
    for (const int64_t rank : meetings.ranks)
      stage_.push_back(At(plan.mesh.Coords(rank)[At(plan.mesh.program_axis)]));
  }

  CriticalPath Walk() {
    Spot at = Last();
    if (at.task < 0) return {};
    date_ = SpanOf(at).end;
    while (at.task >= 0) {
      ++path_.tasks;
      Enter(at);
      const Task& task = TaskOf(at);
      if (task.line >= 0) {
        at = TakeMessage(at, task);
      } else {
        TakeCompute(at, task);
      }
      at = TakeGap(at);
    }
    path_.stretches.back().begin = 0;
    std::ranges::reverse(path_.stretches);
    for (const auto& [name, seconds] : seconds_) path_.classes.push_back({name, seconds});
    std::ranges::stable_sort(path_.classes, std::greater<>(), &PathClass::seconds);
    return std::move(path_);
  }

 private:
  const TaskSpan& SpanOf(Spot at) const { return timeline_[at.rank][At(at.task)]; }
  const Task& TaskOf(Spot at) const { return tasks_.stages[stage_[at.rank]].tasks[At(at.task)]; }

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

  // The path comes, backwards, to a task, maybe on another rank.
  void Enter(Spot at) {
    const TaskOps& ops = ops_[stage_[at.rank]];
    const ir::Instance& instance = ops.Of(at.task).front();
    const std::string words = WordsOf(ops.program().blocks[At(instance.block)], instance);
    const int64_t rank = meetings_.ranks[at.rank];
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

  // Back to the meeting, and over to who came last.
  Spot TakeMessage(Spot at, const Task& task) {
    const TaskSpan& span = SpanOf(at);
    const LineMessages& line = tasks_.lines[At(task.line)];
    const int32_t m = meetings_.of[At(2 * task.line + task.receives)][at.rank];
    const Meeting& meeting = meetings_.meetings[At(m)];
    const Exchange& exchange = meetings_.exchanges[At(meeting.first_exchange + task.message)];
    const std::string axis = AxisName(plan_, line.line);
    Book(axis + " traffic", std::min(span.end, span.met + exchange.latency));
    Book(axis + " latency", span.met);
    const Spot last = LastToCome(at, task, meeting);
    Book(axis + " traffic", SpanOf(last).start);  // of other messages of its communicator
    if (last.rank != at.rank) Enter(last);
    return last;
  }

  Spot LastToCome(Spot at, const Task& task, const Meeting& meeting) const {
    const int32_t number = links_[stage_[at.rank]].number[At(at.task)];
    Spot last = at;
    for (int32_t i = 0; i < meeting.members; ++i) {
      const int64_t rank = meetings_.members[At(meeting.first_member + i)];
      const auto found = std::ranges::lower_bound(meetings_.ranks, rank);
      if (found == meetings_.ranks.end() || *found != rank) continue;
      const auto r = static_cast<uint32_t>(found - meetings_.ranks.begin());
      const bool receives = tasks_.lines[At(task.line)].line.axis >= 0 && i == 1;
      const Spot other = {r, links_[stage_[r]].messages[At(2 * task.line + receives)][At(number)]};
      if (SpanOf(other).start > SpanOf(last).start) last = other;
    }
    return last;
  }

  void TakeCompute(Spot at, const Task& task) {
    const TaskSpan& span = SpanOf(at);
    const TaskOps& ops = ops_[stage_[at.rank]];
    const std::span<const ir::Instance> instances = ops.Of(at.task);
    const double whole = std::max(0.0, date_ - span.start);
    const double host =
        HostShare(task, span, ComputeFactor(perturbation_, meetings_.ranks[at.rank], at.task));
    std::array<double, kPathClassNames.size()> share{};
    double before = 0;
    for (std::size_t i = 0; i < instances.size(); ++i) {
      const double after = ops.EndShare(at.task, i);
      share[At(static_cast<int>(ir::Info(ops.OpOf(instances[i]).kind).op_class))] += after - before;
      before = after;
    }
    for (std::size_t c = 0; c < share.size(); ++c) {
      if (share[c] > 0) seconds_[kPathClassNames[c]] += whole * (1 - host) * share[c];
    }
    if (host > 0) seconds_["host"] += whole * host;
    date_ = std::min(date_, span.start);
  }

  // To the predecessor that ended last. What lies between is the host, late with a message.
  Spot TakeGap(Spot at) {
    const StageLinks& links = links_[stage_[at.rank]];
    Spot best = {at.rank, links.before[At(at.task)]};
    for (const int32_t wait : links.waits[At(at.task)]) {
      const Spot other = {at.rank, wait};
      if (best.task < 0 || SpanOf(other).end > SpanOf(best).end) best = other;
    }
    const double end = best.task < 0 ? 0 : SpanOf(best).end;
    Book(SpanOf(at).earliest > end ? "host" : "waiting", end);
    return best;
  }

  const ir::Plan& plan_;
  const PlanTasks& tasks_;
  const MeetingTable& meetings_;
  const Timeline& timeline_;
  const std::vector<TaskOps>& ops_;
  const Perturbation& perturbation_;
  std::vector<StageLinks> links_;   // by stage
  std::vector<std::size_t> stage_;  // by executed rank
  std::map<std::string, double> seconds_;
  double date_ = 0;  // the path is known from here on
  CriticalPath path_;
};

}  // namespace

double HostShare(const Task& task, const TaskSpan& span, double compute_factor) {
  const double until_issued = span.earliest - span.start;
  const double busy = task.seconds * compute_factor;
  return until_issued > busy ? 1 - busy / until_issued : 0;
}

CriticalPath FindCriticalPath(const ir::Plan& plan, const PlanTasks& tasks,
                              const MeetingTable& meetings, const Timeline& timeline,
                              const std::vector<TaskOps>& ops, const Perturbation& perturbation) {
  return PathWalk(plan, tasks, meetings, timeline, ops, perturbation).Walk();
}

}  // namespace orrery::sim
