// SPDX-License-Identifier: Apache-2.0
// Static memory layout: step buffers, frames of micro-batch buffers with their slots, rings, shared
// scratch.
#include "model/plan/ir/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <tuple>

#include "model/base/check.h"
#include "model/plan/ir/scratch.h"
#include "model/plan/ir/usage.h"

namespace orrery::ir {
namespace {

// The frames whose slots are handed out together, and the calls in which each takes and returns
// one.
struct Member {
  Frame* frame;
  const CallSpan* span;
};

int MostAlive(const CallSpan& span, size_t calls) {
  std::vector<int32_t> delta(calls + 1, 0);
  for (size_t m = 0; m < span.first.size(); ++m) {
    if (span.first[m] < 0) continue;
    ++delta[span.first[m]];
    --delta[span.last[m] + 1];
  }
  int alive = 0, most = 0;
  for (int32_t step : delta) most = std::max(most, alive += step);
  return most;
}

// Micro-batches that live at all, in the order in which they begin.
std::vector<int32_t> ByFirstCall(const CallSpan& span) {
  std::vector<int32_t> order;
  for (size_t m = 0; m < span.first.size(); ++m) {
    if (span.first[m] >= 0) order.push_back(static_cast<int32_t>(m));
  }
  auto earlier = [&](int32_t a, int32_t b) { return span.first[a] < span.first[b]; };
  if (!std::is_sorted(order.begin(), order.end(), earlier)) {
    std::sort(order.begin(), order.end(), earlier);
  }
  return order;
}

// True if no two micro-batches with equal m mod slots are alive in one call.
bool ModuloFits(const CallSpan& span, const std::vector<int32_t>& order, int slots) {
  std::vector<int32_t> until(slots, -1);
  for (int32_t m : order) {
    if (span.first[m] <= until[m % slots]) return false;
    until[m % slots] = span.last[m];
  }
  return true;
}

// The fewest slots (plus slack) for which m mod slots never clashes; M slots never do.
void AssignModulo(const CallSpan& span, int extra, size_t calls, Frame* frame) {
  const int batches = static_cast<int>(span.first.size());
  const std::vector<int32_t> order = ByFirstCall(span);
  int slots = std::max(1, MostAlive(span, calls));
  while (slots < batches && !ModuloFits(span, order, slots)) ++slots;
  if (extra > 0) {
    slots = std::min(slots + extra, batches);
    while (slots < batches && !ModuloFits(span, order, slots)) ++slots;
  }
  frame->slots = slots;
  frame->slot_of.resize(batches);
  for (int m = 0; m < batches; ++m) frame->slot_of[m] = m % slots;
}

// Hands out slots call by call: the lowest free number (the fewest slots there can be); with slack,
// the one that has been free for longest, so that a receive finds a slot before its predecessor is
// consumed.
int AssignPooled(const std::vector<Member>& members, int extra) {
  struct Event {
    int32_t call, member, micro_batch;
  };
  std::vector<Event> takes, returns;
  for (size_t i = 0; i < members.size(); ++i) {
    const CallSpan& span = *members[i].span;
    for (size_t m = 0; m < span.first.size(); ++m) {
      if (span.first[m] < 0) continue;
      takes.push_back({span.first[m], static_cast<int32_t>(i), static_cast<int32_t>(m)});
      returns.push_back({span.last[m], static_cast<int32_t>(i), static_cast<int32_t>(m)});
    }
    members[i].frame->slot_of.assign(span.first.size(), 0);
  }
  auto by_call = [](const Event& a, const Event& b) { return a.call < b.call; };
  std::stable_sort(takes.begin(), takes.end(), by_call);
  std::stable_sort(returns.begin(), returns.end(), by_call);

  int most = 0, alive = 0;
  for (size_t t = 0, r = 0; t < takes.size(); ++t) {
    while (returns[r].call < takes[t].call) ++r, --alive;
    most = std::max(most, ++alive);
  }
  const int slots =
      std::min<int>(most + extra, std::max<int>(most, static_cast<int>(takes.size())));
  std::priority_queue<int32_t, std::vector<int32_t>, std::greater<>> lowest;
  std::queue<int32_t> oldest;
  auto give = [&](int32_t slot) { extra > 0 ? oldest.push(slot) : lowest.push(slot); };
  for (int32_t slot = 0; slot < slots; ++slot) give(slot);
  for (size_t t = 0, r = 0; t < takes.size(); ++t) {
    for (; returns[r].call < takes[t].call; ++r) {
      give(members[returns[r].member].frame->slot_of[returns[r].micro_batch]);
    }
    const int32_t slot = extra > 0 ? oldest.front() : lowest.top();
    extra > 0 ? oldest.pop() : lowest.pop();
    members[takes[t].member].frame->slot_of[takes[t].micro_batch] = slot;
  }
  return slots;
}

class LayoutBuilder {
 public:
  LayoutBuilder(const Plan& plan, const Program& program)
      : plan_(plan), program_(program), usage_(AnalyseUsage(program)) {
    layout_.calls = Expand(program.schedule);
    for (const Call& call : layout_.calls) {
      ORRERY_CHECK(call.micro_batch >= 0 && call.micro_batch < plan.micro_batches,
                   "stage {}: call of block {} with micro-batch {} of {}", program.stage,
                   call.block, call.micro_batch, plan.micro_batches);
    }
  }

  Layout Build() {
    const size_t n = program_.buffers.size();
    layout_.scope.resize(n);
    layout_.offset.assign(n, 0);
    layout_.frame_of.assign(n, -1);
    for (size_t b = 0; b < n; ++b) layout_.scope[b] = ScopeOf(static_cast<BufferId>(b));
    PlaceStep();
    PlaceFrames();
    PlaceRings();
    PlaceScratch();
    PlaceHost();
    return std::move(layout_);
  }

 private:
  using Scope = Layout::Scope;

  int64_t Size(BufferId buffer) const {
    return AlignUp(BufferBytes(program_.buffers[buffer]), plan_.alignment);
  }

  Scope ScopeOf(BufferId id) const {
    const Buffer& buffer = program_.buffers[id];
    if (buffer.life == Life::kStep) return Scope::kStep;
    if (usage_.blocks_of[id].empty()) return Scope::kUnused;
    if (buffer.life == Life::kMicroBatch || usage_.blocks_of[id].size() > 1)
      return Scope::kMicroBatch;
    return buffer.ring >= 0 ? Scope::kRing : Scope::kCall;
  }

  bool IsOnHost(size_t b) const { return OnHost(program_.buffers[b]); }

  void PlaceStep() {
    for (size_t b = 0; b < layout_.scope.size(); ++b) {
      if (layout_.scope[b] != Scope::kStep || IsOnHost(b)) continue;
      layout_.offset[b] = layout_.arena_bytes;
      layout_.arena_bytes += Size(static_cast<BufferId>(b));
    }
    layout_.step_bytes = layout_.arena_bytes;
  }

  // One frame per (calls in which it lives, extra slots). Different sets of blocks may share a
  // span.
  void CollectFrames() {
    const std::vector<CallSpan> of_block =
        SpansOfBlocks(layout_.calls, program_.blocks.size(), plan_.micro_batches);
    std::vector<std::pair<std::span<const int32_t>, size_t>> known;  // block set -> span
    for (size_t b = 0; b < layout_.scope.size(); ++b) {
      if (layout_.scope[b] != Scope::kMicroBatch) continue;
      const auto& blocks = usage_.blocks_of[b];
      auto it = std::find_if(known.begin(), known.end(),
                             [&](const auto& k) { return std::ranges::equal(k.first, blocks); });
      if (it == known.end()) {
        CallSpan span = Union(of_block, blocks);
        const auto same = std::find(spans_.begin(), spans_.end(), span);
        known.emplace_back(blocks, same - spans_.begin());
        if (same == spans_.end()) spans_.push_back(std::move(span));
        it = known.end() - 1;
      }
      AddToFrame(static_cast<BufferId>(b), it->second);
    }
  }

  void AddToFrame(BufferId buffer, size_t span) {
    const int extra = program_.buffers[buffer].extra_slots;
    const Space space = program_.buffers[buffer].space;
    size_t f = 0;
    while (f < layout_.frames.size() &&
           (span_of_[f] != span || extra_[f] != extra || space_[f] != space))
      ++f;
    if (f == layout_.frames.size()) {
      layout_.frames.emplace_back();
      span_of_.push_back(span);
      extra_.push_back(extra);
      space_.push_back(space);
      NameBlocks(spans_[span], &layout_.frames.back());
    }
    Frame& frame = layout_.frames[f];
    frame.buffers.push_back(buffer);
    layout_.frame_of[buffer] = static_cast<int32_t>(f);
    layout_.offset[buffer] = frame.bytes;
    frame.bytes += Size(buffer);
  }

  void NameBlocks(const CallSpan& span, Frame* frame) const {
    for (size_t m = 0; m < span.first.size() && frame->first_block < 0; ++m) {
      if (span.first[m] < 0) continue;
      frame->first_block = layout_.calls[span.first[m]].block;
      frame->last_block = layout_.calls[span.last[m]].block;
    }
  }

  void PlaceFrames() {
    CollectFrames();
    std::vector<int32_t> order(layout_.frames.size());
    std::iota(order.begin(), order.end(), 0);
    std::erase_if(order, [&](int32_t f) { return space_[f] == Space::kHost; });
    const std::vector<int> sent = SendingStreams();
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
      return std::tuple(sent[b], extra_[a], layout_.frames[a].bytes) >
             std::tuple(sent[a], extra_[b], layout_.frames[b].bytes);
    });
    for (size_t i = 0; i < order.size();) {
      size_t end = i + 1;
      while (plan_.frame_pool && end < order.size() && sent[order[end]] == sent[order[i]] &&
             extra_[order[end]] == extra_[order[i]] &&
             layout_.frames[order[end]].bytes * 10 >= layout_.frames[order[i]].bytes * 9) {
        ++end;
      }
      PlaceGroup({order.begin() + i, order.begin() + end});
      i = end;
    }
    layout_.frame_bytes = layout_.arena_bytes - layout_.step_bytes;
  }

  // By frame: 0, or 1 + the stream that sends its tensor. A slot that waits for the neighbour to
  // receive must not hold up anything but later sends of that stream: if receives waited too,
  // stages would deadlock.
  std::vector<int> SendingStreams() const {
    std::vector<int> stream(layout_.frames.size(), 0);
    for (const Block& block : program_.blocks) {
      for (const Op& op : block.ops) {
        if (op.kind != OpKind::kSend) continue;
        const int32_t f = layout_.frame_of[program_.views[op.in[0]].buffer];
        if (f >= 0) stream[f] = 1 + op.stream;
      }
    }
    return stream;
  }

  // Frames of nearly equal size, largest first: one pool if that needs less than slots of their
  // own.
  void PlaceGroup(const std::vector<int32_t>& group) {
    int64_t apart = 0;
    std::vector<Member> members;
    for (int32_t f : group) {
      Frame& frame = layout_.frames[f];
      AssignModulo(spans_[span_of_[f]], extra_[f], layout_.calls.size(), &frame);
      apart += frame.bytes * frame.slots;
      members.push_back({&frame, &spans_[span_of_[f]]});
    }
    if (group.size() > 1) {
      std::vector<std::vector<int32_t>> modulo;
      for (int32_t f : group) modulo.push_back(layout_.frames[f].slot_of);
      const int64_t slot_bytes = layout_.frames[group[0]].bytes;
      const int slots = AssignPooled(members, extra_[group[0]]);
      if (slots * slot_bytes < apart) {
        for (int32_t f : group) {
          Frame& frame = layout_.frames[f];
          frame.slots = slots;
          frame.bytes = slot_bytes;
          frame.base = layout_.arena_bytes;
          frame.pool = pools_;
        }
        ++pools_;
        layout_.arena_bytes += slots * slot_bytes;
        return;
      }
      for (size_t i = 0; i < group.size(); ++i)
        layout_.frames[group[i]].slot_of = std::move(modulo[i]);
    }
    for (int32_t f : group) {
      Frame& frame = layout_.frames[f];
      frame.base = layout_.arena_bytes;
      layout_.arena_bytes += frame.bytes * frame.slots;
    }
  }

  // A ring slot is as large as the largest buffer that uses it.
  void PlaceRings() {
    const int64_t before = layout_.arena_bytes;
    std::vector<std::vector<int64_t>> size(program_.rings.size());
    for (size_t r = 0; r < size.size(); ++r)
      size[r].assign(std::max(1, program_.rings[r].slots), 0);
    auto slot = [&](const Buffer& buffer) -> int64_t& {
      auto& slots = size[buffer.ring];
      return slots[buffer.ring_index % slots.size()];
    };
    for (size_t b = 0; b < layout_.scope.size(); ++b) {
      if (layout_.scope[b] != Scope::kRing) continue;
      int64_t& bytes = slot(program_.buffers[b]);
      bytes = std::max(bytes, Size(static_cast<BufferId>(b)));
    }
    for (auto& slots : size) {
      for (int64_t& bytes : slots) {  // from sizes to offsets
        const int64_t offset = layout_.arena_bytes;
        layout_.arena_bytes += bytes;
        bytes = offset;
      }
    }
    for (size_t b = 0; b < layout_.scope.size(); ++b) {
      if (layout_.scope[b] == Scope::kRing) layout_.offset[b] = slot(program_.buffers[b]);
    }
    layout_.ring_bytes = layout_.arena_bytes - before;
  }

  // Blocks whose every call finds no micro-batch alive (begin and end of the step) and that use no
  // ring.
  std::vector<bool> QuietBlocks() const {
    std::vector<int32_t> delta(layout_.calls.size() + 1, 0);
    for (const CallSpan& span : spans_) {
      for (size_t m = 0; m < span.first.size(); ++m) {
        if (span.first[m] < 0) continue;
        ++delta[span.first[m]];
        --delta[span.last[m] + 1];
      }
    }
    std::vector<bool> quiet(program_.blocks.size(), true);
    int32_t alive = 0;
    for (size_t call = 0; call < layout_.calls.size(); ++call) {
      alive += delta[call];
      if (alive > 0) quiet[layout_.calls[call].block] = false;
    }
    for (size_t b = 0; b < quiet.size(); ++b) {
      for (const Touch& touch : usage_.by_block[b]) {
        if (layout_.scope[touch.buffer] == Scope::kRing) quiet[b] = false;
      }
    }
    return quiet;
  }

  // The block with the largest bound is packed best; for the others it is enough to fit below it. A
  // quiet block's scratch lies over the frames and rings, which nobody needs at that time.
  void PlaceScratch() {
    struct Work {
      std::vector<BufferId> buffers;
      std::vector<Lifetime> items;
      int64_t bound;
      bool quiet;
    };
    const std::vector<bool> quiet = QuietBlocks();
    const int64_t below = layout_.arena_bytes - layout_.step_bytes;
    std::vector<Work> works;
    for (size_t b = 0; b < usage_.by_block.size(); ++b) {
      Work work;
      work.quiet = quiet[b];
      for (const Touch& touch : usage_.by_block[b]) {
        if (layout_.scope[touch.buffer] != Scope::kCall || IsOnHost(touch.buffer)) continue;
        work.buffers.push_back(touch.buffer);
        work.items.push_back({Size(touch.buffer), touch.first_op, touch.last_op});
      }
      work.bound = PackingBound(work.items) - (work.quiet ? below : 0);
      works.push_back(std::move(work));
    }
    std::stable_sort(works.begin(), works.end(),
                     [](const Work& a, const Work& b) { return a.bound > b.bound; });
    for (const Work& work : works) {
      const int64_t free = work.quiet ? below : 0;
      const int64_t base = work.quiet ? layout_.step_bytes : layout_.arena_bytes;
      const Packing packing = Pack(work.items, std::max(work.bound, layout_.scratch_bytes) + free);
      layout_.scratch_bytes = std::max(layout_.scratch_bytes, packing.bytes - free);
      for (size_t i = 0; i < work.buffers.size(); ++i) {
        layout_.offset[work.buffers[i]] = base + packing.offset[i];
      }
    }
    layout_.arena_bytes += layout_.scratch_bytes;
  }

  // Behind the arena: first what outlives calls.
  void PlaceHost() {
    const auto place = [&](Scope scope) {
      for (size_t b = 0; b < layout_.scope.size(); ++b) {
        if (layout_.scope[b] != scope || !IsOnHost(b)) continue;
        layout_.offset[b] = layout_.end();
        layout_.host_bytes += Size(static_cast<BufferId>(b));
      }
    };
    place(Scope::kStep);
    for (size_t f = 0; f < layout_.frames.size(); ++f) {
      if (space_[f] != Space::kHost) continue;
      Frame& frame = layout_.frames[f];
      AssignModulo(spans_[span_of_[f]], extra_[f], layout_.calls.size(), &frame);
      frame.base = layout_.end();
      layout_.host_bytes += frame.bytes * frame.slots;
    }
    place(Scope::kCall);
  }

  const Plan& plan_;
  const Program& program_;
  const Usage usage_;
  Layout layout_;
  std::vector<CallSpan> spans_;
  std::vector<size_t> span_of_;  // by frame
  std::vector<int> extra_;       // by frame
  std::vector<Space> space_;     // by frame
  int pools_ = 0;
};

}  // namespace

int64_t Layout::Address(BufferId buffer, int32_t micro_batch) const {
  const int32_t f = frame_of[buffer];
  if (f < 0) return offset[buffer];
  const Frame& frame = frames[f];
  return frame.base + frame.slot_of[micro_batch] * frame.bytes + offset[buffer];
}

Layout ComputeLayout(const Plan& plan, const Program& program) {
  return LayoutBuilder(plan, program).Build();
}

}  // namespace orrery::ir
