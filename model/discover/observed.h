// SPDX-License-Identifier: Apache-2.0
// What files of other programs say of a cluster: every fact with the place that states it.
//
// Readers add facts; two places that differ are an InputError that names both.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "model/base/diagnostics.h"
#include "model/base/quantity.h"
#include "model/hardware/spec.h"

namespace orrery::discover {

inline constexpr std::size_t kMostHosts = 65'536;
inline constexpr std::size_t kMostDevices =
    4096;  // in a file, before those that do not count are left out

template <class T>
struct Fact {
  T value{};
  Location where;
};

// "p4d.xml:12"
std::string PlaceText(const Location& where);
// Throws InputError where it is no plain word.
void CheckName(const std::string& name, const Location& where);
[[noreturn]] void Refuse(const Location& where, std::string message, std::string hint = "");

// A GPU or NIC on the PCIe tree of a node.
struct PcieDevice {
  bool nic = false;
  int index = -1;                  // the source's own number of a GPU; -1: not said
  std::string bus;                 // "0000:10:1c.0"; "": not said
  std::string name;                // "mlx5_0"; "": not said
  std::string kind;                // GPU: id of the catalogue, or ""
  std::string network;             // NIC: id of a fabric profile, or ""
  std::string host;                // socket or NUMA node: "0"
  std::string group;               // PCIe switch; "": straight on the host
  BytesPerSecond rate;             // NIC; 0: not said
  BytesPerSecond pcie;             // its link; 0: not said
  std::optional<bool> gpu_direct;  // NIC: reads and writes the memory of GPUs
  Location where;
};

std::string NameOf(const PcieDevice& device);  // its bus or place, where it has none

struct PcieTree {
  std::vector<PcieDevice> devices;  // in the order of the source
  std::vector<std::string> hosts;   // in the order of the source
};

struct ScaleUp {
  IntraLink kind = IntraLink::kPcie;
  int links_per_gpu = 0;       // nvswitch
  std::vector<MeshLink> mesh;  // point to point
  BytesPerSecond per_link;     // 0: that of the GPU
  bool operator==(const ScaleUp& other) const;
};

// NVLinks that NCCL treats as one, with its rate for them.
struct NvBundle {
  int from = 0, to = -1;  // GPUs in the order of the source; to -1: the switches
  double rate = 0;        // GB/s
};

// A NIC that a source shows and that counts as none of training.
struct LeftOut {
  std::string name, why;
  Location where;
};

struct NamedNode {
  std::string name;
  Location where;
};

// Of a fabric: hosts on it, and switches below it.
struct SwitchFact {
  std::string name;
  std::vector<std::string> hosts, below;
  Location where;
};

// A port of a NIC.
struct IbDevice {
  std::string name;  // "mlx5_0"
  int64_t port = 1;
  BytesPerSecond rate;
  std::string state;    // "Down", "Active"
  bool linked = true;   // the cable's other end answers
  bool active() const;  // carries messages
  std::string network;  // "infiniband", "roce"
  Location where;
  std::string type = "";  // of its adapter, "MT4129"; "": not said
};

// A short name of a GPU and the parts of the catalogue that it may mean, the one to assume first.
struct GpuType {
  std::string name;
  std::vector<std::string> gpus;
  bool operator==(const GpuType&) const = default;
};

struct Observed {
  std::optional<Fact<std::string>> machine;      // "p4d.24xlarge"
  std::optional<Fact<std::string>> gpu;          // id of the catalogue
  std::optional<Fact<std::string>> unknown_gpu;  // as the source calls it
  std::optional<Fact<GpuType>> gpu_type;         // "a100"
  std::optional<Fact<int64_t>> gpus;             // of a node
  std::optional<Fact<int64_t>> nics_used;        // at least so many
  std::optional<Fact<PcieTree>> tree;            // the best source's
  int tree_rank = 0;                // how well it knows: 3 NCCL's XML and hwloc, 2 lspci, 1 topo -m
  std::vector<PcieDevice> unnamed;  // devices whose class the source does not say
  std::optional<Fact<ScaleUp>> scale_up;
  // There are NVLinks, whose number the source does not say. Empty: nor where.
  std::optional<Fact<std::vector<NvBundle>>> nvlinks;
  int nccl_release = 0;  // 18 of NCCL 2.18, which printed those; 0: not said
  std::optional<Fact<HostKind>> cpu;
  std::optional<Fact<BytesPerSecond>> between_hosts;
  std::optional<Fact<std::string>> network;  // id of a fabric profile
  std::optional<Fact<BytesPerSecond>> nic_rate;
  std::optional<Fact<std::string>> network_used;  // as NCCL's log says: infiniband, roce, tcp
  std::optional<Fact<int64_t>> cores;             // a machine without GPUs
  std::vector<IbDevice> ib;
  std::vector<NamedNode> hosts;  // each once
  std::set<std::string> host_names;
  std::set<std::string> without_gpus;         // hosts that Slurm lists without GPUs
  std::map<std::string, std::string> unlike;  // and with other ones than most: their Gres
  std::map<std::string, std::string>
      out_of_service;               // Slurm starts no job there: state, reason, place
  bool hosts_listed = false;        // a hostfile: these and no others
  std::vector<NamedNode> launched;  // of hostfiles, in the order of launchers, each once
  std::vector<SwitchFact> switches;
  std::optional<Fact<int64_t>> nodes;
  std::optional<Fact<int64_t>> ranks;  // of a log that does not say on how many nodes
  std::optional<Location> cut;         // where a log ends before it says so
  std::vector<LeftOut> left_out;       // each once
  std::vector<std::string> notes;      // what else was seen, a sentence each

  void SayGpu(const std::string& id, const Location& where);
  void SayGpuType(const GpuType& type, const Location& where);
  void SayGpus(int64_t count, const Location& where);
  void SayScaleUp(ScaleUp links, const Location& where);
  void SayNetwork(const std::string& id, const Location& where);
  void SayNicRate(BytesPerSecond rate, const Location& where);
  void SayNicRates(const PcieTree& made);  // that of most; others are named
  void LeaveOut(const PcieTree& made);     // NICs that are not among NicsOf()
  void LeaveOut(LeftOut one);
  void SayCpu(HostKind kind, const Location& where);
  void SayNodes(int64_t count, const Location& where);
  void SayMachine(const std::string& product, const Location& where);
  void SayTree(PcieTree tree, int rank, const Location& where);
  void AddHost(const std::string& name, const Location& where);  // again: no change
  void AddPort(IbDevice port);                                   // with a note if it is down
};

// GPUs and NICs that training uses: RDMA before Ethernet, of RDMA networks the one next to GPUs, then that of the highest rate
// of all its NICs, then of most; of those the ones with GPUDirect, if others have none; without NICs far from GPUs (of which
// nothing else is known) or of another rate than most, beyond a whole number for each GPU (of storage).
std::vector<const PcieDevice*> GpusOf(const PcieTree& tree);
std::vector<const PcieDevice*> NicsOf(const PcieTree& tree);

// As many NICs for each of several GPUs, or as many GPUs for each NIC. Eight GPUs have eight NICs without two slower ones, which
// are of storage; they have not without the one that has trained down.
bool IsWhole(int64_t nics, int64_t gpus);

// Reads one file into `seen`, whatever it is. Throws InputError.
void ReadClusterFile(const SourcePtr& source, Observed* seen);

// One reader each; same contract.
void ReadNcclTopologyXml(const SourcePtr& source, Observed* seen);
void ReadNcclGraphXml(const SourcePtr& source, Observed* seen);
void ReadHwlocXml(const SourcePtr& source, Observed* seen);
void ReadNcclLogText(const SourcePtr& source, Observed* seen);
void ReadTopoMatrix(const SourcePtr& source, Observed* seen);
void ReadLspci(const SourcePtr& source, Observed* seen);
void ReadIbstat(const SourcePtr& source, Observed* seen);
void ReadSlurmTopology(const SourcePtr& source, Observed* seen);
void ReadSlurmNodes(const SourcePtr& source, Observed* seen);
void ReadAwsTopology(const SourcePtr& source, Observed* seen);
void ReadHostfile(const SourcePtr& source, Observed* seen);

// This machine, from its /sys and /proc below `root` ("" : the real ones).
void ReadMachine(const std::string& root, Observed* seen);

}  // namespace orrery::discover
