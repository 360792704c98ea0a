// SPDX-License-Identifier: Apache-2.0
// Live bytes of the device in issue order: one profile per block and frame state, then a walk over the calls.
#include <algorithm>
#include <map>
#include <string>

#include "model/plan/ir/layout.h"
#include "model/plan/ir/usage.h"

namespace orrery::ir {
namespace {

// What a call does to a frame that its block touches.
enum FrameState : uint8_t { kHeld = 0, kBorn = 1, kDies = 2 };

struct Profile {
  int64_t peak = 0;    // over the bytes alive before the call
  int32_t op = 0;      // first op at which the peak is reached
  int64_t change = 0;  // after the call
};

class LiveWalk {
 public:
  LiveWalk(const Plan& plan, const Program& program, const Layout& layout)
      : program_(program),
        layout_(layout),
        usage_(AnalyseUsage(program)),
        spans_(FrameSpans(plan, program, layout, usage_)),
        frames_of_(program.blocks.size()),
        known_(program.blocks.size()) {
    for (size_t b = 0; b < frames_of_.size(); ++b) {
      for (const Touch& touch : usage_.by_block[b]) {
        const int32_t f = layout.frame_of[touch.buffer];
        auto& frames = frames_of_[b];
        if (f >= 0 && std::find(frames.begin(), frames.end(), f) == frames.end())
          frames.push_back(f);
      }
    }
  }

  Peak FindPeak() {
    int64_t alive = 0;
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      if (layout_.scope[b] == Layout::Scope::kStep && !OnHost(program_.buffers[b]))
        alive += BufferBytes(program_.buffers[b]);
    }
    Peak peak;
    peak.bytes = alive;
    std::string states;
    for (size_t c = 0; c < layout_.calls.size(); ++c) {
      const Profile& profile = ProfileOf(static_cast<int32_t>(c), &states);
      if (alive + profile.peak > peak.bytes || peak.call < 0) {
        peak.bytes = alive + profile.peak;
        peak.call = static_cast<int32_t>(c);
        peak.op = profile.op;
      }
      alive += profile.change;
    }
    return peak;
  }

  void ListLive(Peak* peak) const {
    for (size_t b = 0; b < program_.buffers.size(); ++b) {
      if (layout_.scope[b] == Layout::Scope::kStep) Add(static_cast<BufferId>(b), -1, peak);
    }
    for (size_t f = 0; f < spans_.size(); ++f) {
      for (size_t m = 0; m < spans_[f].first.size(); ++m) {
        const int32_t first = spans_[f].first[m];
        if (first < 0 || first >= peak->call || spans_[f].last[m] <= peak->call) continue;
        for (BufferId buffer : layout_.frames[f].buffers)
          Add(buffer, static_cast<int32_t>(m), peak);
      }
    }
    if (peak->call >= 0) ListTouched(peak);
    std::stable_sort(peak->live.begin(), peak->live.end(),
                     [](const LiveBuffer& a, const LiveBuffer& b) { return a.bytes > b.bytes; });
  }

 private:
  FrameState StateOf(int32_t call, int32_t frame) const {
    const CallSpan& span = spans_[frame];
    const int32_t m = layout_.calls[call].micro_batch;
    return static_cast<FrameState>((span.first[m] == call ? kBorn : 0) |
                                   (span.last[m] == call ? kDies : 0));
  }

  const Profile& ProfileOf(int32_t call, std::string* states) {
    const int32_t block = layout_.calls[call].block;
    states->clear();
    for (int32_t f : frames_of_[block]) states->push_back(static_cast<char>(StateOf(call, f)));
    const auto it = known_[block].find(*states);
    if (it != known_[block].end()) return it->second;
    return known_[block].emplace(*states, Compute(block, *states)).first->second;
  }

  Profile Compute(int32_t block, const std::string& states) const {
    std::vector<int64_t> delta(program_.blocks[block].ops.size() + 1, 0);
    for (const Touch& touch : usage_.by_block[block]) {
      const int32_t f = layout_.frame_of[touch.buffer];
      int state = kBorn | kDies;
      if (layout_.scope[touch.buffer] == Layout::Scope::kStep ||
          OnHost(program_.buffers[touch.buffer]))
        continue;
      if (f >= 0) {
        const auto& frames = frames_of_[block];
        state = states[std::find(frames.begin(), frames.end(), f) - frames.begin()];
      }
      const int64_t bytes = BufferBytes(program_.buffers[touch.buffer]);
      if (state & kBorn) delta[touch.first_op] += bytes;
      if (state & kDies) delta[touch.last_op + 1] -= bytes;
    }
    Profile profile;
    int64_t alive = 0;
    for (size_t op = 0; op + 1 < delta.size(); ++op) {
      alive += delta[op];
      if (op == 0 || alive > profile.peak) {
        profile.peak = alive;
        profile.op = static_cast<int32_t>(op);
      }
    }
    profile.change = alive + delta.back();
    return profile;
  }

  void ListTouched(Peak* peak) const {
    const Call& call = layout_.calls[peak->call];
    for (const Touch& touch : usage_.by_block[call.block]) {
      const int32_t f = layout_.frame_of[touch.buffer];
      if (layout_.scope[touch.buffer] == Layout::Scope::kStep) continue;
      const int state = f >= 0 ? StateOf(peak->call, f) : kBorn | kDies;
      if (state == kHeld) continue;  // listed with the frames that live across the call
      if ((state & kBorn) && touch.first_op > peak->op) continue;
      if ((state & kDies) && touch.last_op < peak->op) continue;
      Add(touch.buffer, f >= 0 ? call.micro_batch : -1, peak);
    }
  }

  void Add(BufferId buffer, int32_t micro_batch, Peak* peak) const {
    if (OnHost(program_.buffers[buffer])) return;
    peak->live.push_back({buffer, micro_batch, BufferBytes(program_.buffers[buffer])});
  }

  const Program& program_;
  const Layout& layout_;
  const Usage usage_;
  const std::vector<CallSpan> spans_;
  std::vector<std::vector<int32_t>> frames_of_;        // by block
  std::vector<std::map<std::string, Profile>> known_;  // by block and frame states
};

}  // namespace

Peak LivePeak(const Plan& plan, const Program& program, const Layout& layout, bool detail) {
  LiveWalk walk(plan, program, layout);
  Peak peak = walk.FindPeak();
  if (detail) walk.ListLive(&peak);
  return peak;
}

void ListLive(const Plan& plan, const Program& program, const Layout& layout, Peak* peak) {
  LiveWalk(plan, program, layout).ListLive(peak);
}

}  // namespace orrery::ir
