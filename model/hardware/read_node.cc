// SPDX-License-Identifier: Apache-2.0
// Reads the node template of a topology file: GPUs, scale-up links, PCIe tree, NICs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "model/hardware/read_parts.h"
#include "model/hardware/rings.h"

namespace orrery {
namespace {

constexpr int64_t kMostDevices = 64;  // GPUs or NICs of a node
constexpr int64_t kMostLinks = 64;    // parallel links between two devices
constexpr int64_t kMostDomain = 256;  // nodes on one scale-up switch

constexpr std::array<std::pair<const char*, IntraLink>, 5> kIntraKinds = {
    {{"none", IntraLink::kNone},
     {"pcie", IntraLink::kPcie},
     {"nvswitch", IntraLink::kNvSwitch},
     {"cube-mesh", IntraLink::kCubeMesh},
     {"full-mesh", IntraLink::kFullMesh}}};

constexpr std::array<std::pair<const char*, HostKind>, 3> kHostKinds = {
    {{"intel", HostKind::kIntel}, {"amd", HostKind::kAmd}, {"arm", HostKind::kArm}}};

std::vector<std::string> Numbered(const char* prefix, int64_t count) {
  std::vector<std::string> names;
  for (int64_t i = 0; i < count; ++i) names.push_back(prefix + std::to_string(i));
  return names;
}

int IndexOf(const std::vector<std::string>& names, const std::string& name) {
  const auto found = std::find(names.begin(), names.end(), name);
  return found == names.end() ? -1 : static_cast<int>(found - names.begin());
}

void CheckPositive(const Node& map, const std::string& key, BytesPerSecond rate) {
  if (!map.Has(key) || rate.value > 0) return;
  map.ErrorAt(key, "a rate of 0", "write the rate per direction, such as 25GB/s or 200Gbps");
}

// Reads one rate and refuses 0.
BytesPerSecond ReadRate(const Node& map, const std::string& key) {
  const BytesPerSecond rate = map.ReadBytesPerSecond(key);
  if (map.diagnostics()->ok()) CheckPositive(map, key, rate);
  return rate;
}

class NodeReader {
 public:
  explicit NodeReader(const Node& root) : root_(root) {}

  NodeSpec Read() {
    spec_.gpus = static_cast<int>(root_.Integer("gpus", 1, kMostDevices));
    gpu_names_ = Numbered("gpu", spec_.gpus);
    ReadNics();
    ReadScaleUp();
    ReadPcie();
    root_.RejectUnknownKeys();
    return std::move(spec_);
  }

 private:
  void ReadNics() {
    const auto nics = root_.Find("nics");
    if (!nics) return;
    spec_.nics = Numbered("nic", nics->Integer("count", 1, kMostDevices));
    spec_.nic_rate = ReadRate(*nics, "rate");
    spec_.gpu_direct = nics->Bool("gpu_direct", true);
    if (const auto degraded = nics->Find("degraded")) ReadDegraded(*degraded);
    nics->RejectUnknownKeys();
  }

  void ReadDegraded(const Node& map) {
    for (const std::string& name : map.Keys()) {
      const BytesPerSecond rate = ReadRate(map, name);
      const int nic = IndexOf(spec_.nics, name);
      if (nic < 0)
        map.ErrorAt(name, "no NIC '" + name + "' in this node", SuggestName(name, spec_.nics));
      else if (rate >= spec_.nic_rate)
        map.ErrorAt(name, name + " is not slower than the rate of each NIC",
                    "list those alone whose ports have trained down");
      else
        spec_.degraded_nics[nic] = rate;
    }
  }

  void ReadScaleUp() {
    const Node map = root_.Child("scale_up");
    spec_.intra =
        map.Choice("kind", std::span<const std::pair<const char*, IntraLink>>(kIntraKinds));
    spec_.link_name = map.String("link", "PCIe");
    switch (spec_.intra) {
      case IntraLink::kNone:
        if (spec_.gpus > 1) {
          map.ErrorAt("kind", fmt::format("'none' with {} GPUs in a node", spec_.gpus),
                      "write 'pcie' when they talk through PCIe");
        }
        break;
      case IntraLink::kPcie:
        break;
      case IntraLink::kNvSwitch:
        spec_.per_link = ReadRate(map, "per_link");
        spec_.links_per_gpu = static_cast<int>(map.Integer("links_per_gpu", 1, kMostLinks));
        spec_.domain_nodes = map.Integer("domain_nodes", 1, kMostDomain, 1);
        break;
      case IntraLink::kFullMesh:
        ReadFullMesh(map);
        break;
      case IntraLink::kCubeMesh:
        ReadMesh(map);
        break;
    }
    map.RejectUnknownKeys();
    if (!map.diagnostics()->ok() || spec_.mesh.empty()) return;
    for (int n = 0; n <= spec_.gpus; ++n) {
      const int rings = PackedRings(spec_.mesh, n);
      spec_.packed_rings.push_back(rings);
      spec_.relayed_rings.push_back(rings > 0 ? 0 : RelayedRings(spec_.mesh, n));
    }
  }

  void ReadFullMesh(const Node& map) {
    spec_.per_link = ReadRate(map, "per_link");
    const int count = static_cast<int>(map.Integer("links_per_pair", 1, kMostLinks));
    for (int a = 0; a < spec_.gpus; ++a) {
      for (int b = a + 1; b < spec_.gpus; ++b) spec_.mesh.push_back({a, b, count});
    }
    spec_.links_per_gpu = count * (spec_.gpus - 1);
  }

  void ReadMesh(const Node& map) {
    spec_.per_link = ReadRate(map, "per_link");
    std::vector<int> links(static_cast<std::size_t>(spec_.gpus), 0);
    for (const Node& row : map.Items("links")) {
      const std::vector<Node> cells = row.IsSequence() ? row.Elements() : std::vector<Node>();
      if (cells.size() != 3) {
        row.Error("a link is [device, device, count]", "such as [gpu0, gpu1, 2]");
        continue;
      }
      const int a = Gpu(cells[0]), b = Gpu(cells[1]);
      const int count = static_cast<int>(cells[2].AsInteger(1, kMostLinks));
      if (a < 0 || b < 0) continue;
      AddMeshLink(row, a, b, count);
      links[static_cast<std::size_t>(a)] += count;
      links[static_cast<std::size_t>(b)] += count;
    }
    if (!links.empty()) spec_.links_per_gpu = *std::max_element(links.begin(), links.end());
  }

  void AddMeshLink(const Node& row, int a, int b, int count) {
    const bool twice = std::any_of(spec_.mesh.begin(), spec_.mesh.end(), [&](const MeshLink& link) {
      return (link.a == a && link.b == b) || (link.a == b && link.b == a);
    });
    if (a == b) row.Error("a link from a GPU to itself");
    if (twice) row.Error("these two GPUs are linked twice", "write one row with the sum as count");
    spec_.mesh.push_back({a, b, count});
  }

  // -1 when the name is not a GPU of this node; then also reported.
  int Gpu(const Node& cell) {
    const std::string name = cell.AsString();
    const int index = IndexOf(gpu_names_, name);
    if (index < 0) {
      cell.Error("no device '" + name + "' in this node", SuggestName(name, gpu_names_));
    }
    return index;
  }

  void ReadPcie() {
    const Node map = root_.Child("pcie");
    spec_.pcie_rate = ReadRate(map, "rate");
    for (const Node& row : map.Items("tree")) ReadGroup(row);
    if (spec_.hosts.size() > 1) spec_.between_hosts = ReadRate(map, "between_hosts");
    if (map.Has("cpu"))
      spec_.cpu = map.Choice("cpu", std::span<const std::pair<const char*, HostKind>>(kHostKinds));
    if (map.Has("gpu_to_host")) spec_.gpu_to_host = ReadRate(map, "gpu_to_host");
    if (map.Has("host_memory")) spec_.host_memory = map.ReadBytes("host_memory");
    if (map.Has("host_bandwidth")) spec_.host_bandwidth = ReadRate(map, "host_bandwidth");
    map.RejectUnknownKeys();
    if (map.diagnostics()->ok()) CheckAllPlaced(map);
  }

  void ReadGroup(const Node& row) {
    PcieGroup group;
    const std::string host = row.String("host");
    CheckName(row, "host", host, spec_.switches);
    group.host = IndexOf(spec_.hosts, host);
    if (group.host < 0) {
      group.host = static_cast<int>(spec_.hosts.size());
      spec_.hosts.push_back(host);
    }
    if (row.Has("switch")) {
      const std::string name = row.String("switch");
      CheckName(row, "switch", name, spec_.hosts);
      if (IndexOf(spec_.switches, name) >= 0) {
        row.ErrorAt("switch", "a second switch named '" + name + "'", "names are unique in a node");
      }
      group.pcie_switch = static_cast<int>(spec_.switches.size());
      spec_.switches.push_back(name);
    }
    for (const Node& device : row.Items("devices")) Place(device, &group);
    row.RejectUnknownKeys();
    spec_.pcie.push_back(std::move(group));
  }

  void CheckName(const Node& row, const char* key, const std::string& name,
                 const std::vector<std::string>& others) {
    if (IndexOf(gpu_names_, name) >= 0 || IndexOf(spec_.nics, name) >= 0 || name == "nvswitch" ||
        IndexOf(others, name) >= 0) {
      row.ErrorAt(key, "the name '" + name + "' is taken by another device",
                  "names are unique in a node");
    }
  }

  void Place(const Node& cell, PcieGroup* group) {
    const std::string name = cell.AsString();
    const int gpu = IndexOf(gpu_names_, name), nic = IndexOf(spec_.nics, name);
    if (gpu < 0 && nic < 0) {
      std::vector<std::string> known = gpu_names_;
      known.insert(known.end(), spec_.nics.begin(), spec_.nics.end());
      cell.Error("no device '" + name + "' in this node", SuggestName(name, known));
      return;
    }
    if (std::find(placed_.begin(), placed_.end(), name) != placed_.end()) {
      cell.Error("'" + name + "' is placed a second time", "a device hangs on one switch or host");
    }
    placed_.push_back(name);
    if (gpu >= 0)
      group->gpus.push_back(gpu);
    else
      group->nics.push_back(nic);
  }

  void CheckAllPlaced(const Node& map) {
    std::vector<std::string> missing;
    for (const auto* names : {&gpu_names_, &spec_.nics}) {
      for (const std::string& name : *names) {
        if (std::find(placed_.begin(), placed_.end(), name) == placed_.end())
          missing.push_back(name);
      }
    }
    if (missing.empty()) return;
    map.ErrorAt("tree",
                fmt::format("{} {} on no switch or host", fmt::join(missing, ", "),
                            missing.size() == 1 ? "hangs" : "hang"),
                "name every GPU and NIC in one row of pcie: tree");
  }

  const Node& root_;
  NodeSpec spec_;
  std::vector<std::string> gpu_names_;
  std::vector<std::string> placed_;
};

}  // namespace

NodeSpec ReadNodeSpec(const Node& node) { return NodeReader(node).Read(); }

}  // namespace orrery
