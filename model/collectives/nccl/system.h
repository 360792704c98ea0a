// SPDX-License-Identifier: Apache-2.0
// One node as NCCL sees it: devices, links with the bandwidth that NCCL assumes of them, and for every
// pair of devices the one path that its search may use.
//
// Rules and figures of NCCL 2.28.9 (NVIDIA/nccl@dbc86fd0, src/graph/topo.{h,cc}, paths.cc), written
// anew. Units are NCCL's: GB/s = 10^9 bytes per second, floats that are rounded to 1/1000 as there.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "model/hardware/spec.h"

namespace orrery::nccl {

enum class DeviceType { kGpu, kPcieSwitch, kNvSwitch, kCpu, kNicCard, kNet };
inline constexpr int kDeviceTypes = 6;

inline constexpr int kMostChannels = 64;

// Of a vector by a device's or channel's number.
inline std::size_t At(int index) { return static_cast<std::size_t>(index); }

// How far two devices are from each other; ordered, as NCCL compares them.
enum Distance : int {
  kSameDevice = 0,
  kNvLink = 1,
  kNvLinkRelay = 2,     // through another GPU
  kC2c = 3,             // GPU to its own CPU
  kOneSwitch = 4,       // below one PCIe switch
  kManySwitches = 5,    // several PCIe switches
  kC2cAndPcie = 6,      // GPU, its CPU, NIC
  kOtherGpusNic = 7,    // through another GPU that is near to the NIC
  kThroughCpu = 8,      // PCIe and a host bridge
  kBetweenSockets = 9,  // CPU to CPU
  kNetwork = 10,
  kDisconnected = 11,
};
const char* Name(Distance distance);  // as NCCL prints it: "NVL", "PXB"

// What describes a node, in the terms of NCCL's topology.
struct NodeDescription {
  struct Gpu {
    int switch_index = -1;  // PCIe switch; -1: on the CPU
    int cpu = 0;
    int host = 0;    // of an NVLink domain of several hosts
    int device = 0;  // its number in its host
    float pcie = 0;  // its slot; 0: as the node's
  };
  struct Nic {
    int switch_index = -1;
    int cpu = 0;
    int host = 0;
    float rate = 0, pcie = 0;  // 0: as the node's
  };
  struct Switch {
    int cpu = 0;
    int above = -1;  // the switch that it hangs on; -1: the CPU
    float pcie = 0;  // 0: as the node's
  };
  struct Cpu {
    int host = 0;
  };
  struct NvLinks {
    int a = 0, b = 0;  // GPUs; b == -1: the NVSwitch
    int count = 0;
  };
  int capability = 80;  // compute capability of every GPU, times ten
  HostKind cpu = HostKind::kIntel;
  float between_cpus = 10;
  float pcie = 24;      // of a x16 slot
  float c2c = 0;        // GPU to its CPU besides PCIe
  float nic_rate = 24;  // of a NIC
  bool gpu_direct = true;
  bool in_network = false;  // the network reduces (CollNet)
  std::vector<Gpu> gpus;    // in use; rank order
  std::vector<Nic> nics;
  std::vector<Switch> switches;
  std::vector<Cpu> cpus;
  std::vector<NvLinks> nvlinks;
};

enum class LinkType : int { kNvLink = 1, kC2c = 3, kPcie = 4, kSys = 9, kNet = 10 };

struct SystemLink {
  LinkType type = LinkType::kPcie;
  float bandwidth = 0;  // the search takes from it and gives back
  int to = 0;           // device
};

struct Path {
  struct Step {
    int device = 0;  // that the link leaves
    int link = 0;    // among its links
  };
  // A step as the search takes bandwidth: what its link has left, and the link back where writing costs reads, else null.
  struct Hop {
    float* left = nullptr;
    float* back = nullptr;
    bool pcie = false;
  };
  std::vector<Step> steps;
  std::vector<Hop> hops;  // of the same
  float bandwidth = 0;
  Distance distance = kDisconnected;
};

struct SystemDevice {
  DeviceType type = DeviceType::kGpu;
  int host = 0;
  int number = 0;        // kGpu: in its host
  float net_rate = 0;    // kNet: left for the search
  int nearest_gpu = -1;  // kNet
  std::vector<SystemLink> links;
  std::array<std::vector<Path>, kDeviceTypes> paths;  // by type and index among that type
};

class System {
 public:
  // `across`: the communicator has ranks in other nodes.
  System(const NodeDescription& node, bool across);
  System(const System&) = delete;  // paths point into it
  System& operator=(const System&) = delete;

  int count(DeviceType type) const { return static_cast<int>(Of(type).size()); }
  int gpus() const { return count(DeviceType::kGpu); }
  int nets() const { return count(DeviceType::kNet); }
  SystemDevice& At(DeviceType type, int index) { return devices_[Id(type, index)]; }
  const SystemDevice& At(DeviceType type, int index) const { return devices_[Id(type, index)]; }
  SystemDevice& At(int id) { return devices_[static_cast<std::size_t>(id)]; }
  int IdOf(DeviceType type, int index) const { return static_cast<int>(Id(type, index)); }
  const Path& PathOf(DeviceType from, int index, DeviceType to, int other) const {
    return At(from, index).paths[static_cast<std::size_t>(to)][static_cast<std::size_t>(other)];
  }
  bool HasPaths(DeviceType from, int index, DeviceType to) const {
    return !At(from, index).paths[static_cast<std::size_t>(to)].empty();
  }

  // Devices of type `to` that are best for one: widest path, then nearest.
  std::vector<int> Nearest(DeviceType from, int index, DeviceType to, Distance* distance) const;
  // The NIC that a GPU takes for a channel; -1: none.
  int NetOf(int gpu, int channel) const;
  // All that it takes for some channel, in order.
  std::vector<int> NetsOf(int gpu) const;
  Distance NearestPath(DeviceType to) const;
  Distance FarthestPath(DeviceType to) const;
  // Two groups of NVLinked GPUs with something slower between.
  bool SplitNvLink() const;
  // What is left of the PCIe slot of a GPU, in the direction that has less.
  float PcieLeft(int gpu) const;

  const NodeDescription& node() const { return node_; }
  bool across() const { return across_; }
  int hosts() const { return hosts_; }
  float channel_limit() const { return channel_limit_; }  // most that one channel can carry
  float total() const { return total_; }                  // that one GPU can send

 private:
  std::size_t Id(DeviceType type, int index) const {
    return static_cast<std::size_t>(Of(type)[static_cast<std::size_t>(index)]);
  }
  const std::vector<int>& Of(DeviceType type) const {
    return by_type_[static_cast<std::size_t>(type)];
  }
  int Add(DeviceType type, int host);
  void Connect(int from, int to, LinkType type, float bandwidth);
  void ConnectBoth(int a, int b, LinkType type, float bandwidth);
  void AddDevices();
  void PutUplinksLast();
  void FindPathsTo(int target);
  void Detour(int source, DeviceType to, int target, DeviceType over, int relay);
  void AvoidPcieBetweenGpus();
  void AdjustNicPaths();
  void UseGpusNearNics();
  bool GpuDirect(int gpu, int net) const;
  int CpuNearest(int gpu) const;
  int GpuOfNet(int net) const;
  void Measure();
  void ResolvePaths();
  Path& MutablePath(DeviceType from, int index, DeviceType to, int other) {
    return At(from, index).paths[static_cast<std::size_t>(to)][static_cast<std::size_t>(other)];
  }

  NodeDescription node_;
  bool across_ = false;
  int hosts_ = 1;
  float channel_limit_ = 0, total_ = 0;
  std::vector<SystemDevice> devices_;
  std::vector<int> index_;    // by id: its place among its type
  std::vector<int> uplinks_;  // by id: the device above in the PCIe tree; -1
  std::array<std::vector<int>, kDeviceTypes> by_type_;
};

// What NCCL assumes of one NVLink of a generation, one direction.
float NvLinkRate(int capability);

}  // namespace orrery::nccl
