// SPDX-License-Identifier: Apache-2.0
// The state behind an Interpreter: ranks with their arenas and queue heads, and the lock-step scheduler.
#pragma once

#include <map>
#include <optional>
#include <utility>

#include "tests/interpreter/interpreter.h"
#include "tests/interpreter/memory.h"

namespace orrery::interpreter {

struct RankState {
  std::vector<int> coords;
  const ProgramImage* image = nullptr;
  const ir::Layout* layout = nullptr;
  Memory memory{0};
  std::vector<uint8_t> done;       // by task
  std::vector<int32_t> head;       // by stream: next position in its queue
  std::vector<uint8_t> listed;     // by stream: stands in the scheduler's list
  std::vector<int32_t> cell_left;  // by cell: tasks to come
  std::vector<std::pair<ir::ViewId, std::vector<double>>> first_scales;  // of weights in 8 bits
};

struct Interpreter::Machine {
  Machine(const ir::Plan& plan, const RunOptions& options);
  void RunStep();
  StepResult Results();
  double Scalar(const RankState& rank, std::string_view view, double absent) const;
  std::optional<Slice> StepView(const RankState& rank, std::string_view view) const;

  const ir::Plan& plan;
  RunOptions options;
  std::vector<ir::Layout> layouts;   // by program
  std::vector<ProgramImage> images;  // by program
  std::vector<RankState> ranks;
  std::vector<std::vector<std::vector<int64_t>>> members;  // by group, then by rank
  std::mt19937_64 random;
  int64_t step = 0, executed = 0;

 private:
  struct Seat {  // a stream of a rank
    int32_t rank, stream;
  };
  void InitialiseRank(RankState* rank);
  void BeginCodes(RankState* rank, int32_t unit, int64_t first, std::vector<double>* values);
  void BeginStep();
  void List(int64_t rank);                           // its streams may have become runnable
  const Task* Head(int64_t rank, int stream) const;  // nullptr when the queue is empty
  bool Ready(int64_t rank, const Task* task) const;
  bool TryRun(Seat seat);
  bool TryCollective(Seat seat, const Task& task);
  bool TryTransfer(Seat seat, const Task& task);
  int64_t FirstSample(int64_t rank, const Task& task) const;
  void RunKernel(Seat seat, const Task& task);
  void RunLoad(Seat seat, const Task& task);
  void Finish(Seat seat);
  int64_t PeerRank(int64_t rank, const ir::Peer& peer) const;
  [[noreturn]] void Mismatch(Seat a, Seat b, const std::string& what) const;
  std::string Where(Seat seat) const;
  std::string HeadsOfAllStreams() const;

  std::vector<Seat> listed_;
};

}  // namespace orrery::interpreter
