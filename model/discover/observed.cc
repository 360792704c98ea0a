// SPDX-License-Identifier: Apache-2.0
// Facts and their contradictions.
#include "model/discover/observed.h"

#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <filesystem>
#include <functional>
#include <map>
#include <utility>

#include "model/base/text.h"
#include "model/hardware/cluster_file.h"

namespace orrery::discover {
namespace {

template <class T>
void Say(const char* what, T value, const std::string& text, const std::string& old_text,
         const Location& where, std::optional<Fact<T>>* fact) {
  if (!fact->has_value()) {
    *fact = Fact<T>{std::move(value), where};
    return;
  }
  if ((*fact)->value == value) return;
  Refuse(where,
         fmt::format("{} here, but {} says {}", fmt::format(fmt::runtime(what), text),
                     PlaceText((*fact)->where), old_text),
         where.source == (*fact)->where.source
             ? "the nodes of a topology are equal, and so are their devices: one of these lines is "
               "of another node, or has to be corrected"
             : "leave out the file that is not of this cluster, or discover its nodes apart");
}

std::string ScaleUpText(const ScaleUp& links) {
  switch (links.kind) {
    case IntraLink::kNvSwitch:
      return fmt::format("{} links per GPU into switches", links.links_per_gpu);
    case IntraLink::kCubeMesh:
    case IntraLink::kFullMesh:
      return fmt::format("a mesh of {} pairs", links.mesh.size());
    case IntraLink::kNone:
    case IntraLink::kPcie:
      break;
  }
  return "PCIe alone";
}

// 0: as many have another, or none is said.
double RateOfMost(const std::vector<const PcieDevice*>& nics) {
  std::map<double, int64_t> counts;
  for (const PcieDevice* nic : nics)
    if (nic->rate.value > 0) ++counts[nic->rate.value];
  int64_t count = 0;
  double most = 0;
  for (const auto& [rate, number] : counts) {
    if (number == count) most = 0;
    if (number > count) most = rate, count = number;
  }
  return most;
}

// Of another rate than most: eight NICs of eight GPUs are whole without them.
void LeaveOutOfOtherRate(int64_t gpus, std::vector<const PcieDevice*>* nics) {
  const double most = RateOfMost(*nics);
  const auto other = [&](const PcieDevice* nic) {
    return nic->rate.value > 0 && nic->rate.value != most;
  };
  const auto all = static_cast<int64_t>(nics->size());
  const int64_t same = all - std::ranges::count_if(*nics, other);
  if (most > 0 && IsWhole(same, gpus) && !IsWhole(all, gpus)) std::erase_if(*nics, other);
}

// Of a NIC next to those of training.
std::string WhyLeftOut(const PcieDevice& device, const std::vector<const PcieDevice*>& nics) {
  const std::string& network = nics.front()->network;
  if (!network.empty() && network != "tcp" && device.network != network) {
    const std::string kind = device.network == "tcp" ? "Ethernet without RDMA"
                             : device.network.empty()
                                 ? "Ethernet, or of a network that no source names,"
                                 : device.network;
    return fmt::format("{} next to {} NIC{} of {}", kind, nics.size(), nics.size() == 1 ? "" : "s",
                       network);
  }
  if (device.gpu_direct == false) return "without GPUDirect next to NICs with it";
  return device.rate.value > 0 && device.rate.value != nics.front()->rate.value
             ? fmt::format("at {:.6g}Gbps", device.rate.value * 8 / 1e9)
             : "on no PCIe switch with a GPU, as others are";
}

const char* CpuText(HostKind kind) {
  return kind == HostKind::kIntel ? "intel" : kind == HostKind::kAmd ? "amd" : "arm";
}

}  // namespace

std::string PlaceText(const Location& where) {
  // It stands behind lines of YAML: names of files hold what they like.
  std::string name;
  for (const char c : where.source == nullptr
                          ? std::string("?")
                          : std::filesystem::path(where.source->name).filename().string()) {
    if (c > ' ' && c < 127) name += c;
  }
  return where.line > 0 ? fmt::format("{}:{}", name, where.line) : name;
}

void CheckName(const std::string& name, const Location& where) {
  const bool plain = std::ranges::all_of(name, [](unsigned char c) {
    return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
  });
  if (name.empty() || name.size() > 128 || !plain)
    Refuse(where, fmt::format("'{}' is no name of a host or switch", name.substr(0, 64)),
           "letters, digits, '-', '_', '.' and ':', at most 128");
}

void Refuse(const Location& where, std::string message, std::string hint) {
  throw InputError(std::vector<Diagnostic>{{where, std::move(message), std::move(hint)}});
}

bool ScaleUp::operator==(const ScaleUp& other) const {
  const auto same = [](const MeshLink& a, const MeshLink& b) {
    return a.a == b.a && a.b == b.b && a.count == b.count;
  };
  return kind == other.kind && links_per_gpu == other.links_per_gpu &&
         std::ranges::equal(mesh, other.mesh, same);
}

void Observed::SayGpu(const std::string& id, const Location& where) {
  Say("the GPU is {}", id, id, gpu ? gpu->value : "", where, &gpu);
}

void Observed::SayGpuType(const GpuType& type, const Location& where) {
  Say("the GPU is '{}'", type, type.name, gpu_type ? "'" + gpu_type->value.name + "'" : "", where,
      &gpu_type);
}

void Observed::SayGpus(int64_t count, const Location& where) {
  Say("{} GPUs in a node", count, std::to_string(count), gpus ? std::to_string(gpus->value) : "",
      where, &gpus);
}

void Observed::SayScaleUp(ScaleUp links, const Location& where) {
  const std::string text = ScaleUpText(links);
  Say("{}", std::move(links), text, scale_up ? ScaleUpText(scale_up->value) : "", where, &scale_up);
}

void Observed::SayNetwork(const std::string& id, const Location& where) {
  Say("the network is {}", id, id, network ? network->value : "", where, &network);
}

void Observed::SayNicRate(BytesPerSecond rate, const Location& where) {
  Say("NICs of {}", rate, Format(rate), nic_rate ? Format(nic_rate->value) : "", where, &nic_rate);
}

void Observed::SayCpu(HostKind kind, const Location& where) {
  Say("CPUs of {}", kind, CpuText(kind), cpu ? CpuText(cpu->value) : "", where, &cpu);
}

void Observed::SayNodes(int64_t count, const Location& where) {
  Say("{} nodes", count, std::to_string(count), nodes ? std::to_string(nodes->value) : "", where,
      &nodes);
}

void Observed::SayMachine(const std::string& product, const Location& where) {
  Say("the machine is a {}", product, product, machine ? machine->value : "", where, &machine);
}

void Observed::SayNicRates(const PcieTree& made) {
  const std::vector<const PcieDevice*> nics = NicsOf(made);
  const double most = RateOfMost(nics);
  for (const PcieDevice* nic : nics) {
    if (nic->rate.value <= 0) continue;
    if (most == 0 || nic->rate.value == most)
      SayNicRate(nic->rate, nic->where);
    else
      notes.push_back(fmt::format("{} runs at {:.6g}Gbps, most NICs at {:.6g}Gbps ({})",
                                  nic->name.empty() ? "a NIC" : nic->name,
                                  nic->rate.value * 8 / 1e9, most * 8 / 1e9,
                                  PlaceText(nic->where)));
  }
}

void Observed::LeaveOut(LeftOut one) {
  // Several sources may show it, and nodes alike have it under one name.
  const bool known = std::ranges::find(left_out, one.name, &LeftOut::name) != left_out.end();
  if (!known) left_out.push_back(std::move(one));
}

std::string NameOf(const PcieDevice& device) {
  if (!device.name.empty()) return device.name;
  return device.bus.empty() ? "the NIC in " + PlaceText(device.where) : device.bus;
}

void Observed::LeaveOut(const PcieTree& made) {
  const std::vector<const PcieDevice*> nics = NicsOf(made);
  for (const PcieDevice& device : made.devices) {
    if (!device.nic || std::ranges::find(nics, &device) != nics.end()) continue;
    LeaveOut({NameOf(device), WhyLeftOut(device, nics), device.where});
  }
}

void Observed::SayTree(PcieTree made, int rank, const Location& where) {
  const auto new_gpus = GpusOf(made).size(), new_nics = NicsOf(made).size();
  if (tree && new_nics > 0) {
    const auto old_nics = NicsOf(tree->value).size();
    if (old_nics > 0 && old_nics != new_nics) {
      Refuse(where,
             fmt::format("{} NIC{} here, but {} says {}", new_nics, new_nics == 1 ? "" : "s",
                         PlaceText(tree->where), old_nics),
             "one of them may show NICs that do not train: give the better source alone");
    }
  }
  if (new_gpus > 0) SayGpus(static_cast<int64_t>(new_gpus), where);
  for (const PcieDevice& device : made.devices) {
    if (!device.nic && !device.kind.empty()) SayGpu(device.kind, device.where);
  }
  SayNicRates(made);
  for (const PcieDevice* nic : NicsOf(made)) {
    if (!nic->network.empty()) SayNetwork(nic->network, nic->where);
  }
  LeaveOut(made);
  if (tree && rank <= tree_rank) return;
  tree = Fact<PcieTree>{std::move(made), where};
  tree_rank = rank;
}

void Observed::AddHost(const std::string& name, const Location& where) {
  CheckName(name, where);
  if (!host_names.insert(name).second) return;
  if (hosts.size() >= kMostHosts) Refuse(where, fmt::format("more than {} hosts", kMostHosts));
  hosts.push_back({name, where});
}

bool IbDevice::active() const {
  return linked && (state.starts_with("Active") || state.starts_with("ACTIVE"));
}

void Observed::AddPort(IbDevice port) {
  if (!port.active())
    notes.push_back(fmt::format("{} port {} is {} and counts as no NIC ({})", port.name, port.port,
                                !port.linked ? "not linked" : "in state " + port.state,
                                PlaceText(port.where)));
  ib.push_back(std::move(port));
}

std::vector<const PcieDevice*> GpusOf(const PcieTree& tree) {
  std::vector<const PcieDevice*> gpus;
  for (const PcieDevice& device : tree.devices) {
    if (!device.nic) gpus.push_back(&device);
  }
  std::ranges::stable_sort(gpus, {}, [](const PcieDevice* gpu) { return gpu->index; });
  return gpus;
}

namespace {

// It lies on a PCIe switch with a GPU.
bool IsNextToGpu(const PcieDevice& nic, const PcieTree& tree) {
  return !nic.group.empty() && std::ranges::any_of(tree.devices, [&](const PcieDevice& one) {
    return !one.nic && one.group == nic.group;
  });
}

// NICs of one RDMA network: next to GPUs, their rates together (0: one of them has none), their number.
struct Together {
  bool next_to_gpus = false;
  double rate = 0;
  std::size_t nics = 0;
  auto operator<=>(const Together&) const = default;
};

Together CountOf(const std::vector<const PcieDevice*>& nics, bool rated, const PcieTree& tree) {
  Together all;
  for (const PcieDevice* nic : nics) {
    all.next_to_gpus |= IsNextToGpu(*nic, tree);
    if (rated) all.rate += nic->rate.value;
  }
  all.nics = nics.size();
  return all;
}

// Next to GPUs, a NIC for each of them at least: others are of storage, where nothing is known but places.
void LeaveOutFarFromGpus(const PcieTree& tree, std::vector<const PcieDevice*>* nics) {
  const auto named = [](const PcieDevice* nic) {
    return !nic->network.empty() || nic->rate.value > 0;
  };
  if (std::ranges::any_of(*nics, named)) return;
  const auto far = [&](const PcieDevice* nic) { return !IsNextToGpu(*nic, tree); };
  const auto near = static_cast<std::size_t>(std::ranges::count_if(*nics, std::not_fn(far)));
  const std::size_t gpus = GpusOf(tree).size();
  if (gpus > 0 && near > 0 && near % gpus == 0) std::erase_if(*nics, far);
}

}  // namespace

bool IsWhole(int64_t nics, int64_t gpus) {
  return nics > 0 && gpus > 1 && (nics % gpus == 0 || gpus % nics == 0);
}

std::vector<const PcieDevice*> NicsOf(const PcieTree& tree) {
  std::map<std::string, std::vector<const PcieDevice*>> rdma;  // by network
  std::vector<const PcieDevice*> all;
  bool rated = true;
  for (const PcieDevice& device : tree.devices) {
    if (!device.nic) continue;
    all.push_back(&device);
    if (device.network.empty() || device.network == "tcp") continue;
    rdma[device.network].push_back(&device);
    rated = rated && device.rate.value > 0;
  }
  // NVLink switches of HGX B200 and B300 are managed through InfiniBand devices of their own, two next to
  // the NICs of any network; nodes with InfiniBand have Ethernet with RDMA for the rest.
  std::vector<const PcieDevice*> most = std::move(all);
  Together best;
  for (const auto& [network, nics] : rdma) {
    const Together together = CountOf(nics, rated, tree);
    if (best >= together) continue;
    best = together;
    most = nics;
  }
  const auto direct = [](const PcieDevice* nic) { return nic->gpu_direct == true; };
  if (std::ranges::any_of(most, direct))
    std::erase_if(most, [](const PcieDevice* nic) { return nic->gpu_direct == false; });
  LeaveOutFarFromGpus(tree, &most);
  LeaveOutOfOtherRate(static_cast<int64_t>(GpusOf(tree).size()), &most);
  return most;
}

void ReadClusterFile(const SourcePtr& source, Observed* seen) {
  switch (KindOfClusterFile(*source)) {
    case ClusterFile::kNone:
      break;
    case ClusterFile::kNcclTopology:
      return ReadNcclTopologyXml(source, seen);
    case ClusterFile::kNcclGraphs:
      return ReadNcclGraphXml(source, seen);
    case ClusterFile::kNcclLog:
      return ReadNcclLogText(source, seen);
    case ClusterFile::kHwloc:
      return ReadHwlocXml(source, seen);
    case ClusterFile::kTopoMatrix:
      return ReadTopoMatrix(source, seen);
    case ClusterFile::kLspci:
      return ReadLspci(source, seen);
    case ClusterFile::kIbstat:
      return ReadIbstat(source, seen);
    case ClusterFile::kSlurmTopology:
      return ReadSlurmTopology(source, seen);
    case ClusterFile::kSlurmNodes:
      return ReadSlurmNodes(source, seen);
    case ClusterFile::kAwsTopology:
      return ReadAwsTopology(source, seen);
    case ClusterFile::kHostfile:
      return ReadHostfile(source, seen);
  }
  RefuseJobFile(source, "a file that describes a cluster");
  if (source->text.find("\nfabric_profile:") != std::string::npos)
    Refuse({source, 1, 1}, "this is a topology already, as plan discover writes one",
           fmt::format("plan topo {0} shows it, --topology {0} plans with it", source->name));
  Refuse({source, 1, 1}, "nothing in this file describes a cluster in a way that is known",
         "readable are NCCL's XML and log, hwloc's XML, nvidia-smi topo -m, lspci -nn, -vmm, -tv, "
         "ibstat, hostfiles, Slurm's topology.conf and .yaml, scontrol show node, and AWS's "
         "describe-instance-topology");
}

}  // namespace orrery::discover
