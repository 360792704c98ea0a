// SPDX-License-Identifier: Apache-2.0
// Sweeps over the kernels and messages of one rank.
#include "model/engine/event/step_breakdown.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "model/engine/event/compute_clock.h"
#include "model/engine/event/index.h"

namespace orrery::sim {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr double kSumRounding = 1e-9;  // sums of the same prices in another order

CommAxis AxisOf(const ir::Plan& plan, const Line& line) {
  return line.axis >= 0 ? AxisOfTransfer(plan, line.axis)
                        : AxisOfGroup(plan, plan.groups[At(line.group)]);
}

class Account {
 public:
  Account(const SimulatedRun& run, std::size_t rank)
      : run_(run),
        rank_(rank),
        stage_(run.tasks.stages[StageOf()]),
        tasks_(stage_.tasks),
        spans_(run.timeline[rank]),
        before_(tasks_.size(), -1),
        slowed_(tasks_.size(), 0.0) {
    for (const std::vector<int32_t>& order : stage_.on_stream) {
      for (std::size_t i = 1; i < order.size(); ++i) before_[At(order[i])] = order[i - 1];
    }
    LinkPredecessors();
    for (const LineMessages& line : run.tasks.lines) axes_.push_back(AxisOf(run.plan, line.line));
  }

  Breakdown Fill(double fixed) {
    Sort();
    BookSlowdowns();
    BookKernels();
    BookGaps();
    BookHidden();
    sums_.fixed = fixed;
    return sums_;
  }

 private:
  std::size_t StageOf() const {
    return At(
        run_.plan.mesh.Coords(run_.communicators.ranks[rank_])[At(run_.plan.mesh.program_axis)]);
  }

  const Exchange& ExchangeOf(const Task& task) const {
    return run_.communicators.exchanges[At(CommunicatorOf(task).first_exchange + task.message)];
  }
  bool Travels(int32_t id) const {
    const Task& task = tasks_[At(id)];
    return task.line >= 0 && ExchangeOf(task).route >= 0;
  }

  // By task, what must end before it starts: a list behind first_predecessor_.
  void LinkPredecessors() {
    first_predecessor_.assign(tasks_.size() + 1, 0);
    for (const Task& task : tasks_) {
      for (uint32_t i = task.successors; i < task.successors_end; ++i)
        ++first_predecessor_[At(stage_.successors[i]) + 1];
    }
    for (std::size_t t = 0; t < tasks_.size(); ++t)
      first_predecessor_[t + 1] += first_predecessor_[t];
    predecessors_.resize(first_predecessor_.back());
    opens_ = OpenersOf(stage_);
    std::vector<uint32_t> next(first_predecessor_.begin(), first_predecessor_.end() - 1);
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      for (uint32_t i = tasks_[t].successors; i < tasks_[t].successors_end; ++i)
        predecessors_[next[At(stage_.successors[i])]++] = static_cast<int32_t>(t);
    }
  }

  // What released a task: of its predecessors, on its stream and on others, the one that ended last.
  int32_t ReleasedBy(int32_t id) const {
    int32_t last = before_[At(id)];
    for (uint32_t i = first_predecessor_[At(id)]; i < first_predecessor_[At(id) + 1]; ++i) {
      const int32_t p = predecessors_[i];
      if (last < 0 || spans_[At(p)].end > spans_[At(last)].end) last = p;
    }
    return last;
  }

  void Sort() {
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      const auto id = static_cast<int32_t>(t);
      if (tasks_[t].offload) {
        sums_.offload_hidden += spans_[t].end - spans_[t].start;  // BookHidden takes the rest off
      } else if (tasks_[t].line < 0) {
        if (spans_[t].end > spans_[t].start) kernels_.push_back(id);
      } else if (spans_[t].end > spans_[t].met && Travels(id)) {
        messages_.push_back(id);
      }
    }
    const auto by = [&](double TaskSpan::*date) {
      return
          [this, date](int32_t a, int32_t b) { return spans_[At(a)].*date < spans_[At(b)].*date; };
    };
    std::ranges::stable_sort(kernels_, by(&TaskSpan::start));
    std::ranges::stable_sort(messages_, by(&TaskSpan::met));
  }

  // Seconds of a message that were exposed.
  void Expose(int32_t id, double seconds) {
    sums_.*ExposedOf(axes_[At(tasks_[At(id)].line)]) += seconds;
  }

  // Seconds of a kernel at full speed; ranks that share cores run slower than that: without end.
  double OwnSeconds(int32_t id) const {
    if (run_.communicators.cores > 0) return kNever;
    const Task& task = tasks_[At(id)];
    return task.seconds *
           ComputeFactor(run_.perturbation, run_.communicators.ranks[rank_], id, task);
  }

  // Seconds of a kernel's span in which the same message slows it most; -1: none does.
  struct Piece {
    double seconds = 0;
    int32_t message = -1;
  };
  double SlowdownOf(const Piece& piece) const {
    return piece.message >= 0 ? ExchangeOf(tasks_[At(piece.message)]).slowdown : 0.0;
  }

  // Of the kernels one after the other: `next` message, those under way.
  std::vector<Piece> PiecesOf(const TaskSpan& span, std::size_t* next,
                              std::vector<int32_t>* under_way) const {
    std::vector<Piece> pieces;
    for (double now = span.start; now < span.end;) {
      std::erase_if(*under_way, [&](int32_t id) { return spans_[At(id)].end <= now; });
      while (*next < messages_.size() && spans_[At(messages_[*next])].met <= now) {
        const int32_t id = messages_[(*next)++];
        if (spans_[At(id)].end > now && ExchangeOf(tasks_[At(id)]).slowdown > 0)
          under_way->push_back(id);
      }
      double until = span.end;
      if (*next < messages_.size()) until = std::min(until, spans_[At(messages_[*next])].met);
      Piece piece;
      for (const int32_t id : *under_way) {
        until = std::min(until, spans_[At(id)].end);
        if (piece.message < 0 || SlowdownOf({0, id}) > SlowdownOf(piece)) piece.message = id;
      }
      piece.seconds = until - now;
      pieces.push_back(piece);
      if (until <= now) break;
      now = until;
    }
    return pieces;
  }

  // Where a kernel runs beside messages, the one that slows it most takes its share of the time. Kernels of a task that a late
  // host issues have gaps, and lose nothing in them: they are taken for even.
  void BookSlowdowns() {
    std::vector<int32_t> under_way;
    std::size_t next = 0;
    for (const int32_t kernel : kernels_) {
      const TaskSpan& span = spans_[At(kernel)];
      const std::vector<Piece> pieces = PiecesOf(span, &next, &under_way);
      double most = 0;
      for (const Piece& piece : pieces) most += piece.seconds * SlowdownOf(piece);
      const double own = OwnSeconds(kernel), left = span.end - span.start - most;
      const double busy = left > own ? own / left : 1;
      for (const Piece& piece : pieces) {
        if (piece.message < 0) continue;
        const double lost = busy * piece.seconds * SlowdownOf(piece);
        Expose(piece.message, lost);
        slowed_[At(kernel)] += lost;
      }
    }
  }

  // What is left of a kernel's span is its own time, and where that is shorter the host's.
  void BookKernels() {
    for (const int32_t id : kernels_) {
      const Task& task = tasks_[At(id)];
      const TaskSpan& span = spans_[At(id)];
      const double left = std::max(0.0, span.end - span.start - slowed_[At(id)]);
      const double kernel = std::min(left, OwnSeconds(id));
      const double update = task.seconds > 0 ? kernel * task.update / task.seconds : 0;
      sums_.optimizer += update;
      sums_.compute += kernel - update;
      sums_.host += left - kernel;
    }
  }

  void BookGaps() {
    double now = 0;
    for (const int32_t id : kernels_) {
      const TaskSpan& span = spans_[At(id)];
      if (span.start > now) BookGap(now, span.start, id);
      now = std::max(now, span.end);
    }
    int32_t last = -1;
    for (std::size_t t = 0; t < tasks_.size(); ++t) {
      if (last < 0 || spans_[t].end > spans_[At(last)].end) last = static_cast<int32_t>(t);
    }
    const double end = last < 0 ? 0 : spans_[At(last)].end;
    if (end > now) BookGap(now, end, last);
    now = std::max(now, end);
    sums_.bubble += std::max(0.0, run_.result.seconds - now);
  }

  void BookGap(double begin, double end, int32_t next) {
    while (begin < end) {
      const double until = std::min(end, BookUntil(begin, next));
      // Rounding may leave a cause that has just ended: it takes the rest.
      if (until > begin) {
        BookCause(until - begin);
        begin = until;
      } else {
        BookCause(end - begin);
        return;
      }
    }
  }

  // Finds what holds `task` back at `now`: sets cause_, returns when that changes.
  double BookUntil(double now, int32_t task) {
    cause_ = Cause::kHost;
    message_ = -1;
    double until = kNever;
    for (int32_t steps = 0; task >= 0 && steps < static_cast<int32_t>(tasks_.size()); ++steps) {
      const TaskSpan& span = spans_[At(task)];
      if (tasks_[At(task)].offload && now >= span.start && now < span.end) {
        cause_ = Cause::kOffload;
        return std::min(until, span.end);
      }
      if (tasks_[At(task)].line >= 0 && now >= span.start && now < span.end) {
        if (now >= span.met) {
          cause_ = Cause::kMessage;
          message_ = task;
          return std::min(until, span.end);
        }
        // Its partners are not there yet, or its communicator is busy.
        const int32_t other = UnderWay(now, QueueOf(task));
        cause_ = other >= 0 ? Cause::kMessage : Cause::kBubble;
        message_ = other;
        until = std::min(until, span.met);
        return std::min(until, other >= 0 ? spans_[At(other)].end : NextDeparture(now));
      }
      if (now < span.start) until = std::min(until, span.start);
      const int32_t before = ReleasedBy(task);
      if (before < 0 || spans_[At(before)].end <= now) {  // free to start, not issued
        const int32_t awaited = AwaitedByHost(task);
        if (awaited >= 0 && spans_[At(awaited)].end > now) {
          task = awaited;
          continue;
        }
        const int32_t other = UnderWay(now);
        if (other >= 0 && tasks_[At(task)].syncs) {
          cause_ = Cause::kMessage;
          message_ = other;
          until = std::min(until, spans_[At(other)].end);
        }
        return until;
      }
      task = before;
    }
    return until;
  }

  // What the host waits for before it issues `task`, -1: nothing.
  int32_t AwaitedByHost(int32_t task) const {
    const int32_t opens = opens_[At(tasks_[At(task)].epoch)];
    return opens < 0 || opens == task ? -1 : ReleasedBy(opens);
  }

  const Communicator& CommunicatorOf(const Task& task) const {
    return run_.communicators
        .communicators[At(run_.communicators.of[At(2 * task.line + task.receives)][rank_])];
  }
  int32_t QueueOf(int32_t id) const { return CommunicatorOf(tasks_[At(id)]).queue; }

  // Any message in flight on this rank, one that holds `in_queue` before all others; -1: none.
  int32_t UnderWay(double now, int32_t in_queue = -1) const {
    int32_t any = -1;
    for (const int32_t id : messages_) {
      if (spans_[At(id)].met > now) break;
      if (spans_[At(id)].end <= now) continue;
      if (in_queue < 0 || QueueOf(id) == in_queue) return id;
      if (any < 0) any = id;
    }
    return any;
  }

  // When the next message of this rank leaves.
  double NextDeparture(double now) const {
    const auto next = std::ranges::upper_bound(messages_, now, {},
                                               [this](int32_t id) { return spans_[At(id)].met; });
    return next == messages_.end() ? kNever : spans_[At(*next)].met;
  }

  void BookCause(double seconds) {
    switch (cause_) {
      case Cause::kMessage:
        return Travels(message_) ? Expose(message_, seconds)
                                 : static_cast<void>(sums_.bubble += seconds);
      case Cause::kBubble:
        sums_.bubble += seconds;
        return;
      case Cause::kOffload:
        sums_.offload += seconds;
        return;
      case Cause::kHost:
        sums_.host += seconds;
        return;
    }
  }

  void BookHidden() {
    const Breakdown exposed = sums_;
    sums_.offload_hidden = std::max(0.0, sums_.offload_hidden - exposed.offload);
    for (const int32_t id : messages_) {
      const Exchange& exchange = ExchangeOf(tasks_[At(id)]);
      sums_.*HiddenOf(axes_[At(tasks_[At(id)].line)]) +=
          spans_[At(id)].end - spans_[At(id)].met + exchange.hidden * exchange.price;
    }
    for (const CommAxis axis : kCommAxes) {
      double& hidden = sums_.*HiddenOf(axis);
      hidden = std::max(0.0, hidden - exposed.*ExposedOf(axis));
    }
  }

  enum class Cause { kMessage, kBubble, kHost, kOffload };

  const SimulatedRun& run_;
  const std::size_t rank_;
  const StageTasks& stage_;
  const std::vector<Task>& tasks_;
  const std::vector<TaskSpan>& spans_;
  std::vector<int32_t> before_;  // by task: the one before it on its stream
  std::vector<uint32_t> first_predecessor_;
  std::vector<int32_t> predecessors_;
  std::vector<int32_t> opens_;     // by epoch: the task that the host waits for
  std::vector<double> slowed_;     // by task: seconds that messages took from it
  std::vector<CommAxis> axes_;     // by line
  std::vector<int32_t> kernels_;   // that take time, by start
  std::vector<int32_t> messages_;  // that travel, by departure
  Cause cause_ = Cause::kHost;
  int32_t message_ = -1;
  Breakdown sums_;
};

// Seconds of kernels at full speed.
double KernelSeconds(const StageTasks& stage) {
  double sum = 0;
  for (const Task& task : stage.tasks) {
    if (task.line < 0 && !task.offload) sum += task.seconds;
  }
  return sum;
}

// Seconds of the messages of a rank inside of layers: others where its group lies on nodes in another way.
class LayerMessages {
 public:
  explicit LayerMessages(const SimulatedRun& run) : table_(run.communicators) {
    for (std::size_t line = 0; line < run.tasks.lines.size(); ++line) {
      const CommAxis axis = AxisOf(run.plan, run.tasks.lines[line].line);
      if (axis == CommAxis::kTensor || axis == CommAxis::kContext) Add(run, line);
    }
  }
  double Of(std::size_t rank, std::size_t stage) const {
    double seconds = 0;
    for (const LineOf& line : lines_) {
      const int32_t communicator = table_.of[line.at][rank];
      if (communicator < 0) continue;
      const auto first = At(table_.communicators[At(communicator)].first_exchange);
      const std::vector<int32_t>& sent = line.sent[stage];
      for (std::size_t m = 0; m < sent.size(); ++m)
        seconds += sent[m] * table_.exchanges[first + m].price;
    }
    return seconds;
  }

 private:
  struct LineOf {
    std::size_t at;                          // of CommunicatorTable::of
    std::vector<std::vector<int32_t>> sent;  // by stage and message: how often
  };

  void Add(const SimulatedRun& run, std::size_t line) {
    LineOf of{2 * line, {}};
    for (const StageTasks& stage : run.tasks.stages) {
      std::vector<int32_t>& sent = of.sent.emplace_back(run.tasks.lines[line].messages.size(), 0);
      for (const Task& task : stage.tasks)
        if (task.line == static_cast<int32_t>(line)) ++sent[At(task.message)];
    }
    lines_.push_back(std::move(of));
  }

  const CommunicatorTable& table_;
  std::vector<LineOf> lines_;
};

bool Longer(double one, double other) { return one > other * (1 + kSumRounding); }

}  // namespace

std::size_t BusiestRank(const SimulatedRun& run) {
  std::vector<double> of_stage;
  for (const StageTasks& stage : run.tasks.stages) of_stage.push_back(KernelSeconds(stage));
  const LayerMessages messages(run);
  std::size_t busiest = 0;
  double most = -1, longest = -1;
  for (std::size_t r = 0; r < run.result.ranks.size(); ++r) {
    const int64_t rank = run.result.ranks[r];
    const auto stage = At(run.plan.mesh.Coords(rank)[At(run.plan.mesh.program_axis)]);
    const double slow =
        At(rank) < run.perturbation.slowdown.size() ? run.perturbation.slowdown[At(rank)] : 1.0;
    const double seconds = slow * of_stage[stage];
    const double in_layers = messages.Of(r, stage);
    if (!Longer(seconds, most) && (Longer(most, seconds) || !Longer(in_layers, longest))) continue;
    most = seconds, longest = in_layers;
    busiest = r;
  }
  return busiest;
}

Breakdown BreakdownOf(const SimulatedRun& run, std::size_t rank, double fixed) {
  return Account(run, rank).Fill(fixed);
}

}  // namespace orrery::sim
