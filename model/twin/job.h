// SPDX-License-Identifier: Apache-2.0
// A training job on a cluster: what every prediction starts from, each fact once.
//
// The search, `plan predict`, `plan simulate`, `plan validate`, the fits and the benchmarks make one of these and hand it to
// StepPredictor (many layouts, closed form), Predict() (one layout in full) or SimulateLayout() (a plan).
#pragma once

#include <optional>
#include <string>

#include "model/arch/model_spec.h"
#include "model/arch/workload.h"
#include "model/hardware/summary.h"
#include "model/price/setting.h"

namespace orrery {

// Profiles that a prediction rests on.
struct Profiles {
  GpuProfile gpu;
  FabricProfile fabric;
  FrameworkProfile framework;
};
// Those that a framework has on a cluster: measured there, else for its kind. `flash`: attention is fused. Throws
// InputError: unknown GPU, fabric or framework, or a topology that does not name its GPU.
Profiles LoadProfiles(const TopologySpec& topology, const std::string& framework, bool flash);

// Steps that take more effort to simulate, see SimulationEffort(), keep the closed form: 0.7 s of a core.
inline constexpr double kMostEffort = 5e6;

// Topology and profiles must outlive it.
struct Job {
  Job() = default;
  // Without a topology.
  Job(const ModelSpec& its_model, const Workload& its_work, const CostSetting& prices)
      : model(its_model),
        work(its_work),
        cluster(*prices.cluster),
        gpu(prices.gpu),
        fabric(prices.fabric),
        framework(prices.framework) {}

  ModelSpec model;
  Workload work;
  const TopologySpec* topology = nullptr;  // wanted by the simulator alone, which builds its links
  ClusterSummary cluster;                  // nodes and GPUs in use
  const GpuProfile* gpu = nullptr;
  const FabricProfile* fabric = nullptr;
  const FrameworkProfile* framework = nullptr;
  std::optional<Bytes> memory_limit;         // per GPU; empty: the GPU's
  std::optional<DollarsPerHour> node_price;  // empty: no price is known
  double most_effort = kMostEffort;          // that a simulated step may take

  CostSetting prices() const { return {gpu, fabric, framework, &cluster}; }
  // Dollars that all nodes cost per second.
  std::optional<double> price() const {
    if (!node_price) return std::nullopt;
    return node_price->value / 3600.0 * static_cast<double>(cluster.nodes);
  }
};

// `gpus_per_node` 0: all. Throws InputError: the topology does not have that many, or CheckNodesCompute().
Job MakeJob(const ModelSpec& model, const Workload& work, const TopologySpec& topology,
            int64_t nodes, int gpus_per_node, const Profiles& profiles);

}  // namespace orrery
