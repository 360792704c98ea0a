// SPDX-License-Identifier: Apache-2.0
// What closed forms need to know of a cluster, without building its graph.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/base/quantity.h"
#include "model/hardware/spec.h"

namespace orrery {

struct ClusterSummary {
  std::string name;
  std::string gpu;  // kUnknownGpu: refuse to plan until the user names one
  std::string fabric_profile;
  std::string collectives;  // as TopologySpec
  int64_t nodes = 0;
  int gpus_per_node = 0;  // in use
  int domain_nodes = 1;   // nodes in use that share one scale-up domain
  IntraLink intra = IntraLink::kNone;
  BytesPerSecond scaleup_per_gpu;  // per direction, all links of a GPU; PCIe rate for kPcie
  BytesPerSecond per_link;         // one scale-up link
  BytesPerSecond pcie_rate;
  int nics_per_node = 0;    // nearest to a GPU in use
  int switch_gpus = 1;      // most GPUs in use that share a PCIe switch, and so its NICs
  BytesPerSecond nic_rate;  // per direction per NIC: the slowest, not above what PCIe feeds it with
  Seconds fabric_latency;   // beyond the hop of the fabric profile
  double oversubscription = 1.0;  // leaf rate from below over uplink rate; 1 = full bisection
  int64_t leaf_nodes = 0;         // up to this many nodes no uplink is needed (rails: same rail)
  bool rail_optimised = false;
  std::optional<DollarsPerHour> node_price;
  std::string price_source;
  std::vector<int> packed_rings, relayed_rings;
  std::shared_ptr<const NodeSpec> node;  // as the topology describes it
  bool network_reduces = false;
  bool assumed = false;  // the topology file is of evidence C
  int64_t cores = 0;     // that all ranks share; 0: each has its own

  int64_t ranks() const { return nodes * gpus_per_node; }
  // Ranks per core where they share cores, at least 1.
  double Crowding() const {
    return cores > 0 && ranks() > cores ? static_cast<double>(ranks()) / static_cast<double>(cores)
                                        : 1.0;
  }
  // What communication inside and between nodes goes by: GPUs of one scale-up domain reach each other without a NIC.
  int domain_gpus() const { return gpus_per_node * domain_nodes; }
  int domain_nics() const { return nics_per_node * domain_nodes; }
  int64_t domains() const { return nodes / domain_nodes; }
  BytesPerSecond node_rate() const { return nic_rate * nics_per_node; }
  // Edge-disjoint directed rings over GPUs 0..n-1 of one node on point-to-point links; 0 when there
  // is none, also for every other kind of link.
  int PackedRings(int n) const;
  // Where there is none: rings that pass through GPUs of the group between two others.
  int RelayedRings(int n) const;
};

// `gpus_per_node` 0: all. Out of range counts are an InputError that names the limit.
ClusterSummary Summarise(const TopologySpec& spec, int64_t nodes, int gpus_per_node = 0);

// Rate per direction over the worst cut of `nodes` nodes into two halves; 0 for one node.
BytesPerSecond Bisection(const TopologySpec& spec, int64_t nodes);

// Throws the InputError of Summarise and BuildCluster.
void CheckCounts(const TopologySpec& spec, int64_t nodes, int gpus_per_node);

}  // namespace orrery
