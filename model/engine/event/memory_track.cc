// SPDX-License-Identifier: Apache-2.0
// Where buffers come and go once per stage, the dates of these places per rank.
#include "model/engine/event/memory_track.h"

#include <algorithm>
#include <tuple>

#include "model/base/check.h"
#include "model/engine/event/index.h"
#include "model/plan/ir/usage.h"

namespace orrery::sim {
namespace {

using Scope = ir::Layout::Scope;
constexpr uint8_t kComputeStream = 0;

}  // namespace

StageMemoryMap::StageMemoryMap(const TaskOps& ops)
    : ops_(ops), bytes_(HeldBytes(ops.program(), ops.holding())) {
  const ir::Usage usage = HeldUsage(ops.program(), ops.holding());
  from_ = HeldFrom(ops.program(), ops.layout(), usage, ops.holding());
  for (std::size_t b = 0; b < bytes_.size(); ++b) {
    if (FromBegin(b)) step_bytes_ += bytes_[b];
  }
  ReadIssueOrder();
  ReadChanges(usage);
}

bool StageMemoryMap::FromBegin(std::size_t buffer) const {
  return ops_.layout().scope[buffer] == Scope::kStep && from_[buffer].call < 0;
}

// Ops stand where they are issued, whenever parts of their messages run.
void StageMemoryMap::ReadIssueOrder() {
  for (std::size_t t = 0; t < ops_.tasks(); ++t) {
    if (ops_.OtherPart(static_cast<int32_t>(t))) continue;
    const auto task = static_cast<int32_t>(t);
    const std::span<const ir::Instance> instances = ops_.Of(task);
    for (std::size_t i = 0; i < instances.size(); ++i)
      order_.push_back({instances[i].call, instances[i].op, task, static_cast<int32_t>(i)});
  }
  ORRERY_CHECK(!order_.empty(), "a stage without ops");
  std::ranges::sort(order_, {},
                    [](const Issued& at) { return std::pair(at.call, at.op_in_block); });
}

std::size_t StageMemoryMap::PlaceOf(int32_t call, int32_t op) const {
  const auto at = std::ranges::lower_bound(order_, std::pair(call, op), {}, [](const Issued& one) {
    return std::pair(one.call, one.op_in_block);
  });
  return std::min(order_.size() - 1, static_cast<std::size_t>(at - order_.begin()));
}

void StageMemoryMap::ReadChanges(const ir::Usage& usage) {
  const ir::Program& program = ops_.program();
  const ir::Layout& layout = ops_.layout();
  const std::vector<ir::CallSpan> spans = ir::FrameSpans(ops_.plan(), program, layout, usage);
  struct Ordered {
    std::tuple<int32_t, int32_t, bool> key;
    Change change;
  };
  std::vector<Ordered> found;
  for (std::size_t c = 0; c < layout.calls.size(); ++c) {
    const auto call = static_cast<int32_t>(c);
    const std::size_t m = sim::At(layout.calls[c].micro_batch);
    for (const ir::Touch& touch : usage.by_block[sim::At(layout.calls[c].block)]) {
      const std::size_t b = sim::At(touch.buffer);
      const int64_t bytes = bytes_[b];
      const bool of_step = layout.scope[b] == Scope::kStep;
      if (bytes == 0 || (of_step && from_[b].call != call)) continue;
      const int32_t frame = layout.frame_of[b];
      if (of_step || frame < 0 || spans[sim::At(frame)].first[m] == call)
        found.push_back(
            {{call, touch.first_op, false}, {PlaceOf(call, touch.first_op), bytes, touch.buffer}});
      if (!of_step && (frame < 0 || spans[sim::At(frame)].last[m] == call)) {
        const std::size_t next =
            PlaceOf(call, touch.last_op + 1);  // a skipped op ends with the one before
        const bool last = std::pair(order_[next].call, order_[next].op_in_block) <=
                          std::pair(call, touch.last_op);
        found.push_back({{call, touch.last_op, true},
                         {next == 0 || last ? next : next - 1, -bytes, touch.buffer}});
      }
    }
  }
  std::ranges::stable_sort(found, {}, &Ordered::key);
  for (const Ordered& one : found) changes_.push_back(one.change);
}

std::vector<StageMemoryMap::Dates> StageMemoryMap::DatesOf(
    const std::vector<TaskSpan>& spans) const {
  std::vector<Dates> dates;
  dates.reserve(order_.size());
  double end = 0;
  for (const Issued& at : order_) {
    double begin = end;
    if (ops_.OpOf(ops_.Of(at.task)[sim::At(at.op)]).stream == kComputeStream) {
      const TaskSpan& span = spans[sim::At(at.task)];
      begin = ops_.Begin(at.task, span, sim::At(at.op));
      end = ops_.End(at.task, span, sim::At(at.op));
    }
    dates.push_back({begin, end});
  }
  return dates;
}

double StageMemoryMap::DateOf(const std::vector<TaskSpan>& spans, int32_t call, int32_t op) const {
  return DatesOf(spans)[PlaceOf(call, op)].begin;
}

std::vector<std::vector<int64_t>> StageMemoryMap::ByGroup(const std::vector<TaskSpan>& spans,
                                                          const std::vector<double>& dates,
                                                          const std::vector<int>& group_of,
                                                          int groups) const {
  std::vector<std::vector<int64_t>> bytes(sim::At(groups), std::vector<int64_t>(dates.size() + 1));
  for (std::size_t b = 0; b < bytes_.size(); ++b) {
    if (group_of[b] >= 0 && FromBegin(b)) bytes[sim::At(group_of[b])][0] += bytes_[b];
  }
  const std::vector<Dates> of_place = DatesOf(spans);
  for (const Change& change : changes_) {
    const int group = group_of[sim::At(change.buffer)];
    if (group < 0) continue;
    const auto at = std::ranges::lower_bound(dates, At(change, of_place)) - dates.begin();
    bytes[sim::At(group)][sim::At(at)] += change.bytes;
  }
  for (std::vector<int64_t>& one : bytes) {
    for (std::size_t i = 1; i < one.size(); ++i) one[i] += one[i - 1];
    one.pop_back();
  }
  return bytes;
}

MemoryTrack StageMemoryMap::Track(const std::vector<TaskSpan>& spans) const {
  MemoryTrack track{{{0, step_bytes_}}, step_bytes_, 0};
  const std::vector<Dates> dates = DatesOf(spans);
  int64_t alive = step_bytes_;
  for (const Change& change : changes_) {
    const double time = At(change, dates);
    alive += change.bytes;
    if (track.points.back().time == time) {
      track.points.back().bytes = alive;
    } else if (alive != track.points.back().bytes) {
      track.points.push_back({time, alive});
    }
    if (alive > track.peak) {
      track.peak = alive;
      track.peak_time = time;
    }
  }
  return track;
}

}  // namespace orrery::sim
