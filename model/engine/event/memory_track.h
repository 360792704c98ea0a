// SPDX-License-Identifier: Apache-2.0
// Live bytes of a rank over simulated time.
//
// Software allocates when the host issues an op, so the order of issue decides what is alive together: the same bytes op
// by op as model/memory/live_walk.h, as the software holds them (model/price/held.h). Ops of the compute
// stream give the dates; a message's buffers come and go at the end of the compute op issued before it.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "model/engine/event/executor.h"
#include "model/engine/event/task_ops.h"

namespace orrery::sim {

struct MemoryPoint {
  double time = 0;
  int64_t bytes = 0;  // alive from here on
};

struct MemoryTrack {
  std::vector<MemoryPoint> points;  // ascending, the first at 0; no two at one date
  int64_t peak = 0;                 // over ops
  double peak_time = 0;             // of the first op at which it is reached
};

// All ranks of a stage have the same buffers; what differs is when.
class StageMemoryMap {
 public:
  explicit StageMemoryMap(const TaskOps& ops);
  MemoryTrack Track(const std::vector<TaskSpan>& spans) const;
  // Bytes alive at each of `dates` (ascending), by group: `group_of` has the group of each buffer of the program,
  // -1: not counted. Groups together hold what the points of Track() say at that date.
  std::vector<std::vector<int64_t>> ByGroup(const std::vector<TaskSpan>& spans,
                                            const std::vector<double>& dates,
                                            const std::vector<int>& group_of, int groups) const;
  // When an op (index of the expanded schedule, of the call's block) begins to hold its bytes.
  double DateOf(const std::vector<TaskSpan>& spans, int32_t call, int32_t op) const;

 private:
  // An op in the order of issue.
  struct Issued {
    int32_t call, op_in_block, task, op;
  };
  // A buffer comes before an op or goes after it; ascending by op, at one op first what comes.
  struct Change {
    std::size_t place;  // executed op, into order_, with whose begin (born) or end it happens
    int64_t bytes;      // negative: it goes
    ir::BufferId buffer;
  };
  struct Dates {
    double begin, end;
  };

  void ReadIssueOrder();
  void ReadChanges(const ir::Usage& usage);
  bool FromBegin(std::size_t buffer) const;             // there when the step begins
  std::size_t PlaceOf(int32_t call, int32_t op) const;  // the first executed from there on
  std::vector<Dates> DatesOf(const std::vector<TaskSpan>& spans) const;  // by place
  static double At(const Change& change, const std::vector<Dates>& dates) {
    return change.bytes > 0 ? dates[change.place].begin : dates[change.place].end;
  }

  const TaskOps& ops_;
  std::vector<int64_t> bytes_;   // by buffer
  std::vector<StepPlace> from_;  // by buffer
  int64_t step_bytes_ = 0;
  std::vector<Issued> order_;
  std::vector<Change> changes_;
};

}  // namespace orrery::sim
