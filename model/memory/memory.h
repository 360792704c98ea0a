// SPDX-License-Identifier: Apache-2.0
// What a plan asks of a GPU's memory: exact from the plan's layout, per class, with the moment of the peak.
//
//   total = arena x (1 + memory_fragmentation) + context
//
// arena: the static layout of model/ir, to the byte; context: what the chip's driver, the software's buffers and one
// communicator take. What programs print for a run of theirs: software_memory.h.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/cost/profile.h"
#include "model/ir/plan.h"
#include "model/units/quantity.h"

namespace orrery {

enum class MemoryClass {
  kWeights, kGradients, kMaster, kOptimizer, kActivations, kGathered, kTransientGradients, kScalars,
};
inline constexpr int kMemoryClasses = static_cast<int>(MemoryClass::kScalars) + 1;
const char* MemoryClassName(MemoryClass cls);  // "weights", "gradients", ...

// One tensor that is alive at the peak; the copies of several micro-batches count together.
struct LiveTensor {
  std::string name;        // as in the plan: "l3.attn.probs"
  MemoryClass cls = MemoryClass::kActivations;
  Bytes bytes;             // all copies
  int copies = 1;          // micro-batches that hold one
};

// The op at which the most bytes are alive, in words and in numbers.
struct PeakMoment {
  int stage = 0;
  std::string block;       // "B0"
  int micro_batch = 0;
  std::string op;          // trace name of the op: "attn_bwd"
  int layer = -1;          // -1: not in a layer
  std::string phase;       // "backward", "recomputation", "optimizer", ...
  std::string asked_tensor;  // largest tensor that this op writes for the first time; may be empty
  Bytes asked;
  std::string words;       // "backward of layer 3, micro-batch 0"
};

struct StageMemory {
  int stage = 0;
  Bytes arena;             // static allocation
  Bytes live;              // peak of live bytes, <= arena
  std::array<Bytes, kMemoryClasses> by_class;  // of the live peak
  Bytes slack;             // arena - live
  PeakMoment moment;
  std::vector<LiveTensor> largest;  // up to ten, largest first
};

struct MemoryReport {
  std::vector<StageMemory> stages;
  int fullest = 0;         // stage with the largest arena
  Bytes arena, live;       // of the fullest stage
  Bytes context;           // the framework's own: context, workspaces, communication buffers
  Bytes fragmentation;     // the allocator's own share
  Bytes total;             // arena + context + fragmentation
  Bytes capacity;          // of the GPU
  bool fits = false;
  std::string verdict;     // one sentence for the user

  const StageMemory& peak() const { return stages[fullest]; }
};

struct MemoryLimits {
  Bytes capacity;
  Bytes context;
  double fragmentation = 0;

  Bytes Total(Bytes arena) const { return arena * (1.0 + fragmentation) + context; }
  bool Fits(Bytes arena) const { return Total(arena) <= capacity; }
};
MemoryLimits LimitsOf(const GpuProfile& gpu, const StackProfile& stack);

// Every stage in full.
MemoryReport ReportMemory(const ir::Plan& plan, const MemoryLimits& limits);
// The largest arena over the stages alone (cheaper).
Bytes ExactArena(const ir::Plan& plan);

}  // namespace orrery
