// SPDX-License-Identifier: Apache-2.0
// What a plan asks of a GPU's memory: exact from the plan's layout, per class, with the moment of the peak.
//
//   total = (max(arena, live at the loss + copies of the logits) + gradient copies) x (1 + memory_fragmentation) + context
//
// arena: the static layout of model/ir, to the byte; copies: what the software keeps beside the plan's tensors
// (software_memory.h has the terms); context: the chip's driver, the software's buffers and its communicators. A
// software that allocates tensor by tensor may get by with less than the arena, by its gaps: what programs print for
// a run of theirs is in software_memory.h.
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
  Bytes loss_copies;       // by how much the copies that the loss makes go beyond the arena
  Bytes gradient_copies;   // gradients in half precision that the software keeps beside those in fp32
  PeakMoment moment;
  std::vector<LiveTensor> largest;  // up to ten, largest first

  Bytes allocated() const { return arena + loss_copies + gradient_copies; }
};

struct MemoryReport {
  std::vector<StageMemory> stages;
  int fullest = 0;         // stage that allocates most
  Bytes arena, live;       // of the fullest stage
  Bytes context;           // the framework's own: context, workspaces, communication buffers
  Bytes fragmentation;     // the allocator's own share
  Bytes total;             // allocated + context + fragmentation
  Bytes capacity;          // of the GPU
  bool fits = false;
  bool nearly_full = false;  // fits, but so closely that the verdict is not reliable
  std::string verdict;     // one sentence for the user

  const StageMemory& peak() const { return stages[fullest]; }
};

// What a software on a GPU makes of allocated bytes.
struct MemoryLimits {
  Bytes capacity;
  Bytes context;             // with the software's buffers, without communicators
  double fragmentation = 0;  // of what is allocated
  Bytes communicator;        // each
  double loss = 0;           // bytes per logit, see software_memory.h
  double gradient_copy = 0;  // bytes per parameter in half precision whose gradients are in fp32
  double nearly_full = 1;    // share of the capacity above which software retries, slows down or fails

  Bytes Context(int communicators) const { return context + communicator * static_cast<double>(communicators); }
  Bytes Total(Bytes allocated, int communicators) const {
    return allocated * (1.0 + fragmentation) + Context(communicators);
  }
  bool Fits(Bytes allocated, int communicators) const { return Total(allocated, communicators) <= capacity; }
};
MemoryLimits LimitsOf(const GpuProfile& gpu, const StackProfile& stack);

// Every stage in full; `communicators`: Communicators(strategy) of software_memory.h.
MemoryReport ReportMemory(const ir::Plan& plan, const MemoryLimits& limits, int communicators);
// The largest arena over the stages alone (cheaper).
Bytes ExactArena(const ir::Plan& plan);

}  // namespace orrery
