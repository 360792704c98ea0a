// SPDX-License-Identifier: Apache-2.0
// The rates and latencies that one group of ranks sees on a cluster.
//
// A group is regular: the same number of its ranks on every node that it touches. `sharing` groups
// of the same kind run at once and split each node's NICs evenly (tensor parallelism of 8 means 8
// data-parallel groups side by side).
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "model/base/quantity.h"
#include "model/hardware/profile.h"
#include "model/hardware/summary.h"

namespace orrery {

struct GroupShape {
  int ranks = 1;
  int ranks_per_node = 1;
  int sharing = 1;  // groups that use a node's NICs at the same time

  int nodes() const { return (ranks + ranks_per_node - 1) / ranks_per_node; }
};

// The shape of a mesh axis: `inner` ranks lie inside one step along it (all faster-varying axes).
GroupShape ShapeOfAxis(int size, int inner, int gpus_per_node);

// A ring enters and leaves each of its nodes by two ranks. Whether these are never on one PCIe switch,
// so that no NIC is near to both: each NIC then carries one direction, unless the traffic crosses to
// it inside the node (NCCL's PXN, since 2.12). Ranks are strided evenly over the node.
bool EndsApart(const ClusterSummary& cluster, const GroupShape& shape);

// Share of the benchmark bandwidth that a training job gets (StackProfile).
struct BandwidthUse {
  double scaleup = 1.0;
  double nic = 1.0;
  std::string_view algorithm;  // the only one that the software runs; "": the fastest
};

// Rates per direction; a zero rate means that the path does not exist.
struct Network {
  GroupShape shape;
  BytesPerSecond intra;            // bus bandwidth of a ring inside the node
  BytesPerSecond in_switch;        // bus bandwidth of in-switch reduction; 0: none
  BytesPerSecond local_copy;       // a rank's own pass over the data; 0: not visible
  BytesPerSecond inter_ring;       // this group's share of a node's NICs, ring algorithms
  BytesPerSecond inter_tree;       // same, trees
  BytesPerSecond inter_nvls_tree;  // same, trees over in-switch reduction
  BytesPerSecond inter_direct;     // same, point-to-point
  Seconds launch;
  Seconds intra_hop;
  Seconds switch_round_trip;
  Seconds inter_hop;
  double low_latency_bandwidth = 1.0;
  double low_latency_hop = 1.0;
  double pipelining = 0.0;
  double chain_pipelining = 1.0;         // of chains, over that of an all-reduce
  const GpuProfile* measured = nullptr;  // it holds times of collectives in this group's place
  std::shared_ptr<const MeasuredCollectives> sweeps;  // of this machine; null: none
  // Whole groups of that machine that sweeps ran on, as class constants see them: by ranks, nodes.
  std::map<std::pair<int, int>, std::shared_ptr<const Network>> swept;
  int nics = 1;      // of a node
  int rings = 1;     // that the links among the ranks of one node hold; 0: none
  BandwidthUse use;  // what the rates above were multiplied with
};

// Bus bandwidth of a ring over all GPUs of a node; 0 where it has one.
BytesPerSecond ScaleUpRing(const ClusterSummary& cluster, const GpuProfile& gpu,
                           const FabricProfile& fabric, const BandwidthUse& use = {});

// What a ring of the group moves over what one on the links inside a node does, at most 1. Compute beside a
// collective loses processors and memory bandwidth to the bytes that it moves: where a slow network feeds it less,
// it takes less.
double TrafficShare(const ClusterSummary& cluster, const GpuProfile& gpu,
                    const FabricProfile& fabric, const GroupShape& shape,
                    const BandwidthUse& use = {});

Network ViewNetwork(const ClusterSummary& cluster, const GpuProfile& gpu,
                    const FabricProfile& fabric, const GroupShape& shape,
                    const BandwidthUse& use = {});

}  // namespace orrery
