// SPDX-License-Identifier: Apache-2.0
// A cluster as a topology file describes it: one node template, a fabric, a price.
//
// All rates are per direction. Devices are named gpu0.., nic0.. and by the names of hosts (CPU with
// its PCIe root) and PCIe switches; here they are indices into the node template. The text schema
// is documented in topologies/README.md.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/base/quantity.h"

namespace orrery {

// How the GPUs of one node reach each other.
enum class IntraLink {
  kNone,      // one GPU per node
  kPcie,      // through PCIe switches and host bridges
  kNvSwitch,  // every GPU at full rate into a switch
  kCubeMesh,  // explicit point-to-point links, several per pair (hybrid cube mesh, bridges)
  kFullMesh,  // the same number of links between any two GPUs
};

// Makes of CPUs that route differently; what collective libraries assume of them differs too.
enum class HostKind { kIntel, kAmd, kArm };

struct MeshLink {
  int a = 0;  // GPU indices
  int b = 0;
  int count = 0;  // parallel links
};

// Devices that share one PCIe switch, or that hang straight on a host bridge (pcie_switch == -1).
struct PcieGroup {
  int host = 0;
  int pcie_switch = -1;
  std::vector<int> gpus;
  std::vector<int> nics;
};

struct NodeSpec {
  int gpus = 0;
  IntraLink intra = IntraLink::kNone;
  std::string link_name;    // what the links are called: "NVLink3"; "PCIe" without any
  int links_per_gpu = 0;    // links of one GPU, at most (kNvSwitch, kCubeMesh, kFullMesh)
  BytesPerSecond per_link;  // one scale-up link
  // Nodes whose GPUs are on one switch (kNvSwitch): a scale-up domain, such as the 18 of an NVL72.
  int64_t domain_nodes = 1;
  std::vector<MeshLink> mesh;      // kCubeMesh as written, kFullMesh all pairs
  std::vector<int> packed_rings;   // [n]: see PackedRings() in rings.h; empty without a mesh
  std::vector<int> relayed_rings;  // [n]: see RelayedRings(), where packed_rings has none
  BytesPerSecond pcie_rate;        // every PCIe link of the node
  BytesPerSecond between_hosts;    // host to host; 0 with one host
  std::optional<HostKind> cpu;     // nullopt: the file does not say
  Bytes host_memory;               // of all CPUs of the node; 0: the file does not say, likewise:
  BytesPerSecond host_bandwidth;   // of that memory
  BytesPerSecond gpu_to_host;      // of a GPU's own link to its CPU besides PCIe; 0: none
  std::vector<std::string> hosts;
  std::vector<std::string> switches;
  std::vector<PcieGroup> pcie;
  std::vector<std::string> nics;
  BytesPerSecond nic_rate;                      // each NIC, but of those that have trained down:
  std::map<int, BytesPerSecond> degraded_nics;  // below nic_rate
  bool gpu_direct = true;  // NICs read and write the memory of GPUs, where the network can
};

enum class FabricKind {
  kNone,
  kSingleSwitch,
  kFatTree,
  kRailOptimised,
  kDragonfly,
  kTorus,
  kNamed,  // switches and hosts by name, as many hosts on each as there are
};

// A switch of a named fabric. Its hosts are in the order of ranks; empty: only switches are on it.
struct NamedSwitch {
  std::string name;
  std::vector<int64_t> hosts;  // nodes, into FabricSpec::hosts
  std::vector<int> nics;       // of each of these hosts: those plugged in here
};

struct SwitchLink {
  int a = 0, b = 0;     // into FabricSpec::switches
  BytesPerSecond rate;  // of one of `count` parallel links
  int count = 1;
};

struct FabricSpec {
  FabricKind kind = FabricKind::kNone;  // kNone: a single node without NICs
  Seconds latency;                      // one way, of a long way; beyond the profile's hop
  bool reduces = false;                 // its switches add (SHARP)
  // Fat tree and rail-optimised.
  int levels = 2;                 // 2: leaf, spine; 3: leaf, spine, core
  int64_t leaf_ports = 0;         // NIC ports of one leaf switch
  int64_t pod_leaves = 0;         // leaves that share their spines (3 levels)
  double oversubscription = 1.0;  // rate into a leaf from below over rate out of its uplinks
  // Dragonfly.
  int64_t routers_per_group = 0;  // all-to-all inside the group
  int64_t ports_per_router = 0;   // NICs on one router
  int64_t global_links = 0;       // links to other groups, per router
  // Torus: the extent of each dimension; one router per node.
  std::vector<int64_t> dims;
  BytesPerSecond link_rate;  // router to router (dragonfly, torus)
  // Named: `oversubscription` is that of the leaf with most, whose NICs share its links.
  std::vector<std::string> hosts;  // by node
  std::vector<NamedSwitch> switches;
  std::vector<SwitchLink> links;
};

// Nodes that differ from the others in how fast their GPUs compute, and in nothing else.
struct OtherNodes {
  int64_t first = 0, last = 0;
  std::string gpu;    // as of TopologySpec; "": the same GPU
  double slower = 1;  // kernels take so many times as long as on this GPU elsewhere
};

// What a GPU has for a program, and what its driver takes of that.
struct GpuMemory {
  Bytes capacity, context;
  bool operator==(const GpuMemory&) const = default;
};

struct TopologySpec {
  std::string name;
  std::string description;
  std::string source;
  char evidence = 'C';  // A: several primary sources agree, B: one source, C: assumed in part
  std::string gpu;      // id of calib/profiles/gpu, path of a profile, or kUnknownGpu
  std::string fabric_profile;  // id of calib/profiles/fabric
  std::string collectives;     // measured there: id of calib/profiles/collectives, or a file
  // Ranks are processes on so many cores of one machine, whatever node they are on, and share them;
  // 0: every rank has a processor of its own.
  int64_t cores = 0;
  std::map<std::string, std::string>
      framework_profiles;  // framework: profile to take instead of its own
  int64_t nodes = 1;       // when nobody says how many
  int64_t max_nodes = 1;
  NodeSpec node;
  FabricSpec fabric;
  std::optional<DollarsPerHour> node_price;
  std::string price_source;
  std::string file;  // "": not read from one
  std::vector<OtherNodes> other_nodes;
  // By node, as PriceOtherNodes() finds it (model/twin); empty: all are alike. Of kernels; of each GPU.
  std::vector<double> slowdown;
  std::vector<GpuMemory> gpu_memory;
  std::vector<FlopsPerSecond> gpu_peak;  // in the job's precision; nodes behind the last: as `gpu`
};

// The GPU id of clusters whose source does not name the part: planning needs the user's word.
inline constexpr const char* kUnknownGpu = "unknown";

// Nodes whose NICs of equal index share a leaf (rail-optimised), nodes under one leaf (fat tree),
// nodes of one group (dragonfly); max_nodes where nothing is in between.
int64_t LeafNodes(const TopologySpec& spec);

// Of each scale-up domain in use, when a run takes so many nodes: the nodes are laid evenly over as few domains
// as hold them, each at least half full (64 nodes of an NVL72 over four racks of 16). 0: that cannot be done.
int64_t NodesPerDomain(const TopologySpec& spec, int64_t nodes);

// Of one NIC's port; of the slowest, for which messages wait that go over all NICs in equal parts.
BytesPerSecond NicRate(const NodeSpec& node, int nic);
BytesPerSecond SlowestNic(const NodeSpec& node);

// The scale-up rate of one GPU, all its links together; the PCIe rate without any.
BytesPerSecond ScaleUpPerGpu(const NodeSpec& node);

}  // namespace orrery
