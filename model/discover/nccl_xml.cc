// SPDX-License-Identifier: Apache-2.0
// NCCL's topology and graph dumps, and the files that providers ship for NCCL_TOPO_FILE.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <set>

#include "model/base/xml_tree.h"
#include "model/discover/known_devices.h"
#include "model/discover/lines.h"
#include "model/discover/observed.h"

namespace orrery::discover {
namespace {

constexpr int kMostParallelLinks = 64;

std::string AttributeOf(const XmlElement& element, const char* name) {
  const std::string* text = element.Find(name);
  return text == nullptr ? "" : *text;
}

// "0x030200" -> "0302"
std::string ClassOf(const XmlElement& pci) {
  const std::string text = AttributeOf(pci, "class");
  return text.starts_with("0x") && text.size() >= 6 ? text.substr(2, 4) : "";
}

// "0x10de", "0x2330" -> "10de:2330"; "" for the placeholders of made-up files
std::string PciIdOf(const XmlElement& pci) {
  const std::string vendor = AttributeOf(pci, "vendor"), device = AttributeOf(pci, "device");
  const auto made_up = [](const std::string& id) {
    return !id.starts_with("0x") || id == "0xffff" || id == "0x0000";
  };
  if (made_up(vendor) || made_up(device)) return "";
  return vendor.substr(2) + ":" + device.substr(2);
}

struct LinkRow {
  std::string from, target, kind;  // buses; class of the target, "0680"
  int count = 0;
  Location where;
};

class TopologyXml {
 public:
  explicit TopologyXml(Observed* seen) : seen_(seen) {}

  void Read(const XmlElement& root) {
    for (const XmlElement& cpu : root.children) {
      if (cpu.name == "cpu") ReadCpu(cpu);
    }
    if (tree_.devices.empty() && unknown_.empty())
      Refuse(root.where, "no GPU and no NIC in this topology",
             "NCCL_TOPO_DUMP_FILE=topo.xml dumps it when a job starts");
    // The GPU before its links: of two that differ, their names say more.
    seen_->SayTree(tree_, 3, root.where);
    if (!links_.empty()) SayLinks(root.where, GpusOf(tree_));
    seen_->unnamed.insert(seen_->unnamed.end(), unknown_.begin(), unknown_.end());
  }

 private:
  void ReadCpu(const XmlElement& cpu) {
    const std::string hash = AttributeOf(cpu, "host_hash");
    // A dump of a scale-up domain shows the CPUs of several nodes: those of the first describe one.
    if (first_hash_.empty()) first_hash_ = hash;
    if (hash != first_hash_) return;
    const std::string numa = fmt::format("{}", tree_.hosts.size());
    tree_.hosts.push_back(numa);
    if (tree_.hosts.size() > 64) Refuse(cpu.where, "more than 64 CPUs in a node");
    SayCpu(cpu);
    Walk(cpu, numa, "", cpu.where);
  }

  void SayCpu(const XmlElement& cpu) {
    const std::string arch = AttributeOf(cpu, "arch"), vendor = AttributeOf(cpu, "vendor");
    if (arch.starts_with("arm") || arch == "aarch64") seen_->SayCpu(HostKind::kArm, cpu.where);
    if (vendor == "GenuineIntel") seen_->SayCpu(HostKind::kIntel, cpu.where);
    if (vendor == "AuthenticAMD") seen_->SayCpu(HostKind::kAmd, cpu.where);
  }

  void Walk(const XmlElement& above, const std::string& host, const std::string& group,
            const Location& where) {
    for (const XmlElement& child : above.children) {
      if (child.name == "pci") ReadPci(child, host, group);
      if (child.name == "nic") AddNics(child, host, group, {});
    }
    if (tree_.devices.size() + unknown_.size() > kMostDevices)
      Refuse(where, fmt::format("more than {} devices", kMostDevices));
  }

  void ReadPci(const XmlElement& pci, const std::string& host, const std::string& group) {
    const std::string kind = ClassOf(pci);
    if (kind.starts_with("0604")) return Walk(pci, host, AttributeOf(pci, "busid"), pci.where);
    bool gpu = IsGpuClass(kind), nic = IsNicClass(kind);
    for (const XmlElement& child : pci.children) {
      gpu = gpu || child.name == "gpu";
      nic = nic || child.name == "nic";
    }
    if (gpu) return AddGpu(pci, host, group);
    if (nic) return AddNic(pci, host, group);
    if (kind.empty() && pci.children.empty()) {
      unknown_.push_back(Device(pci, host, group));
      return;
    }
    Walk(pci, host, kind.empty() ? AttributeOf(pci, "busid") : group, pci.where);
  }

  PcieDevice Device(const XmlElement& pci, const std::string& host, const std::string& group) {
    PcieDevice device;
    device.bus = AttributeOf(pci, "busid");
    device.host = host;
    device.group = group;
    device.where = pci.where;
    const std::string width = AttributeOf(pci, "link_width");
    device.pcie = PcieRate(AttributeOf(pci, "link_speed"),
                           static_cast<int>(std::min<int64_t>(WholeOf(width).value_or(0), 64)));
    return device;
  }

  void AddGpu(const XmlElement& pci, const std::string& host, const std::string& group) {
    PcieDevice device = Device(pci, host, group);
    const std::string id = PciIdOf(pci);
    device.kind = GpuOfPci(id);
    if (!id.empty() && device.kind.empty() && !seen_->unknown_gpu)
      seen_->unknown_gpu = Fact<std::string>{"PCI device " + id, pci.where};
    for (const XmlElement& gpu : pci.children) {
      if (gpu.name != "gpu") continue;
      device.index = gpu.Whole("dev", 0, 1 << 20, -1);
      for (const XmlElement& link : gpu.children) {
        if (link.name != "nvlink" && link.name != "xgmi") continue;
        const std::string kind = AttributeOf(link, "tclass");
        links_.push_back({device.bus, AttributeOf(link, "target"),
                          kind.starts_with("0x") ? kind.substr(2, 4) : "",
                          link.Whole("count", 1, kMostParallelLinks), link.where});
      }
    }
    tree_.devices.push_back(std::move(device));
  }

  void AddNic(const XmlElement& pci, const std::string& host, const std::string& group) {
    PcieDevice device = Device(pci, host, group);
    device.nic = true;
    device.network = NetworkOfPci(PciIdOf(pci), ClassOf(pci));
    const std::size_t before = tree_.devices.size();
    for (const XmlElement& nic : pci.children) {
      if (nic.name == "nic") AddNics(nic, host, group, device);
    }
    if (tree_.devices.size() > before) return;
    tree_.devices.push_back(std::move(device));
  }

  // `slot`: the device that they are ports of; empty: not said.
  void AddNics(const XmlElement& nic, const std::string& host, const std::string& group,
               const PcieDevice& slot) {
    for (const XmlElement& net : nic.children) {
      if (net.name != "net") continue;
      PcieDevice device;
      device.nic = true;
      device.bus = slot.bus;
      device.pcie = slot.pcie;
      device.name = AttributeOf(net, "name");
      device.host = host;
      device.group = group;
      device.network = slot.network;
      if (device.name.starts_with("rdmap") || device.name.starts_with("efa"))
        device.network = "efa";
      device.where = net.where;
      if (const std::string gdr = AttributeOf(net, "gdr"); gdr == "0" || gdr == "1")
        device.gpu_direct = gdr == "1";
      if (net.Find("speed") != nullptr)
        device.rate = BytesPerSecond(net.Number("speed", 1, 1e8) * 1e6 / 8);
      tree_.devices.push_back(std::move(device));
    }
  }

  void SayLinks(const Location& where, const std::vector<const PcieDevice*>& gpus) {
    std::map<std::string, int> place;
    for (std::size_t i = 0; i < gpus.size(); ++i) place[gpus[i]->bus] = static_cast<int>(i);
    std::vector<int> into_switch(gpus.size(), 0);
    std::map<std::pair<int, int>, int> pairs;
    bool unknown = false;
    for (const LinkRow& link : links_) {
      const auto from = place.find(link.from), to = place.find(link.target);
      if (from == place.end()) continue;
      if (link.kind == "0680") {
        into_switch[static_cast<std::size_t>(from->second)] += link.count;
      } else if (to != place.end() && to->second != from->second) {
        AddPair(from->second, to->second, link, &pairs);
      } else {
        unknown = true;
      }
    }
    ScaleUp made;
    const int most = into_switch.empty() ? 0 : *std::ranges::max_element(into_switch);
    if (most > 0) {
      made.kind = IntraLink::kNvSwitch;
      made.links_per_gpu = std::min(most, 64);
      for (std::size_t i = 0; i < into_switch.size(); ++i) {
        if (into_switch[i] != most)
          seen_->notes.push_back(fmt::format("gpu{} has {} NVLinks, others {} ({})", i,
                                             into_switch[i], most, PlaceText(gpus[i]->where)));
      }
    } else if (!pairs.empty()) {
      made.kind = IntraLink::kCubeMesh;
      for (const auto& [ends, count] : pairs) made.mesh.push_back({ends.first, ends.second, count});
    } else {
      if (unknown)
        seen_->notes.push_back(
            fmt::format("NVLinks whose other end is no device of the file ({}): not drawn",
                        PlaceText(links_.front().where)));
      return;
    }
    seen_->SayScaleUp(std::move(made), where);
  }

  // Each end writes the pair: twice the same.
  void AddPair(int a, int b, const LinkRow& link, std::map<std::pair<int, int>, int>* pairs) {
    const auto ends = std::minmax(a, b);
    const auto [known, added] = pairs->try_emplace({ends.first, ends.second}, link.count);
    if (!added && known->second != link.count)
      Refuse(link.where,
             fmt::format("{} NVLinks between gpu{} and gpu{}, but {} from its other end",
                         link.count, ends.first, ends.second, known->second));
  }

  Observed* seen_;
  PcieTree tree_;
  std::vector<PcieDevice> unknown_;
  std::vector<LinkRow> links_;
  std::string first_hash_;
};

// Providers name the instance type in a comment, in backquotes: `p4d.24xlarge`.
void ReadComment(const SourcePtr& source, Observed* seen) {
  for (const Line& line : LinesOf(*source)) {
    const std::size_t open = line.text.find('`');
    const std::size_t close = open == std::string::npos ? open : line.text.find('`', open + 1);
    if (close == std::string::npos) continue;
    const std::string word = line.text.substr(open + 1, close - open - 1);
    if (word.size() < 32 && word.find('.') != std::string::npos && word.ends_with("xlarge"))
      return seen->SayMachine(word, {source, line.number, static_cast<int>(open) + 2});
  }
}

// "ndv5" of "ndv5-topo.xml", as Azure calls its files (Azure/azhpc-images, topology/) after a series
// of machines; "": of none.
std::string AzureSeriesOf(std::string_view name) {
  const std::size_t end = name.find("-topo.");
  if (end == std::string_view::npos) return "";
  std::size_t begin = end;
  while (begin > 0 && std::isalnum(static_cast<unsigned char>(name[begin - 1])) != 0) --begin;
  const std::string_view word = name.substr(begin, end - begin);
  if (!word.starts_with("ndv") && !word.starts_with("ncv")) return "";
  return WholeOf(word.substr(3)) ? std::string(word) : "";
}

// AWS calls its files after the machine: "p5.48xl-topo.xml", "p4d-24xl-topo.xml".
void ReadFileName(const SourcePtr& source, Observed* seen) {
  std::string name = std::filesystem::path(source->name).filename().string();
  if (const std::string series = AzureSeriesOf(name); !seen->machine && !series.empty())
    return seen->SayMachine(series, {source, 0, 0});
  name = name.substr(0, name.find("xl-topo"));
  const std::size_t cut = name.find_last_of(".-");
  if (seen->machine || cut == std::string::npos || cut == 0 || name.size() > 32 ||
      !WholeOf(std::string_view(name).substr(cut + 1)))
    return;
  seen->SayMachine(name.substr(0, cut) + "." + name.substr(cut + 1) + "xlarge", {source, 0, 0});
}

}  // namespace

void ReadNcclTopologyXml(const SourcePtr& source, Observed* seen) {
  const XmlElement root = ReadXml(source);
  if (root.name != "system")
    Refuse(root.where, fmt::format("<{}> where <system> was expected", root.name));
  ReadComment(source, seen);
  ReadFileName(source, seen);
  TopologyXml(seen).Read(root);
}

void ReadNcclGraphXml(const SourcePtr& source, Observed* seen) {
  const XmlElement root = ReadXml(source);
  if (root.name != "graphs")
    Refuse(root.where, fmt::format("<{}> where <graphs> was expected", root.name));
  std::set<std::string> gpus, nics;
  for (const XmlElement& graph : root.children) {
    // The longest way between two GPUs of a channel: over NVLink, or by way of a GPU in between.
    const std::string way = AttributeOf(graph, "typeintra");
    if ((way == "NVL" || way == "NVB") && !seen->nvlinks)
      seen->nvlinks = Fact<std::vector<NvBundle>>{{}, graph.where};
    for (const XmlElement& channel : graph.children) {
      for (const XmlElement& device : channel.children) {
        if (device.name == "gpu") gpus.insert(device.Text("dev"));
        if (device.name == "net") nics.insert(device.Text("dev"));
      }
    }
  }
  if (gpus.empty()) Refuse(root.where, "no GPU in these graphs");
  if (gpus.size() > 64 || nics.size() > 64) Refuse(root.where, "more than 64 GPUs or NICs");
  seen->SayGpus(static_cast<int64_t>(gpus.size()), root.where);
  const auto used = static_cast<int64_t>(nics.size());
  if (!seen->nics_used || seen->nics_used->value < used)
    seen->nics_used = Fact<int64_t>{used, root.where};
}

}  // namespace orrery::discover
