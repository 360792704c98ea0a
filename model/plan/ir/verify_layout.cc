// SPDX-License-Identifier: Apache-2.0
// Verify, pass 6: whatever shares bytes is never alive at the same time.
//
// Issue order suffices: within a block buffers live from their first to their last op; frames hold
// their slot from the first to the last call of a micro-batch; everything else must lie apart.
#include <fmt/format.h>

#include <algorithm>

#include "model/plan/ir/verify_passes.h"

namespace orrery::ir {
namespace {

using Scope = Layout::Scope;

struct Extent {
  int64_t begin, end;
  std::string_view name;
  int32_t frame;  // -1: a buffer
};

class LayoutPass {
 public:
  LayoutPass(const Stage& stage, Findings* findings)
      : stage_(stage), program_(stage.program), layout_(stage.layout), findings_(*findings) {}

  void Run() {
    Spaces();
    Permanent();
    Frames();
    for (size_t b = 0; b < program_.blocks.size(); ++b) InBlock(b);
    Slots();
  }

 private:
  Extent ExtentOf(BufferId buffer) const {
    const int64_t begin = layout_.offset[buffer];
    return {begin, begin + BufferBytes(program_.buffers[buffer]), program_.buffers[buffer].name,
            -1};
  }

  // Buffers of the host lie behind the arena, the others in it.
  void Spaces() {
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      if (layout_.scope[b] == Scope::kUnused) continue;
      const int32_t f = layout_.frame_of[b];
      const int64_t begin = f < 0 ? layout_.offset[b] : layout_.frames[f].base + layout_.offset[b];
      const int64_t bytes = BufferBytes(program_.buffers[b]);
      const bool on_host = OnHost(program_.buffers[b]);
      if (bytes == 0 ||
          (on_host ? begin >= layout_.arena_bytes : begin + bytes <= layout_.arena_bytes))
        continue;
      Clash(Fault::kByteClash, program_.buffers[b].name,
            on_host ? "is of the host and lies in the arena" : "reaches beyond the arena");
    }
  }

  void Clash(Fault fault, std::string_view where, const std::string& message) {
    findings_.Add(fault, program_.stage, std::string(where), message);
  }

  // Extents in order of their start: none may reach into the next, nor past `size`.
  void Apart(std::vector<Extent>* extents, int64_t size) {
    std::sort(extents->begin(), extents->end(), [](const Extent& a, const Extent& b) {
      return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
    });
    const Extent* reach = nullptr;  // the one that ends last so far
    for (const Extent& extent : *extents) {
      if (extent.begin < 0 || extent.end > size) {
        Clash(Fault::kByteClash, extent.name,
              fmt::format("lies outside its region of {} bytes", size));
      }
      if (reach != nullptr && extent.begin < reach->end && extent.begin < extent.end) {
        Clash(Fault::kByteClash, extent.name, fmt::format("shares bytes with {}", reach->name));
      }
      if (reach == nullptr || extent.end > reach->end) reach = &extent;
    }
  }

  // Step buffers belong to nobody else, nor do the slots of frames while a micro-batch holds one of
  // them.
  void Permanent() {
    std::vector<Extent> all;
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      if (layout_.scope[b] == Scope::kStep) all.push_back(ExtentOf(static_cast<BufferId>(b)));
    }
    std::vector<int> pools;
    for (size_t f = 0; f < layout_.frames.size(); ++f) {
      const Frame& frame = layout_.frames[f];
      if (frame.pool >= 0 && std::find(pools.begin(), pools.end(), frame.pool) != pools.end())
        continue;
      if (frame.pool >= 0) pools.push_back(frame.pool);
      all.push_back({frame.base, frame.base + frame.bytes * frame.slots, FrameName(frame),
                     static_cast<int32_t>(f)});
    }
    Apart(&all, layout_.end());
    std::erase_if(all, [](const Extent& extent) { return extent.begin == extent.end; });
    permanent_ = std::move(all);
  }

  // By block and frame: a slot of the frame, or of its pool, is held during a call of the block.
  void FindHeld() {
    held_.assign(program_.blocks.size(), std::vector<char>(layout_.frames.size(), 0));
    std::vector<int32_t> delta(layout_.calls.size() + 1);
    for (size_t f = 0; f < layout_.frames.size(); ++f) {
      std::fill(delta.begin(), delta.end(), 0);
      for (size_t g = 0; g < layout_.frames.size(); ++g) {
        if (g != f &&
            (layout_.frames[f].pool < 0 || layout_.frames[g].pool != layout_.frames[f].pool))
          continue;
        const CallSpan& span = stage_.frame_spans[g];
        for (size_t m = 0; m < span.first.size(); ++m) {
          if (span.first[m] < 0) continue;
          ++delta[span.first[m]];
          --delta[span.last[m] + 1];
        }
      }
      int32_t alive = 0;
      for (size_t c = 0; c < layout_.calls.size(); ++c) {
        alive += delta[c];
        if (alive > 0) held_[layout_.calls[c].block][f] = 1;
      }
    }
  }

  void Frames() {
    std::vector<Extent> extents;
    for (const Frame& frame : layout_.frames) {
      extents.clear();
      for (BufferId buffer : frame.buffers) extents.push_back(ExtentOf(buffer));
      Apart(&extents, frame.bytes);
    }
  }

  void InBlock(size_t block) {
    std::vector<Touch> alive;
    for (const Touch& touch : stage_.usage.by_block[block]) {  // in order of first touch
      const Scope scope = layout_.scope[touch.buffer];
      if (scope != Scope::kCall && scope != Scope::kRing) continue;
      const Extent mine = ExtentOf(touch.buffer);
      AgainstPermanent(mine, block);
      std::erase_if(alive, [&](const Touch& other) { return other.last_op < touch.first_op; });
      for (const Touch& other : alive) {
        const Extent theirs = ExtentOf(other.buffer);
        if (mine.begin >= theirs.end || theirs.begin >= mine.end) continue;
        Clash(Fault::kByteClash, WhereOp(program_, static_cast<int32_t>(block), touch.first_op),
              fmt::format("{} takes bytes of {}, which is alive until op {}", mine.name,
                          theirs.name, other.last_op));
      }
      alive.push_back(touch);
    }
  }

  void AgainstPermanent(const Extent& mine, size_t block) {
    if (mine.begin == mine.end) return;
    if (mine.begin < 0 || mine.end > layout_.end())
      Clash(Fault::kByteClash, mine.name, "lies outside the memory of the plan");
    auto it =
        std::lower_bound(permanent_.begin(), permanent_.end(), mine.end,
                         [](const Extent& extent, int64_t end) { return extent.begin < end; });
    while (it != permanent_.begin() && (--it)->end > mine.begin) {
      if (it->frame >= 0 && !HeldDuring(block, it->frame)) continue;
      Clash(Fault::kByteClash, mine.name, fmt::format("shares bytes with {}", it->name));
    }
  }

  bool HeldDuring(size_t block, int32_t frame) {
    if (held_.empty()) FindHeld();
    return held_[block][frame] != 0;
  }

  // Every slot has one holder at a time.
  void Slots() {
    struct Holder {
      int32_t frame = -1, micro_batch = -1, until = -1;
    };
    std::vector<std::vector<Holder>> held(
        layout_.frames.size());  // by pool owner (the first frame of a pool)
    std::vector<int32_t> owner(layout_.frames.size());
    std::vector<std::vector<int32_t>> frames_of(program_.blocks.size());
    for (size_t f = 0; f < owner.size(); ++f) {
      const Frame& frame = layout_.frames[f];
      owner[f] = static_cast<int32_t>(f);
      for (size_t g = 0; frame.pool >= 0 && g < f; ++g) {
        if (layout_.frames[g].pool == frame.pool) owner[f] = owner[g];
      }
      if (owner[f] == static_cast<int32_t>(f)) held[f].resize(std::max(0, frame.slots));
      for (int32_t block : stage_.usage.blocks_of[frame.buffers.front()])
        frames_of[block].push_back(static_cast<int32_t>(f));
    }
    for (size_t c = 0; c < layout_.calls.size(); ++c) {
      const Call& call = layout_.calls[c];
      for (int32_t f : frames_of[call.block]) {
        const CallSpan& span = stage_.frame_spans[f];
        if (span.first[call.micro_batch] != static_cast<int32_t>(c)) continue;
        const Frame& frame = layout_.frames[f];
        auto& slots = held[owner[f]];
        const size_t slot = static_cast<size_t>(call.micro_batch) < frame.slot_of.size()
                                ? static_cast<size_t>(frame.slot_of[call.micro_batch])
                                : slots.size();
        if (slot >= slots.size()) {
          Clash(Fault::kSlotOverrun, FrameName(frame),
                fmt::format("micro-batch {} has no slot of {}", call.micro_batch, slots.size()));
          continue;
        }
        Holder& holder = slots[slot];
        if (holder.until >= static_cast<int32_t>(c)) {
          const Frame& other = layout_.frames[holder.frame];
          Clash(
              holder.frame == f ? Fault::kSlotOverrun : Fault::kByteClash,
              fmt::format("{}[{}] {}", program_.blocks[call.block].name, call.micro_batch,
                          FrameName(frame)),
              fmt::format("takes slot {} of {} while micro-batch {} of {} is still alive (until "
                          "call {} of the step)",
                          slot, slots.size(), holder.micro_batch, FrameName(other), holder.until));
        }
        holder = {f, call.micro_batch, std::max(holder.until, span.last[call.micro_batch])};
      }
    }
  }

  // The frame is called after its largest buffer.
  std::string_view FrameName(const Frame& frame) const {
    const BufferId largest =
        *std::max_element(frame.buffers.begin(), frame.buffers.end(), [&](BufferId a, BufferId b) {
          return BufferBytes(program_.buffers[a]) < BufferBytes(program_.buffers[b]);
        });
    return program_.buffers[largest].name;
  }

  const Stage& stage_;
  const Program& program_;
  const Layout& layout_;
  Findings& findings_;
  std::vector<Extent> permanent_;        // by begin
  std::vector<std::vector<char>> held_;  // by block and frame, found when first asked for
};

}  // namespace

void VerifyLayout(const Stage& stage, Findings* findings) { LayoutPass(stage, findings).Run(); }

}  // namespace orrery::ir
