// SPDX-License-Identifier: Apache-2.0
// Which GPUs the stages of a layout are on, where those of a cluster differ.
#pragma once

#include <vector>

#include "model/memory/bound.h"
#include "model/memory/memory.h"
#include "model/twin/job.h"

namespace orrery {

// Slow nodes count as different.
struct StageGpus {
  // PlacedTraffic::SlowReplicas: of replicas that do not wait for each other within the passes, and of those that do.
  // Empty: all stages compute alike.
  std::vector<std::vector<double>> apart, together;
  std::vector<GpuMemory> memory;  // of each stage's GPUs the least; empty: all have as much

  bool differ() const { return !together.empty() || !memory.empty(); }
  const std::vector<std::vector<double>>& SlowdownsOf(bool stages_wait) const {
    return stages_wait ? together : apart;
  }
  // Of kernels by stage, the most of all replicas: what the layers of a stage wait for.
  std::vector<double> Slowest() const {
    return together.empty() ? std::vector<double>() : together[0];
  }
};
// Reads degrees and placement of the layout. Throws the InputError of CheckNodeOrder().
StageGpus StageGpusOf(const Job& job, const Strategy& layout);

// Layers of each stage.
std::vector<int> LayersByStage(const ModelSpec& model, const Strategy& layout);

// Of the job's GPU alone.
MemoryLimits LimitsOf(const Job& job);
// Of each stage's. A memory limit of the job holds on every GPU, and no GPU has more than its own.
MemoryLimits LimitsOf(const Job& job, const Strategy& layout);
MemoryLimits LimitsOf(const Job& job, const StageGpus& gpus);

// A lower bound of what a layout needs on the GPUs of its fullest stage, of how much.
struct BoundOfGpu {
  Bytes total, capacity;
};
BoundOfGpu MemoryBoundOf(const Job& job, const Strategy& layout, MemoryModel* memory);

}  // namespace orrery
