// SPDX-License-Identifier: Apache-2.0
// A cluster as a graph of devices and directed links, with a route for every pair of ranks.
//
// Routes are not stored per pair: paths inside the node template are found once, paths through the
// fabric follow the fabric's rule. A route look-up is a few copies of link ids. Vertex and link ids
// count from 0 and depend only on the topology file and the counts.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/base/quantity.h"
#include "model/hardware/catalog.h"
#include "model/hardware/spec.h"
#include "model/hardware/summary.h"

namespace orrery {

using VertexId = int32_t;
using LinkId = int32_t;

enum class DeviceKind {
  // In a node.
  kGpu,
  kNvSwitch,
  kPcieSwitch,
  kHost,
  kNic,
  // In the fabric.
  kSwitch,
  kLeaf,
  kSpine,
  kCore,
  kRouter,
};

struct Device {
  DeviceKind kind = DeviceKind::kGpu;
  int32_t node = -1;  // -1: in the fabric
  int32_t index = 0;  // among its kind, in the node or in the fabric
};

// What a link is made of; profiles give a latency to each class.
enum class LinkKind {
  kScaleUp,  // NVLink, or the accelerator's own mesh
  kPcie,
  kHostLink,  // between the hosts of a node
  kNicPort,   // NIC to its first switch, and back
  kFabric,    // switch to switch
};
inline constexpr std::size_t kLinkKinds = 5;

struct Link {  // one direction
  VertexId from = 0;
  VertexId to = 0;
  BytesPerSecond capacity;
  LinkKind kind = LinkKind::kScaleUp;
  double left = 1;  // share of its own rate that `capacity` is: less where it is degraded
};

class NodeTemplate;   // node_template.h
class FabricRouting;  // fabric.h
struct NicFaults;     // faults.h

struct Cluster {
  ClusterSummary summary;
  TopologySpec spec;
  int64_t nodes = 0;
  int gpus_per_node = 0;        // in use: rank r is GPU r % gpus_per_node of NodeOf(r)
  std::vector<Device> devices;  // by VertexId
  std::vector<Link> links;      // by LinkId
  LinkId domain_links = 0;  // of the first GPU into the switch of its domain, where nodes share one
  std::shared_ptr<const NodeTemplate> node_template;
  std::shared_ptr<const FabricRouting> fabric;  // null: one node without NICs
  std::shared_ptr<const NicFaults> faults;      // null: every NIC works

  std::vector<int32_t> order;  // nodes in the order of ranks; empty: as they are numbered

  int64_t ranks() const { return nodes * gpus_per_node; }
  int64_t NodeOf(int64_t rank) const {
    const int64_t place = rank / gpus_per_node;
    return order.empty() ? place : order[static_cast<std::size_t>(place)];
  }
  // Ranks of one scale-up domain reach each other without a NIC. A node, but where several share a switch.
  int64_t DomainOf(int64_t rank) const { return NodeOf(rank) / summary.domain_nodes; }
  VertexId GpuOf(int64_t rank) const;

  // Directed links from one rank's GPU to another's, in order; empty when they are the same rank.
  // Inside a node over scale-up links (several hops in a mesh) if they connect the two, else PCIe.
  // Between nodes of one domain through its switch; between others each GPU uses one of its nearest NICs. `channel` turns the choice among several
  // nearest NICs, and among equivalent paths of the fabric (spine, parallel link, direction).
  // Failed NICs are left aside; throws NoRoute (faults.h) when a node has lost all of them.
  std::vector<LinkId> Route(int64_t from, int64_t to, int channel = 0) const;
  void AppendRoute(int64_t from, int64_t to, int channel, std::vector<LinkId>* route) const;

  // The smallest capacity on a route that is not empty.
  BytesPerSecond Bottleneck(std::span<const LinkId> route) const;
  std::string DeviceName(VertexId vertex) const;  // "n3.gpu0", "leaf2"
  std::string LinkName(LinkId link) const;        // "n0.nic1 -> leaf2"
};

// `gpus_per_node` 0: all. Counts out of range are an InputError, and so are more than a million
// NICs or GPUs: the closed forms of summary.h have no such limit.
Cluster BuildCluster(const TopologySpec& spec, int64_t nodes, int gpus_per_node = 0);

}  // namespace orrery
