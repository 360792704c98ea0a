// SPDX-License-Identifier: Apache-2.0
// Finds the topology of the catalogue that is like what was observed.
#include <algorithm>

#include "model/arch/data_root.h"
#include "model/discover/topology_text.h"
#include "model/hardware/catalog.h"

namespace orrery::discover {
namespace {

// "p4d.24xlarge" -> aws-p4d, "g5.48xlarge" -> aws-g5-48xl, "p6-b200.48xlarge" -> aws-p6-b200.
std::string NameOfMachine(const std::string& product, const std::vector<std::string>& names) {
  const std::size_t dot = product.find('.');
  if (dot == std::string::npos || !product.ends_with("xlarge")) return "";
  const std::string family = "aws-" + product.substr(0, dot);
  const std::string size =
      product.substr(dot + 1, product.size() - dot - 1 - 5);  // "24x" of "24xlarge"
  for (const std::string& name : {family, family + "-" + size + "l"}) {
    if (std::binary_search(names.begin(), names.end(), name)) return name;
  }
  return "";
}

// Azure's files are named after a series: ndv4-topo.xml is for machines of A100 40 and 80 GB,
// ndv5-topo.xml for those of H100 and H200.
struct Series {
  const char* name;
  std::vector<std::string> topologies;
};
const std::vector<Series>& AzureSeries() {
  static const std::vector<Series> series = {
      {"ndv2", {"azure-nd-v2"}},
      {"ndv4", {"azure-nd-a100-40", "azure-nd-a100-80"}},
      {"ndv5", {"azure-nd-h100", "azure-nd-h200"}},
  };
  return series;
}

// Read once: a topology is some milliseconds.
const std::vector<TopologySpec>& Catalogue() {
  static const std::vector<TopologySpec> specs =
      AllReadable(TopologyNames(), [](const std::string& name) { return LoadTopology(name); });
  return specs;
}

int Likeness(const Observed& seen, const std::string& gpu, const TopologySpec& spec) {
  if (gpu.empty() || spec.gpu != gpu) return 0;
  if (seen.gpus && seen.gpus->value != spec.node.gpus) return 0;
  int points = 1;
  if (seen.tree) {
    const auto nics = NicsOf(seen.tree->value).size();
    if (nics > 0 && nics != spec.node.nics.size()) return 0;
    if (nics > 0) points += 4;
  }
  if (seen.nic_rate) {
    if (seen.nic_rate->value.value != spec.node.nic_rate.value) return 0;
    points += 2;
  }
  if (seen.network) points += spec.fabric_profile.starts_with(seen.network->value) ? 2 : -1;
  if (spec.evidence == 'A') ++points;
  return points;
}

}  // namespace

std::vector<std::string> NamedTopologies(const Observed& seen) {
  if (!seen.machine) return {};
  for (const Series& one : AzureSeries()) {
    if (seen.machine->value == one.name) return one.topologies;
  }
  const std::string name = NameOfMachine(seen.machine->value, TopologyNames());
  if (name.empty()) return {};
  return {name};
}

std::optional<TopologySpec> NearestTopology(const Observed& seen, const std::string& gpu) {
  const std::vector<std::string> named = NamedTopologies(seen);
  for (const std::string& name : named) {
    TopologySpec spec = LoadTopology(name);
    if (spec.gpu == gpu) return spec;
  }
  if (!named.empty()) return LoadTopology(named.front());
  std::optional<TopologySpec> best;
  int most = 0;
  for (const TopologySpec& spec : Catalogue()) {
    const int points = Likeness(seen, gpu, spec);
    if (points <= most) continue;
    most = points;
    best = spec;
  }
  return best;
}

std::optional<TopologySpec> SameNode(const std::string& gpu, int64_t gpus) {
  std::optional<TopologySpec> best;
  for (const TopologySpec& spec : Catalogue()) {
    if (spec.gpu != gpu || spec.node.gpus != gpus) continue;
    if (!best || spec.evidence < best->evidence) best = spec;
  }
  return best;
}

}  // namespace orrery::discover
