// SPDX-License-Identifier: Apache-2.0
// What the topology tests share: small topologies from text, checks of routes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/hardware/cluster.h"

namespace orrery {

// A topology of nodes with `gpus` GPUs on NVSwitch and as many NICs of 100 Gbit/s (12.5 GB/s).
inline std::string TopologyText(int gpus, int max_nodes, const std::string& fabric) {
  std::string devices;
  for (int i = 0; i < gpus; ++i) {
    devices += (i ? ", gpu" : "gpu") + std::to_string(i) + ", nic" + std::to_string(i);
  }
  return "name: test\ndescription: d\nsource: s\nevidence: C\ngpu: h100-sxm5-80gb\nfabric_profile: "
         "infiniband\n"
         "nodes: 1\nmax_nodes: " +
         std::to_string(max_nodes) + "\nnode:\n  gpus: " + std::to_string(gpus) +
         "\n  scale_up: {kind: nvswitch, links_per_gpu: 18, per_link: 25GB/s}\n"
         "  nics: {count: " +
         std::to_string(gpus) +
         ", rate: 100Gbps}\n"
         "  pcie:\n    rate: 63GB/s\n    tree:\n      - {host: cpu0, devices: [" +
         devices +
         "]}\n"
         "fabric: {" +
         fabric + "}\n";
}

inline TopologySpec ParseTopology(const std::string& text) {
  Diagnostics diagnostics;
  TopologySpec spec =
      ReadTopology(std::make_shared<Source>(Source{"test.yaml", text}), &diagnostics);
  diagnostics.ThrowIfAny();
  return spec;
}

// Consecutive links meet, and the route joins the two GPUs with a positive rate.
inline void ExpectValidRoute(const Cluster& cluster, int64_t from, int64_t to, int channel) {
  const std::vector<LinkId> route = cluster.Route(from, to, channel);
  VertexId at = cluster.GpuOf(from);
  for (const LinkId id : route) {
    const Link& link = cluster.links.at(static_cast<std::size_t>(id));
    ASSERT_EQ(link.from, at) << from << " to " << to << " on channel " << channel;
    at = link.to;
  }
  ASSERT_EQ(at, cluster.GpuOf(to)) << from << " to " << to << " on channel " << channel;
  if (from != to) {
    ASSERT_GT(cluster.Bottleneck(route).value, 0);
  }
}

inline void ExpectAllRoutesValid(const Cluster& cluster, int channels) {
  for (int64_t from = 0; from < cluster.ranks(); ++from) {
    for (int64_t to = 0; to < cluster.ranks(); ++to) {
      for (int channel = 0; channel < channels; ++channel) {
        ASSERT_NO_FATAL_FAILURE(ExpectValidRoute(cluster, from, to, channel));
      }
    }
  }
}

struct Flow {
  int64_t from = 0;  // rank
  int64_t to = 0;    // rank
  Bytes bytes;
  int channel = 0;
};

// Flows that run together, all at the pace of the fullest link: max over links of bytes / capacity. No
// latency. 0 without flows.
inline Seconds BottleneckTime(const Cluster& cluster, std::span<const Flow> flows) {
  std::vector<Bytes> loads(cluster.links.size());
  Seconds longest;
  for (const Flow& flow : flows) {
    for (const LinkId id : cluster.Route(flow.from, flow.to, flow.channel)) {
      Bytes& load = loads[static_cast<std::size_t>(id)];
      load += flow.bytes;
      longest = std::max(longest, load / cluster.links[static_cast<std::size_t>(id)].capacity);
    }
  }
  return longest;
}

}  // namespace orrery
