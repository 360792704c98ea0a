// SPDX-License-Identifier: Apache-2.0
// The rates and latencies that one group of ranks sees on a cluster.
//
// A group is regular: the same number of its ranks on every node that it touches. `sharing` groups
// of the same kind run at once and split each node's NICs evenly (tensor parallelism of 8 means 8
// data-parallel groups side by side). Here a node is a scale-up domain: GPUs that reach each other without
// a NIC. Where several hosts share one (NVL72) they count as one node.
//
// Rates here are nominal, those of the lines. What an algorithm reaches of them is its own
// Efficiency() (algorithm.h), from `efficiency` and `use`.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/base/quantity.h"
#include "model/collectives/nccl/setting.h"
#include "model/hardware/profile.h"
#include "model/hardware/summary.h"

namespace orrery {

struct GroupShape {
  int ranks = 1;
  int ranks_per_node = 1;
  int sharing = 1;  // groups that use a node's NICs at the same time

  int nodes() const { return (ranks + ranks_per_node - 1) / ranks_per_node; }
  auto operator<=>(const GroupShape&) const = default;
};

// The shape of a mesh axis: `inner` ranks lie inside one step along it (all faster-varying axes).
GroupShape ShapeOfAxis(int size, int inner, int domain_gpus);

// A ring enters and leaves each of its nodes by two ranks. Whether these are never on one PCIe switch,
// so that no NIC is near to both: each NIC then carries one direction, unless the traffic crosses to
// it inside the node (NCCL's PXN, since 2.12). Ranks are strided evenly over the node.
bool EndsApart(const ClusterSummary& cluster, const GroupShape& shape);

// Seconds that uplinks take for a kind of message, over those of the NICs below them: by rings and hops, and by trees.
// 0: not known; then by the cluster's oversubscription, for a group that fills nodes next to each other.
struct UplinkStretch {
  double ring = 0, tree = 0;
  auto operator<=>(const UplinkStretch&) const = default;
};

// Share of the benchmark bandwidth that a training job gets (FrameworkProfile).
struct BandwidthUse {
  double scaleup = 1.0;
  double nic = 1.0;
  std::string_view algorithm;  // the only one that the software runs; "": the fastest
  nccl::Release nccl = nccl::kOwnRelease;
};

// The shares of line rates that the profiles of chip and fabric state, by key ("nic_tree_efficiency").
class Efficiencies {
 public:
  Efficiencies() = default;
  Efficiencies(const GpuProfile& gpu, const FabricProfile& fabric);
  // 1 where no profile has the key.
  double operator()(std::string_view key) const;

 private:
  std::vector<std::pair<std::string_view, double>> known_;  // of the profiles' tables
  std::map<std::string, double, std::less<>> more_;         // others that a file has
};

// Rates per direction; a zero rate means that the path does not exist.
struct Network {
  GroupShape shape;
  BytesPerSecond inside;  // of the links that a ring among the ranks of a node runs on
  bool inside_is_pcie = false;
  BytesPerSecond into_switch;  // of a GPU, into a switch that adds by itself; 0: none
  BytesPerSecond local_copy;   // a rank's own pass over the data; 0: not visible
  BytesPerSecond node_nics;    // all NICs of a node
  BytesPerSecond own_nics;     // of one rank, however idle the others are
  BytesPerSecond sockets;  // of this group's TCP streams on a node, per direction; 0: no sockets
  double ring_collisions = 1;  // share that collisions leave to a ring over many nodes
  double ring_uplinks = 1;     // share that oversubscribed uplinks leave to a ring
  double tree_uplinks = 1;     // the same of trees
  double uplinks = 1;          // the same for messages from every rank to anywhere
  Seconds launch;
  Seconds bandwidth_launch;  // more of it, of several steps by the bandwidth protocol
  Seconds
      issue;  // until a process that drives several GPUs has launched the kernels of all; no call is shorter
  Seconds intra_hop;
  Seconds switch_round_trip;
  Seconds inter_hop;
  double low_latency_bandwidth = 1.0;
  double low_latency_hop = 1.0;         // between nodes where there are several
  double low_latency_inside_hop = 1.0;  // inside a node
  Seconds low_latency_channel;          // of a hop between nodes, for each channel in use
  double line128_bandwidth = 0;  // of LL128 over the bandwidth protocol; 0: not between nodes
  double pipelining = 0.0;
  double chain_pipelining = 1.0;         // of chains, over that of an all-reduce
  const GpuProfile* measured = nullptr;  // it holds times of collectives in this group's place
  std::shared_ptr<const MeasuredCollectives> sweeps;  // of this machine; null: none
  // Whole groups of that machine that sweeps ran on, as class constants see them: by ranks, nodes.
  std::map<std::pair<int, int>, std::shared_ptr<const Network>> swept;
  int nics = 1;              // of a node, as devices of the library
  int switch_channels = 16;  // of the library, into the NVLink switch
  int rings = 1;             // that the links among the ranks of one node hold; 0: none
  BandwidthUse use;          // of the software
  Efficiencies efficiency;
  nccl::Setting nccl;  // without a node: the fastest algorithm is taken

  // Channels that the library opens between nodes: two for each NIC of this group (NCCL 2.28.9 graph/connect.cc doubles the
  // channels that its search finds, one per NIC).
  int channels() const { return 2 * std::max(1, nics / std::max(1, shape.sharing)); }
  // This group's share of a node's NICs; of that, what messages of single ranks can use.
  BytesPerSecond between() const { return node_nics * (1.0 / shape.sharing); }
  BytesPerSecond between_ranks() const;
  // Shares of the line rate with an efficiency of the profiles, as the software uses the lines. Inside a
  // node without scale-up links there is one for all algorithms.
  double InsideShare(std::string_view key) const;
  // Through sockets cores are the limit where the NICs are not, and compute on the GPUs takes nothing from them.
  double BetweenShare(std::string_view key) const;
};

// A process that drives several GPUs launches one after the other. Source: superbenchmark's log of nccl-tests with -g 8
// on Azure's A100 (microsoft/superbenchmark@f1f5c72f, tests/data/nccl_allreduce.log): calls without bytes take 34.2 us.
inline constexpr Seconds kIssueOfEach{34.2e-6 / 8};

// Bus bandwidth of a ring over all GPUs of a node; 0 where it has one.
BytesPerSecond ScaleUpRing(const ClusterSummary& cluster, const GpuProfile& gpu,
                           const FabricProfile& fabric, const BandwidthUse& use = {});

// Seconds that a ring of a group on several nodes takes longer per byte of a gathered or scattered buffer than one on all links
// inside a node does, for its NICs or its few links of a mesh; 0 where it is as fast.
double SlowerPerByte(const ClusterSummary& cluster, const GpuProfile& gpu,
                     const FabricProfile& fabric, const GroupShape& shape,
                     const BandwidthUse& use = {}, const UplinkStretch& stretch = {});

Network ViewNetwork(const ClusterSummary& cluster, const GpuProfile& gpu,
                    const FabricProfile& fabric, const GroupShape& shape,
                    const BandwidthUse& use = {}, const UplinkStretch& stretch = {});

}  // namespace orrery
