// SPDX-License-Identifier: Apache-2.0
// Walks the streams of a rank side by side through time.
#include "model/engine/event/axis_time.h"

#include <algorithm>
#include <limits>

#include "model/engine/event/index.h"

namespace orrery::sim {
namespace {

// Where one stream is: before its next active span, or inside it.
struct Cursor {
  const std::vector<int32_t>* order = nullptr;
  std::size_t next = 0;
  bool inside = false;
  double date = std::numeric_limits<double>::infinity();  // of the next change
};

class Sweep {
 public:
  Sweep(const PlanTasks& tasks, const MeetingTable& meetings, uint32_t rank, std::size_t stage,
        const std::vector<TaskSpan>& spans)
      : tasks_(tasks),
        meetings_(meetings),
        rank_(rank),
        stage_(tasks.stages[stage]),
        spans_(spans) {
    for (const LineMessages& line : tasks.lines) times_.emplace_back(line.messages.size());
  }

  MessageTimes Run() {
    std::vector<Cursor> cursors;
    for (const std::vector<int32_t>& order : stage_.on_stream) {
      cursors.push_back({&order});
      Seek(&cursors.back());
    }
    for (double now = 0;;) {
      const auto first = std::ranges::min_element(cursors, {}, &Cursor::date);
      if (first == cursors.end() || first->date == std::numeric_limits<double>::infinity()) break;
      Book(first->date - now);
      now = first->date;
      Pass(&*first);
    }
    return std::move(times_);
  }

 private:
  // To the next task that takes time; messages that go nowhere take none.
  void Seek(Cursor* cursor) const {
    cursor->date = std::numeric_limits<double>::infinity();
    for (; cursor->next < cursor->order->size(); ++cursor->next) {
      const int32_t id = (*cursor->order)[cursor->next];
      const TaskSpan& span = spans_[At(id)];
      const Task& task = stage_.tasks[At(id)];
      cursor->date = task.line >= 0 ? span.met : span.start;
      if (span.end > cursor->date && (task.line < 0 || Travels(task))) return;
      cursor->date = std::numeric_limits<double>::infinity();
    }
  }

  bool Travels(const Task& task) const {
    const int32_t m = meetings_.of[At(2 * task.line + task.receives)][rank_];
    const Meeting& meeting = meetings_.meetings[At(m)];
    return meetings_.exchanges[At(meeting.first_exchange + task.message)].route >= 0;
  }

  void Pass(Cursor* cursor) {
    const int32_t id = (*cursor->order)[cursor->next];
    const Task& task = stage_.tasks[At(id)];
    if (!cursor->inside) {
      cursor->inside = true;
      cursor->date = spans_[At(id)].end;
      if (task.line < 0) {
        ++computing_;
      } else {
        under_way_.push_back(&task);
      }
      return;
    }
    cursor->inside = false;
    if (task.line < 0) {
      --computing_;
    } else {
      std::erase(under_way_, &task);
    }
    ++cursor->next;
    Seek(cursor);
  }

  void Book(double seconds) {
    if (under_way_.empty() || seconds <= 0) return;
    const double share = seconds / static_cast<double>(under_way_.size());
    for (const Task* task : under_way_) {
      AxisTime& time = times_[At(task->line)][At(task->message)];
      (computing_ > 0 ? time.overlapped : time.exposed) += share;
    }
  }

  const PlanTasks& tasks_;
  const MeetingTable& meetings_;
  const uint32_t rank_;
  const StageTasks& stage_;
  const std::vector<TaskSpan>& spans_;
  MessageTimes times_;
  std::vector<const Task*> under_way_;
  int computing_ = 0;
};

}  // namespace

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

MessageTimes TimesByMessage(const PlanTasks& tasks, const MeetingTable& meetings, uint32_t rank,
                            std::size_t stage, const std::vector<TaskSpan>& spans) {
  return Sweep(tasks, meetings, rank, stage, spans).Run();
}

AxisTable TimesByAxis(const ir::Plan& plan, const PlanTasks& tasks, const MeetingTable& meetings,
                      const Timeline& timeline) {
  AxisTable table;
  std::vector<std::size_t> axis_of;  // by line
  for (const LineMessages& line : tasks.lines) {
    const std::string name = AxisName(plan, line.line);
    const auto at = std::ranges::find(table.axes, name);
    axis_of.push_back(static_cast<std::size_t>(at - table.axes.begin()));
    if (at == table.axes.end()) table.axes.push_back(name);
  }
  for (std::size_t r = 0; r < timeline.size(); ++r) {
    const auto stage = At(plan.mesh.Coords(meetings.ranks[r])[At(plan.mesh.program_axis)]);
    const MessageTimes times =
        TimesByMessage(tasks, meetings, static_cast<uint32_t>(r), stage, timeline[r]);
    std::vector<AxisTime>& row = table.times.emplace_back(table.axes.size());
    for (std::size_t line = 0; line < times.size(); ++line) {
      for (const AxisTime& time : times[line]) {
        row[axis_of[line]].exposed += time.exposed;
        row[axis_of[line]].overlapped += time.overlapped;
      }
    }
  }
  return table;
}

}  // namespace orrery::sim
