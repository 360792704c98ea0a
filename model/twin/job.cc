// SPDX-License-Identifier: Apache-2.0
// Loads the profiles of a job and puts it together.
#include "model/twin/job.h"

#include "model/base/text.h"
#include "model/framework/presets.h"
#include "model/hardware/measured_collectives.h"
#include "model/twin/other_nodes.h"

namespace orrery {

Profiles LoadProfiles(const TopologySpec& topology, const std::string& framework, bool flash) {
  const FrameworkPreset& preset = FindFramework(framework);
  if (topology.gpu == kUnknownGpu) {
    throw InputError("topology '" + topology.name + "' does not name its GPU",
                     "name one: " + SuggestName("", ProfileIds("gpu")));
  }
  const auto [name, facts] = SplitReference(preset.name);
  const auto here = topology.framework_profiles.find(name);
  Profiles profiles{LoadGpuProfile(topology.gpu),
                    LoadFabricProfile(topology.fabric_profile, topology.collectives, topology.gpu),
                    here != topology.framework_profiles.end()
                        ? LoadFrameworkProfile(WithFacts(here->second, facts))
                        : SelectFrameworkProfile(preset.name, topology.name, flash)};
  // Whoever chose it: a chip that none of the framework's fused kernels runs on materialises the scores, too.
  if (here == topology.framework_profiles.end() && flash &&
      !FusesAttention(profiles.framework, profiles.gpu))
    profiles.framework = SelectFrameworkProfile(preset.name, topology.name, false);
  return profiles;
}

Job MakeJob(const ModelSpec& model, const Workload& work, const TopologySpec& topology,
            int64_t nodes, int gpus_per_node, const Profiles& profiles) {
  CheckNodesCompute(topology, nodes);
  Job job;
  job.model = model;
  job.work = work;
  job.topology = &topology;
  job.cluster = Summarise(topology, nodes, gpus_per_node);
  job.gpu = &profiles.gpu;
  job.fabric = &profiles.fabric;
  job.framework = &profiles.framework;
  job.node_price = topology.node_price;
  return job;
}

}  // namespace orrery
