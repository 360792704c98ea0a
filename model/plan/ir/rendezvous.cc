// SPDX-License-Identifier: Apache-2.0
// Abstract run with rendezvous: stages with news are visited until none has any.
#include "model/plan/ir/rendezvous.h"

#include <algorithm>

namespace orrery::ir {
namespace {

class Execution {
 public:
  Execution(const std::vector<StageTasks>& stages, const std::vector<int32_t>& needed, int window)
      : needed_(needed), window_(window), first_(needed.size()), here_(needed.size(), 0) {
    int32_t total = 0;
    for (size_t match = 0; match < needed.size(); ++match) {
      first_[match] = total;
      total += needed[match];
    }
    waiting_.resize(total);
    states_.reserve(stages.size());
    for (const StageTasks& tasks : stages) states_.emplace_back(tasks);
    for (State& state : states_) Issue(&state);
  }

  std::vector<std::vector<int32_t>> Finish() {
    for (size_t s = 0; s < states_.size(); ++s) news_.push_back(static_cast<int32_t>(s));
    while (!news_.empty()) {
      const int32_t s = news_.back();
      news_.pop_back();
      states_[s].queued = false;
      while (Advance(s)) {
      }
    }
    std::vector<std::vector<int32_t>> stuck(states_.size());
    for (size_t s = 0; s < states_.size(); ++s) {
      for (int32_t head : states_[s].head) {
        if (head >= 0) stuck[s].push_back(head);
      }
    }
    return stuck;
  }

 private:
  struct State {
    explicit State(const StageTasks& t)
        : tasks(t),
          next(t.lane.size(), -1),
          done(t.lane.size(), 0),
          arrived(t.lane.size(), 0),
          head(t.lanes, -1) {
      std::vector<int32_t> last(t.lanes, -1);
      for (size_t i = 0; i < t.lane.size(); ++i) {
        int32_t& tail = last[t.lane[i]];
        (tail < 0 ? head[t.lane[i]] : next[tail]) = static_cast<int32_t>(i);
        tail = static_cast<int32_t>(i);
      }
    }
    const StageTasks& tasks;
    std::vector<int32_t> next;  // in the same lane
    std::vector<char> done, arrived;
    std::vector<int32_t> head;  // by lane
    int32_t issued = 0, finished = 0;
    bool queued = true;
  };
  struct Waiting {
    int32_t stage, task;
  };

  void Issue(State* state) {
    const auto total = static_cast<int32_t>(state->tasks.lane.size());
    state->issued = window_ > 0 ? std::min(total, state->finished + window_) : total;
  }

  // Tasks finish out of order, so `issued` counts how far the stage has come in issue order.
  void Complete(int32_t s, int32_t task) {
    State& state = states_[s];
    state.done[task] = 1;
    state.head[state.tasks.lane[task]] = state.next[task];
    ++state.finished;
    Issue(&state);
  }

  bool Ready(const State& state, int32_t task) const {
    if (task >= state.issued) return false;
    const int32_t begin = task == 0 ? 0 : state.tasks.wait_end[task - 1];
    for (int32_t w = begin; w < state.tasks.wait_end[task]; ++w) {
      if (!state.done[state.tasks.waits[w]]) return false;
    }
    return true;
  }

  bool Advance(int32_t s) {
    bool moved = false;
    State& state = states_[s];
    for (size_t lane = 0; lane < state.head.size(); ++lane) {
      for (int32_t task = state.head[lane]; task >= 0 && !state.arrived[task] && Ready(state, task);
           task = state.head[lane]) {
        const int32_t match = state.tasks.match[task];
        if (match < 0) {
          Complete(s, task);
          moved = true;
          continue;
        }
        state.arrived[task] = 1;
        Waiting* matched = &waiting_[first_[match]];
        matched[here_[match]++] = {s, task};
        if (here_[match] < needed_[match]) break;
        for (int32_t i = 0; i < needed_[match]; ++i) {
          const Waiting w = matched[i];
          Complete(w.stage, w.task);
          if (w.stage != s && !states_[w.stage].queued) {
            states_[w.stage].queued = true;
            news_.push_back(w.stage);
          }
        }
        moved = true;
      }
    }
    return moved;
  }

  const std::vector<int32_t>& needed_;
  const int window_;
  std::vector<int32_t> first_;  // by match: its part of waiting_
  std::vector<int32_t> here_;   // by match: how many of its tasks wait
  std::vector<Waiting> waiting_;
  std::vector<State> states_;
  std::vector<int32_t> news_;
};

}  // namespace

std::vector<std::vector<int32_t>> RunRendezvous(const std::vector<StageTasks>& stages,
                                                const std::vector<int32_t>& needed, int window) {
  return Execution(stages, needed, window).Finish();
}

}  // namespace orrery::ir
