// SPDX-License-Identifier: Apache-2.0
// What a plan asks of a GPU's memory: exact from the plan's layout, per class, with the moment of the peak.
//
//   total = allocated x (1 + memory_fragmentation) + context
//
// allocated: what the framework has allocated at the peak, by software_memory.h; context: the chip's driver,
// the software's buffers and its communicators.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "model/base/quantity.h"
#include "model/framework/profile.h"
#include "model/hardware/spec.h"
#include "model/memory/software_memory.h"
#include "model/plan/ir/plan.h"

namespace orrery {

enum class MemoryClass {
  kWeights,
  kGradients,
  kMaster,
  kOptimizer,
  kActivations,
  kGathered,
  kTransientGradients,
  kScalars,
};
inline constexpr int kMemoryClasses = static_cast<int>(MemoryClass::kScalars) + 1;
const char* MemoryClassName(MemoryClass cls);  // "weights", "gradients", ...

// One tensor that is alive at the peak; the copies of several micro-batches count together.
struct LiveTensor {
  std::string name;  // as in the plan: "l3.attn.probs"
  MemoryClass cls = MemoryClass::kActivations;
  Bytes bytes;     // all copies
  int copies = 1;  // micro-batches that hold one
};

// The op at which the most bytes are alive, in words and in numbers.
struct PeakMoment {
  int stage = 0;
  std::string block;  // "B0"
  int micro_batch = 0;
  std::string op;            // trace name of the op: "attn_bwd"
  int layer = -1;            // -1: not in a layer
  std::string phase;         // "backward", "recomputation", "optimizer", ...
  std::string asked_tensor;  // largest tensor that this op writes for the first time; may be empty
  Bytes asked;
  std::string words;  // "backward of layer 3, micro-batch 0"
};

struct StageMemory {
  int stage = 0;
  Bytes total, capacity;                       // as of MemoryReport, on the GPUs of this stage
  Bytes arena;                                 // static layout
  Bytes host;                                  // of a rank, in memory of the host
  StagePeak need;                              // what the software allocates
  std::array<Bytes, kMemoryClasses> by_class;  // of need.live
  PeakMoment moment;                           // of the peak
  std::vector<LiveTensor> largest;             // up to ten, largest first

  Bytes allocated() const { return need.allocated(); }
};

struct MemoryReport {
  std::vector<StageMemory> stages;
  int fullest = 0;      // stage that allocates most; on different GPUs: that fills its GPU most
  Bytes arena, live;    // of the fullest stage; live: at its peak
  Bytes workspaces;     // of libraries, from the allocator
  Bytes context;        // the framework's own: context, communication buffers
  Bytes fragmentation;  // the allocator's own share
  Bytes total;          // allocated + workspaces + context + fragmentation
  Bytes capacity;       // of the GPU of the fullest stage: its usable bytes
  bool mixed = false;   // stages are on GPUs of different capacity
  Bytes
      host_node;  // on the host, ranks of one node together, were all of them of the stage that keeps most
  Bytes host_capacity;  // of a node's host; 0: not known
  bool fits = false;
  bool nearly_full = false;  // fits, but so closely that the prediction is not reliable
  std::string summary;       // one sentence for the user
  std::string not_modelled;  // of the GPU's memory, in words; may be empty

  const StageMemory& peak() const { return stages[fullest]; }
};

// What a software on a GPU makes of allocated bytes.
struct MemoryLimits {
  Bytes capacity;
  Bytes context;             // with the software's buffers, without communicators
  Bytes workspaces;          // of libraries, from the allocator
  double fragmentation = 0;  // of what is allocated
  Bytes communicator;        // each
  Allocation allocation;
  double nearly_full =
      1;  // share of the capacity above which software retries, slows down or fails
  std::string not_modelled;  // GpuProfile::memory_note
  Bytes host_memory;         // of a node; 0: not known
  int ranks_per_node = 1;    // that share it
  // Capacity and context by stage, where they differ; empty: the above.
  std::vector<GpuMemory> of_stages;

  Bytes Context(int communicators) const {
    return context + communicator * static_cast<double>(communicators);
  }
  Bytes Total(Bytes allocated, int communicators) const {
    return allocated * (1.0 + fragmentation) + workspaces + Context(communicators);
  }
  // Above it a plan is nearly full.
  Bytes WithMargin() const { return capacity * nearly_full; }
  bool Fits(Bytes allocated, int communicators) const {
    return Total(allocated, communicators) <= capacity;
  }
  // What holds for one stage.
  MemoryLimits Of(int stage) const;
  // Share of its GPU that the fullest stage fills; `allocated`: bytes by stage.
  double Filled(const std::vector<double>& allocated, int communicators) const;
};
// Of a GPU before a framework runs on it, and with what the framework allocates besides tensors.
GpuMemory MemoryOf(const GpuProfile& gpu);
GpuMemory WithBuffers(GpuMemory memory, const FrameworkProfile& framework);
MemoryLimits LimitsOf(const GpuProfile& gpu, const FrameworkProfile& framework);

// Share of the memory above which a plan is nearly full: published runs did not fill more, or what grows needs the rest.
inline double FullShare(const GpuProfile& gpu, const FrameworkProfile& framework) {
  return std::min(framework.memory_nearly_full, 1 - gpu.memory_growth / gpu.Capacity());
}

// Every stage in full; `communicators`: Communicators(strategy).
MemoryReport ReportMemory(const ir::Plan& plan, const MemoryLimits& limits, int communicators);

}  // namespace orrery
