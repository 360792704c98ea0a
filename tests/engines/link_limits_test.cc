// SPDX-License-Identifier: Apache-2.0
// No message carries more than the links of its route.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "model/arch/catalogue.h"
#include "model/engine/network/wires.h"
#include "model/hardware/catalog.h"
#include "model/twin/predict.h"

namespace orrery {
namespace {

// Leaves of two nodes, with a twentieth of the rate of their NICs out of them.
TopologySpec Oversubscribed() {
  const std::string text = R"(
name: oversubscribed
description: test
source: test
evidence: C
gpu: a100-sxm4-80gb
fabric_profile: infiniband
nodes: 8
max_nodes: 8
node:
  gpus: 1
  scale_up: {kind: none}
  nics: {count: 1, rate: 100Gbps}
  pcie: {rate: 31.5GB/s, tree: [{host: cpu0, devices: [gpu0, nic0]}]}
fabric: {kind: fat-tree, levels: 2, leaf_ports: 2, oversubscription: 20}
)";
  Diagnostics diagnostics;
  TopologySpec spec =
      ReadTopology(std::make_shared<const Source>(Source{"test.yaml", text}), &diagnostics);
  diagnostics.ThrowIfAny();
  return spec;
}

// Prices of trees and of transfers know nothing of the uplinks of a leaf.
TEST(LinkLimits, NoMessageCarriesMoreThanItsLinks) {
  const TopologySpec topology = Oversubscribed();
  const Profiles profiles = LoadProfiles(topology, "orrery", true);
  ModelSpec model = LoadModel("gpt2-medium").spec;
  model.layers = 8;
  Workload work;
  work.seq_len = 512;
  work.global_batch = 32;
  work.precision = Precision::kBf16;
  const Job job = MakeJob(model, work, topology, topology.nodes, 0, profiles);
  const Cluster cluster = ClusterOf(job);
  for (const int stages : {1, 2, 8}) {
    Strategy layout;
    layout.pp = stages;
    layout.dp = 8 / stages;
    const ir::Plan plan = LowerLegal(job, layout);
    sim::SimulationOptions options;
    options.keep_links = true;
    sim::Simulation simulation(plan, cluster, job.prices(), options);
    const double step = simulation.Run();
    double fullest = 0;
    for (const sim::LinkTraffic& link : sim::TrafficOnLinks(
             plan, simulation.tasks(), simulation.meetings(), cluster.links.size())) {
      const double rate = cluster.links[static_cast<std::size_t>(link.link)].capacity.value;
      EXPECT_LE(link.bytes / rate, step * (1 + 1e-9))
          << stages << " stages, " << net::LinkName(cluster, link.link);
      fullest = std::max(fullest, link.bytes / rate / step);
    }
    EXPECT_GT(fullest, 0.1) << stages;
  }
}

}  // namespace
}  // namespace orrery
