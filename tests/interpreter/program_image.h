// SPDX-License-Identifier: Apache-2.0
// One program made ready to execute: its instances with resolved memory, waits, stream queues and lifetimes.
//
// Memory is an array of doubles, one per `grain` bytes of the arena (the smallest element size of the plan). An
// element of several grains keeps its value in the first and a mark in the others, so that bytes shared between
// element types still destroy each other.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/plan/ir/hazards.h"
#include "model/plan/ir/layout.h"
#include "model/plan/ir/plan.h"
#include "tests/interpreter/kernels.h"

namespace orrery::interpreter {

// A view in memory: element i starts at grain at + i * stride.
struct Slice {
  int64_t at = 0, n = 0;
  int32_t stride = 1;
};

struct Task {  // one op instance
  const ir::Op* op = nullptr;
  Kernel kernel = nullptr;
  const ir::Unit* unit = nullptr;
  int32_t block = 0, index = 0, micro_batch = 0;
  int32_t out_begin = 0, in_begin = 0, in_end = 0;  // into ProgramImage::slices
  int32_t cell_begin = 0, cell_end = 0;             // into ProgramImage::task_cells
  std::vector<int32_t> waits;
};

// Bytes with one lifetime; they turn NaN once the last task that names them is done.
struct Cell {
  int64_t at, n;
  int32_t tasks;
};

struct ProgramImage {
  const ir::Program* program = nullptr;
  int64_t grain = 1;        // bytes
  int64_t grains = 0;       // of the arena
  std::vector<Task> tasks;  // issue order
  std::vector<Slice> slices;
  std::vector<std::vector<int32_t>> queues;  // by stream, FIFO
  std::vector<Cell> cells;
  std::vector<int32_t> task_cells;

  Slice Resolve(const ir::Layout& layout, ir::ViewId view, int32_t micro_batch) const;
  std::string Describe(const Task& task) const;  // "B0[3] op 17 matmul -> l3.dqkv"
};

ProgramImage MakeImage(const ir::Plan& plan, const ir::Program& program, const ir::Layout& layout);

}  // namespace orrery::interpreter
