// SPDX-License-Identifier: Apache-2.0
// Prices a layer on each GPU of a mixed cluster.
#include "model/twin/other_nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/check.h"
#include "model/price/layer_table.h"
#include "model/twin/job.h"

namespace orrery {
namespace {

double LayerKernels(const MicroBatchOps& ops, const ModelSpec& model, const Workload& work,
                    const TopologySpec& topology, const Profiles& profiles) {
  const ClusterSummary one = Summarise(topology, 1);
  const LayerTable table =
      CostLayers(ops, model, work, {&profiles.gpu, &profiles.fabric, &profiles.framework, &one});
  return table.layer.forward.device + table.layer.backward.device;
}

GpuMemory MemoryOf(const GpuProfile& gpu) { return {gpu.Capacity(), gpu.memory_context}; }

template <class T>
void SetNodes(const OtherNodes& other, const T& own, const T& there, std::vector<T>* of_nodes) {
  if (of_nodes->size() <= static_cast<std::size_t>(other.last))
    of_nodes->resize(static_cast<std::size_t>(other.last) + 1, own);
  std::fill(of_nodes->begin() + other.first, of_nodes->begin() + other.last + 1, there);
}

}  // namespace

void PriceOtherNodes(const ModelSpec& model, const Workload& work, bool flash_attention,
                     const std::string& framework, TopologySpec* topology) {
  const Profiles own = LoadProfiles(*topology, framework, flash_attention);
  topology->slowdown.clear();
  topology->gpu_memory.clear();
  topology->gpu_peak.clear();
  if (topology->other_nodes.empty()) return;
  Strategy one;
  one.flash_attention = flash_attention;
  const auto shapes = ShapeMicroBatch(model, work, KeyOf(model, one));
  const auto* ops = std::get_if<MicroBatchOps>(&shapes);
  ORRERY_CHECK(ops != nullptr, "a layer on one GPU is refused");
  const double kernels = LayerKernels(*ops, model, work, *topology, own);
  for (const OtherNodes& other : topology->other_nodes) {
    double factor = other.slower;
    if (!other.gpu.empty() && other.gpu != topology->gpu) {
      TopologySpec there = *topology;
      there.gpu = other.gpu;
      const Profiles profiles = LoadProfiles(there, framework, flash_attention);
      if (profiles.gpu.Peak(work.precision).value <= 0) {
        const std::string where = other.first == other.last
                                      ? fmt::format("node {}", other.first)
                                      : fmt::format("nodes {} to {}", other.first, other.last);
        throw InputError(
            fmt::format("{} of {} does not compute in the job's precision", other.gpu, where),
            "another --precision that all GPUs of the job compute in, such as fp16");
      }
      factor *= LayerKernels(*ops, model, work, there, profiles) / kernels;
      SetNodes(other, MemoryOf(own.gpu), MemoryOf(profiles.gpu), &topology->gpu_memory);
      SetNodes(other, own.gpu.Peak(work.precision), profiles.gpu.Peak(work.precision),
               &topology->gpu_peak);
    }
    const auto end = static_cast<std::size_t>(other.last) + 1;
    if (topology->slowdown.size() < end) topology->slowdown.resize(end, 1.0);
    std::fill(topology->slowdown.begin() + other.first, topology->slowdown.begin() + other.last + 1,
              factor);
  }
}

}  // namespace orrery
