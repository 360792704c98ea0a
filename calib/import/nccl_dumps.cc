// SPDX-License-Identifier: Apache-2.0
// Reads NCCL's XML: graphs that it found, and the node that it saw.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>

#include "calib/import/nccl_debug.h"
#include "calib/import/nccl_log.h"
#include "model/base/xml_tree.h"

namespace orrery::measured {
namespace {

constexpr std::size_t kMostDevices = 256;
constexpr int kMostCount = 1024;  // links of a GPU, devices of a node

[[noreturn]] void Refuse(const Location& where, std::string message, std::string hint = "") {
  throw InputError(std::vector<Diagnostic>{{where, std::move(message), std::move(hint)}});
}

XmlElement ReadRoot(const SourcePtr& source, const char* name, const char* variable) {
  XmlElement root = ReadXml(source);
  if (root.name != name) {
    Refuse(root.where, fmt::format("<{}> where <{}> was expected", root.name, name),
           fmt::format("NCCL writes it where {} names a file", variable));
  }
  return root;
}

// Devices of dumps are numbers with or without "0x"; NCCL 2.28 writes hexadecimal for both.
int DeviceOf(const XmlElement& element) {
  const std::string& text = element.Text("dev");
  try {
    std::size_t read = 0;
    const unsigned long long value = std::stoull(text, &read, 16);
    constexpr unsigned long long kLocal = 0xffffff;
    if (read == text.size()) return static_cast<int>(value & kLocal);
  } catch (const std::exception&) {
  }
  Refuse(element.where, fmt::format("'dev' of <{}> is '{}'", element.name, text),
         "a hexadecimal number");
}

class TopologyReader {
 public:
  nccl::NodeDescription Read(const XmlElement& root) {
    for (const XmlElement& cpu : root.children) {
      if (cpu.name == "cpu") ReadCpu(cpu);
    }
    if (ranked_.empty()) {
      Refuse(root.where, "no GPU of a rank in this topology",
             "NCCL_TOPO_DUMP_FILE dumps it; a file for NCCL_TOPO_FILE has no ranks");
    }
    if (std::max({ranked_.size(), made_.nics.size(), made_.switches.size(), made_.cpus.size()}) >
        kMostDevices)
      Refuse(root.where, fmt::format("more than {} devices of a kind", kMostDevices));
    for (const auto& [rank, gpu] : ranked_) {
      place_[gpu.bus] = static_cast<int>(made_.gpus.size());
      made_.gpus.push_back(gpu.gpu);
    }
    made_.gpu_direct = made_.nics.empty() || direct_;
    made_.in_network = !made_.nics.empty() && in_network_;
    for (const auto& [rank, gpu] : ranked_) AddLinks(gpu);
    return std::move(made_);
  }

 private:
  struct Gpu {
    nccl::NodeDescription::Gpu gpu;
    std::string bus;
    const XmlElement* element = nullptr;
  };

  void ReadCpu(const XmlElement& cpu) {
    const std::string* hash = cpu.Find("host_hash");
    const int host = hosts_.try_emplace(hash == nullptr ? "" : *hash, hosts_.size()).first->second;
    const int index = static_cast<int>(made_.cpus.size());
    made_.cpus.push_back({host});
    if (index == 0) ReadKind(cpu);
    for (const XmlElement& child : cpu.children) {
      if (child.name == "pci") ReadPci(child, index, host, -1);
      if (child.name == "nic") ReadNic(child, index, host, -1, kOnCpu);
    }
  }

  // Bandwidth between the CPUs of a host as NCCL assumes it, by vendor and model (topo.h).
  void ReadKind(const XmlElement& cpu) {
    const std::string arch = cpu.Text("arch");
    made_.cpu = HostKind::kArm;
    made_.between_cpus = 6;
    if (arch != "x86_64") return;
    const std::string vendor = cpu.Text("vendor");
    made_.cpu = vendor == "AuthenticAMD" ? HostKind::kAmd : HostKind::kIntel;
    if (vendor == "AuthenticAMD") {
      made_.between_cpus = 16;
    } else if (vendor == "GenuineIntel") {
      constexpr int kMost = 1 << 16, kEmerald = 0xCF, kSapphire = 0x8F, kSkylake = 0x55;
      const int model = cpu.Whole("familyid", 0, kMost) == 6 ? cpu.Whole("modelid", 0, kMost) : 0;
      made_.between_cpus = model >= kEmerald    ? 40.0F
                           : model >= kSapphire ? 22.0F
                           : model >= kSkylake  ? 10.0F
                                                : 6.0F;
    }
  }

  // GB/s of a slot: lanes times the rate of a lane in 100 Mbit/s (topo.cc).
  static float RateOf(const XmlElement& pci) {
    static const std::map<std::string, int, std::less<>> kLane = {
        {"2.5 GT/s", 15},        {"5 GT/s", 30},         {"8 GT/s", 60},
        {"16 GT/s", 120},        {"32 GT/s", 240},       {"2.5 GT/s PCIe", 15},
        {"5.0 GT/s PCIe", 30},   {"8.0 GT/s PCIe", 60},  {"16.0 GT/s PCIe", 120},
        {"32.0 GT/s PCIe", 240}, {"64.0 GT/s PCIe", 480}};
    constexpr int kUnknownLane = 60, kUsualLanes = 16, kMostLanes = 32;
    const auto lane = kLane.find(pci.Text("link_speed"));
    const int rate = lane == kLane.end() ? kUnknownLane : lane->second;
    int lanes = pci.Whole("link_width", 0, kMostLanes);
    if (lanes == 0) lanes = kUsualLanes;
    return static_cast<float>(lanes * rate / 80.0);
  }

  void ReadPci(const XmlElement& pci, int cpu, int host, int above) {
    const auto child = [&](const char* name) -> const XmlElement* {
      const auto found = std::ranges::find_if(
          pci.children, [&](const XmlElement& one) { return one.name == name; });
      return found == pci.children.end() ? nullptr : &*found;
    };
    if (const XmlElement* gpu = child("gpu")) return ReadGpu(pci, *gpu, cpu, host, above);
    if (const XmlElement* nic = child("nic")) return ReadNic(*nic, cpu, host, above, RateOf(pci));
    const int own = static_cast<int>(made_.switches.size());
    made_.switches.push_back({cpu, above, RateOf(pci)});
    for (const XmlElement& sub : pci.children) {
      if (sub.name == "pci") ReadPci(sub, cpu, host, own);
    }
  }

  void ReadGpu(const XmlElement& pci, const XmlElement& gpu, int cpu, int host, int above) {
    if (gpu.Find("rank") == nullptr) return;  // of no rank
    const int rank = gpu.Whole("rank", 0, 1 << 20);
    Gpu one;
    one.gpu = {above, cpu, host, gpu.Whole("dev", 0, kMostCount), RateOf(pci)};
    one.bus = pci.Text("busid");
    one.element = &gpu;
    made_.capability = gpu.Whole("sm", 1, kMostCount);
    if (!ranked_.emplace(rank, one).second)
      Refuse(gpu.where, fmt::format("rank {} is there twice", rank));
  }

  // On a CPU without a slot: network devices that are not on PCIe.
  static constexpr float kOnCpu = 5000;

  void ReadNic(const XmlElement& nic, int cpu, int host, int above, float pcie) {
    constexpr double kMegabits = 8000;  // of a GB/s
    constexpr int kUnknown = 10'000;
    for (const XmlElement& net : nic.children) {
      if (net.name != "net" || net.Find("dev") == nullptr) continue;
      int speed = static_cast<int>(net.Number("speed", -1e6, 1e7));
      if (speed <= 0) speed = kUnknown;
      made_.nics.push_back({above, cpu, host, static_cast<float>(speed / kMegabits), pcie});
      direct_ = direct_ && net.Whole("gdr", 0, 1, 0) == 1;
      in_network_ = in_network_ && net.Whole("coll", 0, 1, 0) == 1;
    }
  }

  void AddLinks(const Gpu& gpu) {
    const int own = place_.at(gpu.bus);
    for (const XmlElement& link : gpu.element->children) {
      if (link.name == "c2c") {
        made_.c2c = static_cast<float>(link.Whole("bw", 1, 10'000'000) *
                                       link.Whole("count", 1, kMostCount) / 1000.0);
      }
      if (link.name != "nvlink") continue;
      const int count = link.Whole("count", 1, kMostCount);
      const std::string& kind = link.Text("tclass");
      if (kind.starts_with("0x068000")) {
        made_.nvlinks.push_back({own, -1, count});
      } else if (kind.starts_with("0x03")) {
        const auto other = place_.find(link.Text("target"));
        // Both ends name the link.
        if (other != place_.end() && other->second > own)
          made_.nvlinks.push_back({own, other->second, count});
      }
    }
  }

  nccl::NodeDescription made_;
  std::map<std::string, int> hosts_;
  std::map<int, Gpu> ranked_;         // by rank
  std::map<std::string, int> place_;  // by bus
  bool direct_ = true, in_network_ = true;
};

LoggedGraph ReadGraph(const XmlElement& element) {
  constexpr double kMostRate = 1e5;
  LoggedGraph graph;
  graph.line = element.where.line;
  graph.pattern = static_cast<nccl::Pattern>(
      element.Whole("pattern", 1, static_cast<int>(nccl::Pattern::kDirect)));
  graph.cross_nic = element.Whole("crossnic", 0, 2);
  graph.channels = element.Whole("nchannels", 0, kMostChannels);
  graph.inside = element.Number("speedintra", 0, kMostRate);
  graph.across = element.Number("speedinter", 0, kMostRate);
  graph.path_inside = element.Text("typeintra");
  graph.path_across = element.Text("typeinter");
  for (const XmlElement& channel : element.children) {
    if (channel.name != "channel") continue;
    std::vector<int>& gpus = graph.order.emplace_back();
    for (const XmlElement& device : channel.children) {
      if (device.name == "gpu") gpus.push_back(DeviceOf(device));
    }
  }
  return graph;
}

}  // namespace

std::vector<LoggedGraph> ReadNcclGraphs(const SourcePtr& source) {
  const XmlElement root = ReadRoot(source, "graphs", "NCCL_GRAPH_DUMP_FILE");
  std::vector<LoggedGraph> graphs;
  for (const XmlElement& element : root.children) {
    // Patterns that were not searched for are dumped as zeros.
    if (element.name != "graph" || element.Whole("nchannels", 0, kMostChannels) == 0) continue;
    graphs.push_back(ReadGraph(element));
  }
  if (graphs.empty())
    Refuse(root.where, "no graph with a channel in this dump", "NCCL_GRAPH_DUMP_FILE dumps them");
  return graphs;
}

nccl::NodeDescription ReadNcclTopology(const SourcePtr& source) {
  const XmlElement root = ReadRoot(source, "system", "NCCL_TOPO_DUMP_FILE");
  return TopologyReader().Read(root);
}

}  // namespace orrery::measured
