// SPDX-License-Identifier: Apache-2.0
// Reads rates as NCCL assumes them: by generation of PCIe, NVLink and CPU, not by what was measured.
#include "model/collectives/nccl/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "model/base/diagnostics.h"

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
  explicit Describer(const Setting& setting) : node_(*setting.node), each_(setting.gpus_per_node) {
    made_.capability = setting.capability;
    made_.cpu = KindOf(node_);
    made_.between_cpus = BetweenCpus(node_, made_.cpu);
    made_.pcie = PcieRate(node_.pcie_rate);
    made_.c2c = static_cast<float>(node_.gpu_to_host.value / kGb);
    const BytesPerSecond seen = setting.driver_rate;
    made_.nic_rate = static_cast<float>((seen.value > 0 ? seen : node_.nic_rate).value / kGb);
    made_.gpu_direct = setting.gpu_direct;
    made_.in_network = setting.in_network;
    rails_ = setting.rails;
  }

  // GPUs count through the machines of a scale-up domain.
  NodeDescription Read(std::span<const int> gpus) {
    std::map<int, std::pair<int, int>> placed;  // GPU of a machine: row, number
    std::map<int, std::set<int>> machines;      // in use: its rows with a GPU in use
    for (std::size_t row = 0; row < node_.pcie.size(); ++row) {
      for (const int gpu : node_.pcie[row].gpus) placed[gpu].first = static_cast<int>(row);
    }
    int number = 0;
    for (auto& [gpu, place] : placed) place.second = number++;
    for (const int gpu : gpus) machines[gpu / each_].insert(placed.at(gpu % each_).first);
    // Rows without a device in use are not there for NCCL; machines neither.
    int host = 0;
    for (const auto& [machine, rows] : machines) {
      for (int row = 0; row < static_cast<int>(node_.pcie.size()); ++row) {
        if (rows.contains(row) || !RowAt(row).nics.empty()) AddRow(machine, host, row);
      }
      ++host;
    }
    for (const int gpu : gpus) {
      const auto [row, number_there] = placed.at(gpu % each_);
      const Place& place = places_.at({gpu / each_, row});
      made_.gpus.push_back({place.at_switch, place.cpu, place.host, number_there});
    }
    AddNvLinks(gpus);
    return std::move(made_);
  }

 private:
  struct Place {
    int host = 0, cpu = 0, at_switch = -1;
  };

  const PcieGroup& RowAt(int row) const { return node_.pcie[static_cast<std::size_t>(row)]; }

  void AddRow(int machine, int host, int row) {
    const PcieGroup& group = RowAt(row);
    const auto [cpu, added] =
        cpus_.try_emplace({machine, group.host}, static_cast<int>(cpus_.size()));
    if (added) made_.cpus.push_back({host});
    Place place{host, cpu->second, -1};
    if (group.pcie_switch >= 0) {
      place.at_switch = static_cast<int>(made_.switches.size());
      made_.switches.push_back({place.cpu});
    }
    places_[{machine, row}] = place;
    const std::size_t each = rails_ ? NicsOfADevice(group) : 1;
    for (std::size_t i = 0; i < group.nics.size(); i += each) {
      NodeDescription::Nic one{place.at_switch, place.cpu, host};
      float rate = 0;
      for (std::size_t rail = i; rail < std::min(i + each, group.nics.size()); ++rail) {
        const auto slow = node_.degraded_nics.find(group.nics[rail]);
        rate += slow == node_.degraded_nics.end()
                    ? made_.nic_rate
                    : std::min(made_.nic_rate, static_cast<float>(slow->second.value / kGb));
      }
      if (rate != made_.nic_rate) one.rate = rate;
      made_.nics.push_back(one);
    }
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

  // The plugin shares the NICs of a switch out to its GPUs (aws-ofi-nccl, nccl_ofi_topo).
  static std::size_t NicsOfADevice(const PcieGroup& group) {
    return std::max<std::size_t>(1,
                                 group.nics.size() / std::max<std::size_t>(1, group.gpus.size()));
  }

  const NodeSpec& node_;
  NodeDescription made_;
  bool rails_ = false;
  int each_ = 1;                                 // GPUs in use of one machine
  std::map<std::pair<int, int>, int> cpus_;      // by machine and its host
  std::map<std::pair<int, int>, Place> places_;  // by machine and row
};

// All that the search depends on.
std::string Signature(const NodeDescription& node, bool across) {
  std::string text = fmt::format("{} {} {} {} {} {} {} {} {};", across, node.capability,
                                 static_cast<int>(node.cpu), node.between_cpus, node.pcie, node.c2c,
                                 node.nic_rate, node.gpu_direct, node.in_network);
  for (const auto& gpu : node.gpus)
    text += fmt::format("{},{},{},{} ", gpu.switch_index, gpu.cpu, gpu.host, gpu.device);
  for (const auto& nic : node.nics)
    text += fmt::format("n{},{},{},{} ", nic.switch_index, nic.cpu, nic.host, nic.rate);
  for (const auto& one : node.switches) text += fmt::format("s{} ", one.cpu);
  for (const auto& cpu : node.cpus) text += fmt::format("c{} ", cpu.host);
  for (const auto& links : node.nvlinks)
    text += fmt::format("l{},{},{} ", links.a, links.b, links.count);
  return text;
}

}  // namespace

std::optional<NodeDescription> Describe(const Setting& setting, std::span<const int> gpus) {
  if (setting.node == nullptr) return std::nullopt;
  return Describer(setting).Read(gpus);
}

std::shared_ptr<const Communicator> CommunicatorOf(const Setting& setting,
                                                   std::span<const int> gpus, int nodes) {
  const std::optional<NodeDescription> node = Describe(setting, gpus);
  if (!node || (nodes > 1 && node->nics.empty())) return nullptr;
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<const Graphs>> searched;
  static std::map<std::tuple<std::string, int, Release>, std::shared_ptr<const Communicator>> known;
  const std::string key = Signature(*node, nodes > 1);
  const std::lock_guard lock(mutex);
  auto& communicator = known[{key, nodes, setting.release}];
  if (communicator == nullptr) {
    auto& graphs = searched[key];
    if (graphs == nullptr) graphs = std::make_shared<const Graphs>(FindGraphs(*node, nodes > 1));
    communicator = std::make_shared<const Communicator>(*node, nodes, graphs, setting.release);
  }
  return communicator;
}

void RequireRelease(Release release, const GpuProfile& gpu) {
  const int capability = Capability(gpu);
  if (capability <= 0)
    throw InputError(fmt::format("NCCL does not run on {}", gpu.header.id),
                     "its release says how NVIDIA's GPUs are served; leave it out");
  if (const Release first = FirstOn(capability); release < first)
    throw InputError(fmt::format("NCCL {} does not run on {}", ReleaseText(release), gpu.header.id),
                     fmt::format("{} and later do", ReleaseText(first)));
}

}  // namespace orrery::nccl
