// SPDX-License-Identifier: Apache-2.0
// What the parts of the executor share: how far each rank, stream and communicator has come.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "model/engine/event/executor.h"
#include "model/engine/event/index.h"

namespace orrery::sim {

struct StreamState {
  uint32_t head = 0;  // into on_stream
  bool busy = false;  // the head has started
  bool computing = false;
  bool offload = false;  // the running task is no kernel: messages and shared cores do not slow it
  uint32_t version = 0;  // of the pending end of a compute task
  double left = 0;       // device seconds of the running compute task
  double since = 0;      // when `left` was right
};

struct RankState {
  const StageTasks* stage = nullptr;
  std::size_t first_wait = 0;   // into StepState::waits
  std::size_t first_epoch = 0;  // into StepState::epochs
  int32_t epoch = 0;            // the last one that is open
  std::size_t left = 0;         // tasks that have not ended; at 0 its accounts are closed
  int32_t computing = 0, communicating = 0;
  double faster = 1;   // time of its kernels over their price, at most 1
  double rate = 1;     // of compute, device seconds per second
  double changed = 0;  // when one of the two last did
  RankTime time;
};

struct Arrival {
  uint32_t rank = 0;
  int32_t task = 0;
};

// Of a communicator.
struct Rendezvous {
  int32_t arrived = 0;
  int32_t message = 0;
  int32_t phase = 0;
  int32_t jobs = 0;  // of the phase, under way
};

struct StepState {
  // All of them must outlive it; `timeline` may be null: nobody asks.
  StepState(const ir::Plan& plan, const PlanTasks& tasks, CommunicatorTable* table,
            Timeline* timeline);

  double Now() const { return network.Now().value; }
  StreamState& StreamOf(uint32_t rank, std::size_t stream) {
    return streams[rank * stream_count + stream];
  }
  const Task& TaskOf(uint32_t rank, int32_t task) const {
    return ranks[rank].stage->tasks[At(task)];
  }
  int32_t CommunicatorOf(uint32_t rank, const Task& task) const {
    return table.of[At(2 * task.line + task.receives)][rank];
  }
  // The host issues it then; its epoch must be open. Kernels of a faster GPU are in the way of its own for less time:
  // the date is convex in their factor, this line through factors 0 and 1 is never early.
  double Earliest(uint32_t r, const Task& task) const {
    const RankState& rank = ranks[r];
    return epochs[rank.first_epoch + At(task.epoch)] + task.issued +
           rank.faster * (task.earliest - task.issued);
  }
  void Note(uint32_t rank, int32_t task, double TaskSpan::*date) {
    if (timeline != nullptr) (*timeline)[rank][At(task)].*date = Now();
  }
  // "stage 2, tp: B0[3] op 17 all_reduce".
  std::string Where(uint32_t rank, int32_t task) const;

  const ir::Plan& plan;
  const PlanTasks& tasks;
  CommunicatorTable& table;
  net::Network& network;
  const std::size_t stream_count;
  Timeline* const timeline;
  std::vector<RankState> ranks;
  std::vector<StreamState> streams;  // by rank and stream
  std::vector<uint8_t> waits;        // by rank and task: how many it still waits for
  std::vector<double> epochs;        // by rank and epoch: when it was opened
  std::vector<Rendezvous> rendezvous;
  std::vector<std::vector<int32_t>> queued;  // by queue: communicators, first the one under way
  std::vector<Arrival> arrivals;
  std::vector<Arrival> ended;   // tasks whose streams go on at the next Drain
  std::function<void()> drain;  // lets go whatever waited for `ended`
  // By communicator: it joins parts of the step that run one by one (parts.h); null: all run together.
  const std::vector<char>* across = nullptr;
};

}  // namespace orrery::sim
