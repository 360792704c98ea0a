// SPDX-License-Identifier: Apache-2.0
// A plan's programs as tasks: what the executor walks, once per stage, shared by its ranks.
//
// A task is one communication op, or a run of compute ops that follow each other on a stream with
// nobody waiting in between: the executor cannot tell them from one op.
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "model/collectives/algorithm.h"
#include "model/engine/event/message.h"
#include "model/plan/ir/hazards.h"
#include "model/price/pricer.h"

namespace orrery::sim {

// Where communication ops meet: the members of a group on one stream, or a sender and the rank
// `delta` further on an axis. The same number on all stages.
struct Line {
  int16_t group = -1;
  uint8_t stream = 0;  // of the group's collectives
  int8_t axis = -1;    // point-to-point
  int8_t delta = 0;    // of the sender
  auto operator<=>(const Line&) const = default;
};

struct Task {
  double seconds = 0;  // compute on the device
  double update = 0;   // of them, kernels of the optimizer
  double earliest =
      0;  // compute: ends no earlier; communication: starts no earlier (the host issues it)
  double issued = 0;  // the part of `earliest` that is the host's alone: when it issues the last op
  int32_t epoch =
      0;  // `earliest` counts from the host's wait of this number, 0: from the step's start
  bool syncs = false;  // the host waits until this task can start, then issues on: opens its epoch
  int32_t line = -1;   // communication
  int32_t message = -1;
  int32_t first = 0;  // instance in the stage's unfolded program
  int32_t ops = 1;    // 0: the other part of the message that `first` sends (split.h)
  uint32_t successors = 0, successors_end = 0;  // into StageTasks::successors
  uint8_t stream = 0;
  uint8_t waits = 0;
  bool receives = false;
  bool offload = false;  // a copy between device and host, or ops of the CPU: no kernel

  bool other_part() const { return ops == 0; }
};

struct StageTasks {
  std::vector<Task> tasks;
  std::vector<int32_t> successors;              // on other streams
  std::vector<std::vector<int32_t>> on_stream;  // in order
  int64_t ops = 0;
  int32_t epochs = 1;
  double host = 0;  // seconds to issue all of them
};

struct LineMessages {
  Line line;
  std::vector<Message> messages;
};

struct PlanTasks {
  std::vector<StageTasks> stages;  // by program
  std::vector<LineMessages> lines;
  std::size_t streams = 0;
};

// How often the tasks of a stage send or receive a message.
struct MessageCount {
  int32_t line = 0, message = 0;
  bool receives = false;
  double times = 0;
};
std::vector<MessageCount> CountMessages(const StageTasks& stage);

// By epoch: the task that the host waits for; -1: the first, which nothing opens.
std::vector<int32_t> OpenersOf(const StageTasks& stage);

PlanTasks MakeTasks(const ir::Plan& plan, const Pricer& pricer);

// "stage 2, tp: B0[3] op 17 all_reduce": for messages.
std::string Describe(const ir::Plan& plan, std::size_t stage, const Task& task);

}  // namespace orrery::sim
