// SPDX-License-Identifier: Apache-2.0
// This machine: /sys/bus/pci, /sys/class/infiniband, /sys/class/dmi and /proc/cpuinfo of Linux.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "model/discover/known_devices.h"
#include "model/discover/lines.h"
#include "model/discover/observed.h"

namespace orrery::discover {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kLongestFile = 1 << 20;

// The text of a small file, without the line's end; "": not there.
std::string TextOf(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return "";
  std::string text(kLongestFile, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(std::max<std::streamsize>(0, in.gcount())));
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

std::vector<fs::path> EntriesOf(const fs::path& folder) {
  std::vector<fs::path> entries;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entries.size() >= kMostDevices * 16) break;
    entries.push_back(entry.path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// A place that a message can name.
Location AtFile(const fs::path& path) {
  return {std::make_shared<const Source>(Source{path.string(), ""}), 0, 0};
}

// ".../pci0000:10/0000:10:01.0/0000:11:00.0/0000:12:00.0" -> the root port "0000:10:01.0".
std::string RootPortOf(const fs::path& device) {
  std::error_code error;
  const fs::path real = fs::canonical(device, error);
  bool behind_root = false;
  for (const fs::path& part : real) {
    if (behind_root) return part.string() == device.filename().string() ? "" : part.string();
    behind_root = part.string().starts_with("pci0") || part.string().starts_with("pci1");
  }
  return "";
}

void AddPciDevice(const fs::path& path, PcieTree* tree, Observed* seen) {
  const std::string pci_class = TextOf(path / "class");  // "0x030200"
  if (pci_class.size() < 6) return;
  const std::string kind = pci_class.substr(2, 4);
  const bool gpu = IsGpuClass(kind), nic = IsNicClass(kind);
  if (!gpu && !nic) return;
  const std::string vendor = TextOf(path / "vendor"), product = TextOf(path / "device");
  if (vendor.size() < 6 || product.size() < 6) return;
  const std::string id = vendor.substr(2) + ":" + product.substr(2);
  PcieDevice device;
  device.nic = nic;
  device.bus = path.filename().string();
  device.where = AtFile(path);
  const std::string numa = TextOf(path / "numa_node");
  device.host = numa.empty() || numa == "-1" ? "0" : numa;
  device.group = RootPortOf(path);
  // A GPU without work takes its link down to the lowest speed.
  std::string speed = TextOf(path / "current_link_speed");
  if (const std::string most = TextOf(path / "max_link_speed");
      gpu && speed.starts_with("2.5 ") && !most.empty())
    speed = most;
  device.pcie = PcieRate(speed, static_cast<int>(std::min<int64_t>(
                                    WholeOf(TextOf(path / "current_link_width")).value_or(0), 64)));
  if (nic) {
    device.network = NetworkOfPci(id, kind);
    for (const fs::path& name : EntriesOf(path / "infiniband"))
      device.name = name.filename().string();
  } else {
    device.kind = GpuOfPci(id);
    if (device.kind.empty() && !seen->unknown_gpu)
      seen->unknown_gpu = Fact<std::string>{"PCI device " + id, device.where};
  }
  if (std::ranges::find(tree->hosts, device.host) == tree->hosts.end())
    tree->hosts.push_back(device.host);
  tree->devices.push_back(std::move(device));
}

void ReadInfiniband(const fs::path& folder, Observed* seen) {
  for (const fs::path& nic : EntriesOf(folder)) {
    for (const fs::path& port : EntriesOf(nic / "ports")) {
      const std::string rate = TextOf(port / "rate");  // "400 Gb/sec (4X NDR)"
      if (rate.empty()) continue;
      IbDevice made;
      made.name = nic.filename().string();
      made.port = WholeOf(port.filename().string()).value_or(1);
      const std::vector<std::string> state = WordsOf(TextOf(port / "state")),  // "4: ACTIVE"
          link = WordsOf(TextOf(port / "phys_state"));                         // "5: LinkUp"
      if (!state.empty()) made.state = state.back();
      made.linked = link.empty() || link.back() == "LinkUp";
      made.where = AtFile(port);
      made.rate = BytesPerSecond(std::min(1e4, std::max(0.0, std::strtod(rate.c_str(), nullptr))) *
                                 1e9 / 8);
      made.network = TextOf(port / "link_layer") == "Ethernet" ? "roce" : "infiniband";
      seen->AddPort(std::move(made));
    }
  }
}

// Cores, not hardware threads, of all sockets.
void ReadCpus(const fs::path& cpuinfo, Observed* seen) {
  std::ifstream in(cpuinfo);
  std::string line, socket = "0";
  std::set<std::pair<std::string, std::string>> cores;
  int64_t threads = 0;
  const Location where = AtFile(cpuinfo);
  for (int count = 0; count < 1'000'000 && std::getline(in, line); ++count) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::vector<std::string> words = WordsOf(std::string_view(line).substr(colon + 1));
    const std::string value = words.empty() ? "" : words[0];
    if (line.starts_with("processor")) ++threads;
    if (line.starts_with("physical id")) socket = value;
    if (line.starts_with("core id")) cores.emplace(socket, value);
    if (value == "GenuineIntel") seen->SayCpu(HostKind::kIntel, where);
    if (value == "AuthenticAMD") seen->SayCpu(HostKind::kAmd, where);
    if (line.starts_with("CPU implementer")) seen->SayCpu(HostKind::kArm, where);
  }
  const int64_t found = cores.empty() ? threads : static_cast<int64_t>(cores.size());
  if (found > 0) seen->cores = Fact<int64_t>{found, where};
}

}  // namespace

void ReadMachine(const std::string& root, Observed* seen) {
  const fs::path sys = root + "/sys", proc = root + "/proc";
  PcieTree tree;
  for (const fs::path& device : EntriesOf(sys / "bus" / "pci" / "devices")) {
    if (tree.devices.size() < kMostDevices) AddPciDevice(device, &tree, seen);
  }
  ReadCpus(proc / "cpuinfo", seen);
  if (GpusOf(tree).empty()) {
    if (!seen->cores)
      throw InputError("this machine has no GPU and says nothing of its cores",
                       "give files of the cluster: plan discover topo.xml hosts");
    return;
  }
  seen->cores.reset();
  const std::string product = TextOf(sys / "class" / "dmi" / "id" / "product_name");
  if (NamesMachine(product))
    seen->SayMachine(product, AtFile(sys / "class" / "dmi" / "id" / "product_name"));
  ReadInfiniband(sys / "class" / "infiniband", seen);
  const Location where = AtFile(sys / "bus" / "pci" / "devices");
  seen->SayTree(std::move(tree), 2, where);
}

}  // namespace orrery::discover
