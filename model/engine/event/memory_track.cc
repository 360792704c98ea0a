// SPDX-License-Identifier: Apache-2.0
// Buffers' first and last ops once per stage, their dates per rank.
#include "model/engine/event/memory_track.h"

#include <algorithm>
#include <unordered_map>

#include "model/engine/event/index.h"
#include "model/plan/ir/usage.h"

namespace orrery::sim {
namespace {

using Scope = ir::Layout::Scope;

// Buffers in the order of the issue: (call, op) of each instance, by task.
struct Issued {
  int32_t call, op_in_block, task, op;
};

// Ops stand where they are issued, whenever parts of their messages run.
std::vector<Issued> InIssueOrder(const TaskOps& ops) {
  std::vector<Issued> order;
  for (std::size_t t = 0; t < ops.tasks(); ++t) {
    if (ops.OtherPart(static_cast<int32_t>(t))) continue;
    const auto task = static_cast<int32_t>(t);
    const std::span<const ir::Instance> instances = ops.Of(task);
    for (std::size_t i = 0; i < instances.size(); ++i)
      order.push_back({instances[i].call, instances[i].op, task, static_cast<int32_t>(i)});
  }
  std::ranges::sort(order, [](const Issued& a, const Issued& b) {
    return a.call != b.call ? a.call < b.call : a.op_in_block < b.op_in_block;
  });
  return order;
}

}  // namespace

StageMemoryMap::StageMemoryMap(const TaskOps& ops) : ops_(ops), arena_(ops.layout().arena_bytes) {
  const ir::Program& program = ops.program();
  const ir::Layout& layout = ops.layout();
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (layout.scope[b] == Scope::kStep && !ir::OnHost(program.buffers[b]))
      step_bytes_ += ir::BufferBytes(program.buffers[b]);
  }
  std::unordered_map<uint64_t, std::size_t> life_of;
  const auto name = [&](const Issued& at, const ir::Instance& instance, ir::BufferId buffer) {
    const Scope scope = layout.scope[At(buffer)];
    if (scope == Scope::kStep || scope == Scope::kUnused) return;
    if (ir::OnHost(program.buffers[At(buffer)])) return;
    const int32_t turn = scope == Scope::kMicroBatch ? instance.micro_batch : instance.call;
    const uint64_t key = static_cast<uint64_t>(buffer) << 32 | static_cast<uint32_t>(turn);
    const auto [found, added] = life_of.try_emplace(key, lives_.size());
    const Place place{at.task, at.op};
    if (added) lives_.push_back({ir::BufferBytes(program.buffers[At(buffer)]), buffer, place, {}});
    std::vector<Place>& last = lives_[found->second].last;
    const uint8_t stream = ops.OpOf(instance).stream;
    const auto same = std::ranges::find_if(last, [&](const Place& other) {
      return ops.OpOf(ops.Of(other.task).front()).stream == stream;
    });
    if (same == last.end()) {
      last.push_back(place);
    } else {
      *same = place;
    }
  };
  for (const Issued& at : InIssueOrder(ops)) {
    const ir::Instance& instance = ops.Of(at.task)[At(at.op)];
    const ir::Op& op = ops.OpOf(instance);
    for (const ir::ViewId view : op.out) name(at, instance, program.views[At(view)].buffer);
    for (const ir::ViewId view : op.in) name(at, instance, program.views[At(view)].buffer);
  }
}

std::pair<double, double> StageMemoryMap::Dates(const Life& life,
                                                const std::vector<TaskSpan>& spans) const {
  const double begin = ops_.Begin(life.first.task, spans[At(life.first.task)], At(life.first.op));
  double end = begin;
  for (const Place& last : life.last)
    end = std::max(end, ops_.End(last.task, spans[At(last.task)], At(last.op)));
  return {begin, end};
}

std::vector<std::vector<int64_t>> StageMemoryMap::ByGroup(const std::vector<TaskSpan>& spans,
                                                          const std::vector<double>& dates,
                                                          const std::vector<int>& group_of,
                                                          int groups) const {
  std::vector<std::vector<int64_t>> bytes(At(groups), std::vector<int64_t>(dates.size() + 1));
  const auto index = [&](double date) {  // of the first date that is not before it
    return At(std::ranges::lower_bound(dates, date) - dates.begin());
  };
  const ir::Program& program = ops_.program();
  for (std::size_t b = 0; b < program.buffers.size(); ++b) {
    if (group_of[b] >= 0 && ops_.layout().scope[b] == Scope::kStep)
      bytes[At(group_of[b])][0] += ir::BufferBytes(program.buffers[b]);
  }
  for (const Life& life : lives_) {
    const int group = group_of[At(life.buffer)];
    if (group < 0) continue;
    const auto [begin, end] = Dates(life, spans);
    bytes[At(group)][index(begin)] += life.bytes;
    bytes[At(group)][index(end)] -= life.bytes;
  }
  for (std::vector<int64_t>& one : bytes) {
    for (std::size_t i = 1; i < one.size(); ++i) one[i] += one[i - 1];
    one.pop_back();
  }
  return bytes;
}

MemoryTrack StageMemoryMap::Track(const std::vector<TaskSpan>& spans) const {
  std::vector<Change> changes;
  changes.reserve(2 * lives_.size());
  for (const Life& life : lives_) {
    const auto [begin, end] = Dates(life, spans);
    changes.push_back({begin, life.bytes});
    changes.push_back({end, -life.bytes});
  }
  std::ranges::sort(changes, {}, &Change::time);
  MemoryTrack track{{{0, step_bytes_}}, step_bytes_, 0};
  int64_t alive = step_bytes_;
  for (std::size_t i = 0; i < changes.size();) {
    const double time = changes[i].time;
    for (; i < changes.size() && changes[i].time == time; ++i) alive += changes[i].bytes;
    if (alive == track.points.back().bytes) continue;
    if (track.points.back().time == time) track.points.pop_back();
    track.points.push_back({time, alive});
    if (alive > track.peak) {
      track.peak = alive;
      track.peak_time = time;
    }
  }
  return track;
}

}  // namespace orrery::sim
