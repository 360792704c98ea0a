// SPDX-License-Identifier: Apache-2.0
// Reads rates as NCCL assumes them: by generation of PCIe, NVLink and CPU, not by what was measured.
#include "model/collectives/nccl/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace orrery::nccl {
namespace {

constexpr double kGb = 1e9;

// topo.cc, kvDictPciGen, of 16 lanes: 3, 6, 12, 24, 48, 96 GB/s from the first generation to the sixth.
// A link of half the lanes is worth a generation less.
float PcieRate(BytesPerSecond rate) {
  constexpr double kFirst = 4e9;  // bytes per second of the first generation, 16 lanes
  constexpr int kGenerations = 6;
  const double doublings = std::round(std::log2(std::max(1.0, rate.value / kFirst)));
  return 3.0F * static_cast<float>(std::exp2(std::min<double>(doublings, kGenerations - 1)));
}

// Where the topology does not name the CPU: topologies/README.md asks for NCCL's own figure between
// hosts, and 16 GB/s is that of AMD.
HostKind KindOf(const NodeSpec& node) {
  if (node.cpu) return *node.cpu;
  constexpr double kBetweenAmd = 16e9;
  return node.between_hosts.value == kBetweenAmd ? HostKind::kAmd : HostKind::kIntel;
}

// topo.h, SKL_QPI_BW and following: one figure for AMD and one for Arm; Intel's go by generation.
float BetweenCpus(const NodeSpec& node, HostKind kind) {
  switch (kind) {
    case HostKind::kAmd:
      return 16;
    case HostKind::kArm:
      return 6;
    case HostKind::kIntel:
      break;
  }
  constexpr float kSkylake = 10;
  const auto stated = static_cast<float>(node.between_hosts.value / kGb);
  return stated > 0 ? stated : kSkylake;
}

class Describer {
 public:
  Describer(const ClusterSummary& cluster, const NodeSpec& node, const GpuProfile& gpu,
            const FabricProfile& fabric)
      : node_(node) {
    constexpr double kTenths = 10;
    made_.capability = static_cast<int>(std::lround(gpu.compute_capability * kTenths));
    made_.cpu = KindOf(node);
    made_.between_cpus = BetweenCpus(node, made_.cpu);
    made_.pcie = PcieRate(node.pcie_rate);
    made_.c2c = static_cast<float>(node.gpu_to_host.value / kGb);
    made_.nic_rate = static_cast<float>(node.nic_rate.value / kGb);
    made_.gpu_direct = node.gpu_direct && fabric.gpu_direct > 0;
    made_.in_network = cluster.network_reduces;
  }

  NodeDescription Read(std::span<const int> gpus) {
    std::map<int, std::pair<int, int>> placed;  // GPU: row, number in its machine
    std::map<int, int> in_machine;
    for (std::size_t row = 0; row < node_.pcie.size(); ++row) {
      const PcieGroup& group = node_.pcie[row];
      std::vector<int> sorted = group.gpus;
      std::ranges::sort(sorted);
      for (const int gpu : sorted)
        placed[gpu] = {static_cast<int>(row), in_machine[group.machine]++};
    }
    // Rows without a device in use are not there for NCCL; machines neither.
    std::vector<char> in_use(node_.pcie.size(), 0), machines(in_use.size() + kMostMachines, 0);
    for (const int gpu : gpus) {
      const auto row = static_cast<std::size_t>(placed.at(gpu).first);
      in_use[row] = 1;
      machines[static_cast<std::size_t>(node_.pcie[row].machine)] = 1;
    }
    for (std::size_t row = 0; row < node_.pcie.size(); ++row) {
      const PcieGroup& group = node_.pcie[row];
      if (!machines[static_cast<std::size_t>(group.machine)]) continue;
      if (in_use[row] == 0 && group.nics.empty()) continue;
      AddRow(static_cast<int>(row), group);
    }
    for (const int gpu : gpus) {
      const auto [row, number] = placed.at(gpu);
      const auto& [cpu, at_switch] = places_.at(row);
      made_.gpus.push_back(
          {at_switch, cpu, MachineOf(node_.pcie[static_cast<std::size_t>(row)]), number});
    }
    AddNvLinks(gpus);
    return std::move(made_);
  }

 private:
  static constexpr std::size_t kMostMachines = 128;

  int MachineOf(const PcieGroup& group) {
    return machines_.try_emplace(group.machine, static_cast<int>(machines_.size())).first->second;
  }

  void AddRow(int row, const PcieGroup& group) {
    const int machine = MachineOf(group);
    const auto [at, added] = cpus_.try_emplace(group.host, static_cast<int>(cpus_.size()));
    if (added) made_.cpus.push_back({machine});
    int at_switch = -1;
    if (group.pcie_switch >= 0) {
      at_switch = static_cast<int>(made_.switches.size());
      made_.switches.push_back({at->second});
    }
    places_[row] = {at->second, at_switch};
    for (std::size_t nic = 0; nic < group.nics.size(); ++nic)
      made_.nics.push_back({at_switch, at->second, machine});
  }

  void AddNvLinks(std::span<const int> gpus) {
    const auto place = [&](int gpu) {
      const auto found = std::ranges::find(gpus, gpu);
      return found == gpus.end() ? -1 : static_cast<int>(found - gpus.begin());
    };
    if (node_.intra == IntraLink::kNvSwitch) {
      for (std::size_t g = 0; g < gpus.size(); ++g)
        made_.nvlinks.push_back({static_cast<int>(g), -1, node_.links_per_gpu});
    }
    for (const MeshLink& link : node_.mesh) {
      const int a = place(link.a), b = place(link.b);
      if (a >= 0 && b >= 0) made_.nvlinks.push_back({a, b, link.count});
    }
  }

  const NodeSpec& node_;
  NodeDescription made_;
  std::map<int, int> machines_, cpus_;         // of the topology: number in the description
  std::map<int, std::pair<int, int>> places_;  // row: CPU, switch
};

// All that the search depends on.
std::string Signature(const NodeDescription& node, bool across) {
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {};", across, node.capability,
                                 static_cast<int>(node.cpu), node.between_cpus, node.pcie, node.c2c,
                                 node.nic_rate, node.gpu_direct, node.in_network);
  for (const auto& gpu : node.gpus)
    text += fmt::format("{},{},{},{} ", gpu.switch_index, gpu.cpu, gpu.host, gpu.device);
  for (const auto& nic : node.nics)
    text += fmt::format("n{},{},{} ", nic.switch_index, nic.cpu, nic.host);
  for (const auto& one : node.switches) text += fmt::format("s{} ", one.cpu);
  for (const auto& cpu : node.cpus) text += fmt::format("c{} ", cpu.host);
  for (const auto& links : node.nvlinks)
    text += fmt::format("l{},{},{} ", links.a, links.b, links.count);
  return text;
}

}  // namespace

std::optional<NodeDescription> Describe(const ClusterSummary& cluster, const GpuProfile& gpu,
                                        const FabricProfile& fabric, std::span<const int> gpus) {
  if (gpu.compute_capability <= 0 || cluster.node == nullptr) return std::nullopt;
  return Describer(cluster, *cluster.node, gpu, fabric).Read(gpus);
}

std::shared_ptr<const Communicator> CommunicatorOf(const ClusterSummary& cluster,
                                                   const GpuProfile& gpu,
                                                   const FabricProfile& fabric,
                                                   std::span<const int> gpus, int nodes) {
  const std::optional<NodeDescription> node = Describe(cluster, gpu, fabric, gpus);
  if (!node || (nodes > 1 && node->nics.empty())) return nullptr;
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Graphs>> searched;
  static std::map<std::pair<std::string, int>, std::shared_ptr<const Communicator>> known;
  const std::string key = Signature(*node, nodes > 1);
  const std::lock_guard lock(mutex);
  auto& communicator = known[{key, nodes}];
  if (communicator == nullptr) {
    auto& graphs = searched[key];
    if (graphs == nullptr) graphs = std::make_shared<const Graphs>(FindGraphs(*node, nodes > 1));
    communicator = std::make_shared<const Communicator>(*node, nodes, graphs);
  }
  return communicator;
}

}  // namespace orrery::nccl
