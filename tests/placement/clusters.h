// SPDX-License-Identifier: Apache-2.0
// Small clusters and jobs for tests of placements.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <memory>
#include <string>

#include "model/arch/catalogue.h"
#include "model/hardware/catalog.h"
#include "model/twin/placement.h"

namespace orrery::testing {

// `fabric`: the map behind the key. Nodes of `gpus` GPUs and one NIC each.
inline TopologySpec SmallCluster(int nodes, int gpus, const std::string& fabric,
                                 const std::string& others = "[]") {
  std::string devices;
  for (int gpu = 0; gpu < gpus; ++gpu) devices += fmt::format("gpu{}, ", gpu);
  const std::string text = fmt::format(
      "name: small\ndescription: test\nsource: test\nevidence: C\ngpu: a100-sxm4-80gb\n"
      "fabric_profile: infiniband\nnodes: {0}\nmax_nodes: {0}\n{4}"
      "node:\n  gpus: {1}\n  scale_up: {2}\n"
      "  nics: {{count: 1, rate: 100Gbps}}\n"
      "  pcie: {{rate: 31.5GB/s, tree: [{{host: cpu0, devices: [{3}nic0]}}]}}\n"
      "fabric: {{{5}}}\n",
      nodes, gpus,
      gpus == 1 ? "{kind: none}"
                : "{kind: nvswitch, link: NVLink3, links_per_gpu: 12, per_link: 25GB/s}",
      devices, others == "[]" ? "" : "other_nodes: " + others + "\n", fabric);
  Diagnostics diagnostics;
  TopologySpec spec =
      ReadTopology(std::make_shared<const Source>(Source{"small.yaml", text}), &diagnostics);
  diagnostics.ThrowIfAny();
  return spec;
}

// A small GPT on such a cluster; it keeps what the job refers to.
struct SmallJob {
  SmallJob(TopologySpec cluster, int64_t layers, int64_t global_batch,
           const std::function<void(ModelSpec*)>& change = {})
      : topology(std::move(cluster)), profiles(LoadProfiles(topology, "orrery", true)), job([&] {
          ModelSpec model = LoadModel("gpt2-medium").spec;
          model.layers = layers;
          if (change) change(&model);
          Workload work;
          work.seq_len = 512;
          work.global_batch = global_batch;
          work.precision = Precision::kBf16;
          return MakeJob(model, work, topology, topology.nodes, 0, profiles);
        }()) {}
  SmallJob(const SmallJob&) = delete;

  const TopologySpec topology;
  const Profiles profiles;
  const Job job;
};

inline Strategy Layout(int tp, int pp, int dp, int micro_batch = 1) {
  Strategy layout;
  layout.tp = tp, layout.pp = pp, layout.dp = dp, layout.micro_batch = micro_batch;
  return layout;
}

inline Strategy Placed(Strategy layout, bool stages_inside, std::vector<int32_t> nodes) {
  layout.placement = std::make_shared<const Placement>(Placement{stages_inside, std::move(nodes)});
  return layout;
}

}  // namespace orrery::testing
