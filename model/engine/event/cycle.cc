// SPDX-License-Identifier: Apache-2.0
// Compares two recorded steps task by task, stream by stream, from their ends.
#include "model/engine/event/cycle.h"

#include <cmath>

#include "model/engine/event/index.h"

namespace orrery::sim {
namespace {

constexpr double kSameDate = 1e-11;  // of the step
// A step repeats when at least this share of its cycles is moved by the same time, and at least so many.
constexpr double kSteadyShare = 1.0 / 3;
constexpr double kSteadyCycles = 2;

class Comparison {
 public:
  Comparison(const Simulation& shorter, const Simulation& longer, double cycle)
      : shorter_(shorter), longer_(longer), cycle_(cycle) {
    tolerance_ = kSameDate * longer.result().seconds;
    cycles_ = static_cast<double>(shorter.plan().micro_batches) /
              static_cast<double>(longer.plan().micro_batches - shorter.plan().micro_batches);
  }

  bool Repeats(const Timeline& before, const Timeline& after) const {
    if (before.size() != after.size()) return false;
    for (std::size_t r = 0; r < before.size(); ++r) {
      const StageTasks& fewer = shorter_.StageOfRank(r);
      const StageTasks& more = longer_.StageOfRank(r);
      for (std::size_t s = 0; s < fewer.on_stream.size(); ++s) {
        if (!StreamRepeats({fewer, fewer.on_stream[s], before[r]},
                           {more, more.on_stream[s], after[r]}))
          return false;
      }
    }
    return true;
  }

 private:
  // The tasks of a rank on one stream, in order.
  struct Stream {
    const StageTasks& stage;
    const std::vector<int32_t>& order;
    const std::vector<TaskSpan>& spans;

    std::size_t size() const { return order.size(); }
    const Task& TaskAt(std::size_t i) const { return stage.tasks[At(order[i])]; }
    const TaskSpan& SpanAt(std::size_t i) const { return spans[At(order[i])]; }
  };

  bool StreamRepeats(const Stream& fewer, const Stream& more) const {
    if (more.size() < fewer.size()) return false;
    std::size_t moved = 0;
    while (moved < fewer.size() &&
           Moved(fewer.SpanAt(fewer.size() - 1 - moved), more.SpanAt(more.size() - 1 - moved)))
      ++moved;
    const double each = static_cast<double>(more.size() - fewer.size());  // tasks of a cycle
    if (each == 0) return moved == fewer.size() || OnceAlike(fewer, more, fewer.size() - moved);
    // What is as in the longer step from the start, and moved by a cycle from the end, has both ends in steady cycles.
    const double both =
        static_cast<double>(Unmoved(fewer, more) + moved) - static_cast<double>(fewer.size());
    return both >= each * std::max(kSteadyCycles, kSteadyShare * cycles_);
  }

  // Tasks from the start on that have the same dates in both steps.
  std::size_t Unmoved(const Stream& fewer, const Stream& more) const {
    const auto unmoved = [&](const TaskSpan& before, const TaskSpan& after) {
      return Same(before.start, after.start, 0) && Same(before.end, after.end, 0);
    };
    std::size_t count = 0;
    while (count < fewer.size() && unmoved(fewer.SpanAt(count), more.SpanAt(count))) ++count;
    return count;
  }

  // A stream without tasks of a cycle: what is not moved lies before the cycles, or is one run of kernels that holds them.
  bool OnceAlike(const Stream& fewer, const Stream& more, std::size_t unmoved) const {
    for (std::size_t i = 0; i < unmoved; ++i) {
      if (Same(fewer.SpanAt(i).end, more.SpanAt(i).end, 0)) continue;
      if (i + 1 < unmoved || !HoldsTheCycles(fewer, more, i)) return false;
    }
    return true;
  }

  // Its end is the latest of sums of times of kernels and of the host, which grow by no more than a cycle each: a convex
  // function of the micro-batches, which has its steepest slope from where it grows by a cycle.
  bool HoldsTheCycles(const Stream& fewer, const Stream& more, std::size_t i) const {
    const TaskSpan &before = fewer.SpanAt(i), &after = more.SpanAt(i);
    return fewer.TaskAt(i).line < 0 && Same(before.start, after.start, 0) &&
           Same(before.end, after.end, cycle_) &&
           more.TaskAt(i).seconds - fewer.TaskAt(i).seconds <= cycle_ + tolerance_ &&
           more.stage.host - fewer.stage.host <= cycle_ + tolerance_;
  }

  bool Same(double before, double after, double later) const {
    return std::abs(after - before - later) <= tolerance_;
  }
  bool Moved(const TaskSpan& before, const TaskSpan& after) const {
    return Same(before.start, after.start, cycle_) &&
           (before.met == after.met || Same(before.met, after.met, cycle_)) &&
           Same(before.end, after.end, cycle_) &&
           after.earliest - before.earliest <= cycle_ + tolerance_;
  }

  const Simulation& shorter_;
  const Simulation& longer_;
  const double cycle_;
  double tolerance_ = 0;
  double cycles_ = 0;  // of the shorter step
};

}  // namespace

std::optional<double> CycleOf(const Simulation& shorter, const Simulation& longer) {
  const double cycle = longer.result().seconds - shorter.result().seconds;
  if (cycle <= 0 || shorter.result().ranks != longer.result().ranks ||
      !Comparison(shorter, longer, cycle).Repeats(shorter.timeline(), longer.timeline()))
    return std::nullopt;
  // The terms of a contended step are those of its reference: it has to repeat, too.
  const Timeline *before = shorter.reference_timeline(), *after = longer.reference_timeline();
  if ((before == nullptr) != (after == nullptr)) return std::nullopt;
  if (before == nullptr) return cycle;
  const double free = longer.reference_seconds() - shorter.reference_seconds();
  if (!Comparison(shorter, longer, free).Repeats(*before, *after)) return std::nullopt;
  return cycle;
}

}  // namespace orrery::sim
