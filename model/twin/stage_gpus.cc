// SPDX-License-Identifier: Apache-2.0
// Looks up the nodes of each stage.
#include "model/twin/stage_gpus.h"

#include <algorithm>
#include <optional>

#include "model/plan/lower/balance.h"
#include "model/plan/lower/schedules.h"
#include "model/twin/placed_traffic.h"
#include "model/twin/step_predictor.h"

namespace orrery {
namespace {

bool AllAlike(const std::vector<GpuMemory>& memory) {
  return std::ranges::adjacent_find(memory, std::not_equal_to()) == memory.end();
}

double Usable(const GpuMemory& memory) { return (memory.capacity - memory.context).value; }

std::vector<GpuMemory> LeastOfStages(const Job& job, const Strategy& layout,
                                     const PlacedTraffic& traffic,
                                     const std::vector<int32_t>& order) {
  const std::vector<GpuMemory>& of_nodes = job.topology->gpu_memory;
  const GpuMemory own = MemoryOf(*job.gpu);
  std::vector<std::optional<GpuMemory>> least(static_cast<std::size_t>(layout.pp));
  for (int place = 0; place < traffic.places(); ++place) {
    const auto node = static_cast<std::size_t>(order[static_cast<std::size_t>(place)]);
    const GpuMemory& here = node < of_nodes.size() ? of_nodes[node] : own;
    for (const PlacedTraffic::Cell& cell : traffic.cells(place)) {
      std::optional<GpuMemory>& of_stage = least[static_cast<std::size_t>(cell.stage)];
      if (!of_stage || Usable(here) < Usable(*of_stage)) of_stage = here;
    }
  }
  std::vector<GpuMemory> memory;
  for (const auto& of_stage : least) memory.push_back(of_stage.value_or(own));
  return AllAlike(memory) && memory[0] == own ? std::vector<GpuMemory>() : memory;
}

}  // namespace

StageGpus StageGpusOf(const Job& job, const Strategy& layout) {
  StageGpus gpus;
  const std::vector<double> by_node = SlowdownOf(job);
  if (by_node.empty()) return gpus;
  const std::vector<int32_t> order = OrderOf(job, layout);
  const PlacedTraffic traffic(layout, job.cluster.gpus_per_node);
  const std::vector<double> slowdown = InOrder(by_node, order);
  gpus.apart = traffic.SlowReplicas(slowdown, false);
  gpus.together = traffic.SlowReplicas(slowdown, true);
  if (!job.topology->gpu_memory.empty()) gpus.memory = LeastOfStages(job, layout, traffic, order);
  return gpus;
}

std::vector<int> LayersByStage(const ModelSpec& model, const Strategy& layout) {
  std::vector<int> held(static_cast<std::size_t>(layout.pp), 0);
  const ChunkSplit split(model.layers + model.decoder_layers, layout);
  const bool in_a_v = layout.schedule == PipelineSchedule::kZeroBubbleV;
  for (int64_t chunk = 0; chunk < split.chunks(); ++chunk)
    held[static_cast<std::size_t>(ChunkAt(in_a_v, layout.pp, static_cast<int>(chunk)).stage)] +=
        static_cast<int>(split.Layers(chunk));
  return held;
}

MemoryLimits LimitsOf(const Job& job) {
  MemoryLimits limits = LimitsOf(*job.gpu, *job.framework);
  limits.ranks_per_node = std::max(1, job.cluster.gpus_per_node);
  if (job.cluster.node) limits.host_memory = job.cluster.node->host_memory;
  if (job.memory_limit) limits.capacity = *job.memory_limit;
  return limits;
}

MemoryLimits LimitsOf(const Job& job, const StageGpus& gpus) {
  MemoryLimits limits = LimitsOf(job);
  for (GpuMemory memory : gpus.memory) {
    if (job.memory_limit) memory.capacity = std::min(memory.capacity, *job.memory_limit);
    limits.of_stages.push_back(WithBuffers(memory, *job.framework));
  }
  if (!limits.of_stages.empty() && AllAlike(limits.of_stages)) return limits.Of(0);
  return limits;
}

MemoryLimits LimitsOf(const Job& job, const Strategy& layout) {
  if (job.topology == nullptr || job.topology->gpu_memory.empty()) return LimitsOf(job);
  return LimitsOf(job, StageGpusOf(job, layout));
}

BoundOfGpu MemoryBoundOf(const Job& job, const Strategy& layout, MemoryModel* memory) {
  const MemoryLimits limits = LimitsOf(job, layout);
  const int communicators = Communicators(layout);
  const int64_t micro_batches = MicroBatches(job.work, layout);
  if (limits.of_stages.empty())
    return {limits.Total(Bytes(memory->AllocatedBound(layout, micro_batches)), communicators),
            limits.capacity};
  BoundOfGpu fullest;
  const std::vector<double> allocated = memory->AllocatedByStage(layout, micro_batches);
  for (std::size_t stage = 0; stage < allocated.size(); ++stage) {
    const MemoryLimits own = limits.Of(static_cast<int>(stage));
    const Bytes total = own.Total(Bytes(allocated[stage]), communicators);
    if (stage == 0 || total / own.capacity > fullest.total / fullest.capacity)
      fullest = {total, own.capacity};
  }
  return fullest;
}

}  // namespace orrery
