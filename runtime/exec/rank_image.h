// SPDX-License-Identifier: Apache-2.0
// One rank's share of a plan made ready to execute: its arena, and its op instances with memory,
// waits, partners and stream queues resolved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/plan/ir/hazards.h"
#include "model/plan/ir/layout.h"
#include "model/plan/ir/plan.h"
#include "runtime/device/accelerator.h"
#include "runtime/exec/initial.h"

namespace orrery::exec {

struct Task {  // one op instance
  const ir::Op* op = nullptr;
  cpu::Kernel kernel = nullptr;  // null: load and communication
  const ir::Unit* unit = nullptr;
  int32_t block = 0, index = 0, micro_batch = 0;
  int32_t out_begin = 0, in_begin = 0, in_end = 0;  // into RankImage::operands
  int32_t wait_begin = 0, wait_end = 0;             // into RankImage::waits
  int64_t first_sample = 0;                         // of the step: load and dropout
  int32_t line = -1;                                // collectives: into RankImage::lines
  int32_t channel = -1;                             // point-to-point
  int64_t peer = -1;                                // likewise: rank
  bool on_host = false, across = false;  // beside a device: an op of the CPU; a copy between both
  int32_t event = -1;                    // by number: other streams wait for this task
};

// A communicator that the rank takes part in.
struct Line {
  int32_t key;  // the same on all members
  int16_t group;
  uint8_t stream;
  std::vector<int64_t> members;
};

struct FreeMemory {
  void operator()(std::byte* memory) const;
};
using Arena = std::unique_ptr<std::byte[], FreeMemory>;

struct RankImage {
  const ir::Plan* plan = nullptr;
  const ir::Program* program = nullptr;
  int64_t rank = 0;
  std::vector<int> coords;
  ir::Layout layout;
  // On the host: all of it, layout.end() bytes, aligned to the plan's alignment. On a device: a copy of what outlives a
  // step, layout.step_bytes, that Executor::Fetch and Push bring up to date.
  Arena arena;
  std::byte* base = nullptr;  // where operands lie: arena.get(), or the device's arena
  std::byte* host =
      nullptr;  // likewise of buffers of the host: behind the arena, or the device's HostMemory()

  std::vector<Task> tasks;  // in issue order
  std::vector<cpu::Operand> operands;
  std::vector<int32_t> waits;
  std::vector<std::vector<int32_t>> queues;  // by stream, first in, first out
  std::vector<Line> lines;                   // in rising order of key

  cpu::Operand OnHost(cpu::Operand operand) const;  // of a whole-step view, in `arena` or `host`
  std::byte* Place(int64_t address) const;          // of a whole-step buffer, likewise
  cpu::Operand Resolve(ir::ViewId view, int32_t micro_batch) const;
  // A whole-step view by name; data null: there is none.
  cpu::Operand StepView(const std::string& name) const;
  std::string Describe(const Task& task) const;  // "B0[3] op 17 matmul -> l3.dqkv"
};

// The plan must outlive the image. `accelerator`: the arena is there. Throws std::bad_alloc when the
// arena cannot be had, and std::runtime_error when the plan contradicts itself. `stops`: see Fill.
RankImage MakeRankImage(const ir::Plan& plan, int64_t rank,
                        device::Accelerator* accelerator = nullptr, int fill = 0,
                        bool (*stops)() = nullptr);

// Whole-step views as numbers, for initialisation, tests and snapshots.
std::vector<double> ToNumbers(const cpu::Operand& operand);
void FromNumbers(const std::vector<double>& numbers, const cpu::Operand& operand);

// Initial parameters, master weights, optimizer state and loss scale; everything else stays zero.
void Initialise(RankImage* image, const train::InitialFrom& from, double loss_scale);

}  // namespace orrery::exec
