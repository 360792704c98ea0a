// SPDX-License-Identifier: Apache-2.0
// Prices a layer on each GPU of a mixed cluster.
#include "model/twin/other_nodes.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/base/check.h"
#include "model/hardware/host_order.h"
#include "model/memory/memory.h"
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
      // A GPU that cannot run the job is no matter until one of its nodes is used: CheckNodesCompute().
      std::string hint;
      const FlopsPerSecond peak = profiles.gpu.WhyNo(work.fp8, &hint).empty()
                                      ? profiles.gpu.Peak(work.precision)
                                      : FlopsPerSecond(0);
      if (peak.value > 0) factor *= LayerKernels(*ops, model, work, there, profiles) / kernels;
      SetNodes(other, MemoryOf(own.gpu), MemoryOf(profiles.gpu), &topology->gpu_memory);
      SetNodes(other, own.gpu.Peak(work.precision), peak, &topology->gpu_peak);
    }
    const auto end = static_cast<std::size_t>(other.last) + 1;
    if (topology->slowdown.size() < end) topology->slowdown.resize(end, 1.0);
    std::fill(topology->slowdown.begin() + other.first, topology->slowdown.begin() + other.last + 1,
              factor);
  }
}

int64_t NodesThatCompute(const TopologySpec& topology) {
  const auto none = std::ranges::find_if(
      topology.gpu_peak, [](const FlopsPerSecond& peak) { return peak.value <= 0; });
  return none == topology.gpu_peak.end() ? topology.max_nodes
                                         : static_cast<int64_t>(none - topology.gpu_peak.begin());
}

void CheckNodesCompute(const TopologySpec& topology, int64_t nodes) {
  const int64_t able = NodesThatCompute(topology);
  if (nodes <= able) return;
  for (const OtherNodes& other : topology.other_nodes) {
    if (able < other.first || able > other.last) continue;
    const int64_t last = std::min(other.last, nodes - 1);
    throw InputError(
        fmt::format(
            "{} of {}{} does not compute in the job's precision", other.gpu,
            able == last ? fmt::format("node {}", able) : fmt::format("nodes {} to {}", able, last),
            HostsText(topology.fabric, able, last)),
        fmt::format("another --precision that all GPUs of the job compute in, such as fp16, and "
                    "--fp8 only where all have it{}",
                    able > 0 ? fmt::format("; or --nodes {} at most", able) : std::string()));
  }
}

}  // namespace orrery
