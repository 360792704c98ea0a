// SPDX-License-Identifier: Apache-2.0
// hwloc's XML (lstopo --of xml): packages, PCI bridges and devices, what the firmware calls the machine.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "model/base/xml_tree.h"
#include "model/discover/known_devices.h"
#include "model/discover/lines.h"
#include "model/discover/observed.h"

namespace orrery::discover {
namespace {

std::string HwlocText(const XmlElement& element, const char* name) {
  const std::string* text = element.Find(name);
  return text == nullptr ? "" : *text;
}

// The value of <info name="NAME" value="..."/>.
std::string InfoOf(const XmlElement& object, std::string_view name) {
  for (const XmlElement& child : object.children) {
    if (child.name == "info" && HwlocText(child, "name") == name) return HwlocText(child, "value");
  }
  return "";
}

// As the machine's list of PCI ids has it, else as the driver says.
std::string NameOfGpu(const XmlElement& pci) {
  std::string name = InfoOf(pci, "PCIDevice");
  for (const XmlElement& child : pci.children) {
    if (name.empty() && HwlocText(child, "type") == "OSDev") name = InfoOf(child, "GPUModel");
  }
  return name;
}

// Lanes of 64 GT/s have flits (242 of 256 bytes, as in hwloc's pci-common.c), yet files of hwloc 2.10
// count them at 128b/130b: "126.030769" are 16 such lanes. Up to 63 GB/s it may as well be a wider
// link of 32 GT/s.
BytesPerSecond LinkRate(const XmlElement& pci) {
  const double rate = pci.Number("pci_link_speed", 0, 1e4) * 1e9;
  const double lanes = rate / (64e9 / 8 * 128 / 130);
  const bool coded = rate > 1.01 * PcieRate("32", 16).value && lanes < 64.5 &&
                     std::abs(lanes - std::round(lanes)) < 1e-3;
  return coded ? PcieRate("64", static_cast<int>(std::lround(lanes))) : BytesPerSecond(rate);
}

class HwlocReader {
 public:
  explicit HwlocReader(Observed* seen) : seen_(seen) {}

  void Read(const XmlElement& root) {
    for (const XmlElement& machine : root.children) {
      if (machine.name != "object") continue;
      const std::string product = InfoOf(machine, "DMIProductName");
      if (NamesMachine(product)) seen_->SayMachine(product, machine.where);
      if (InfoOf(machine, "Architecture") == "aarch64")
        seen_->SayCpu(HostKind::kArm, machine.where);
      Walk(machine, "", "", "");
    }
    if (tree_.devices.empty())
      Refuse(root.where, "no GPU and no NIC in this topology",
             "lstopo --of xml --whole-io writes them");
    if (nvswitches_ > 0)
      seen_->notes.push_back(fmt::format("{} NVLink switch{} ({})", nvswitches_,
                                         nvswitches_ == 1 ? "" : "es", PlaceText(nvswitch_where_)));
    if (tree_.hosts.empty()) tree_.hosts.push_back("0");
    for (PcieDevice& device : tree_.devices) {
      if (device.host.empty()) device.host = tree_.hosts.front();
    }
    seen_->SayTree(std::move(tree_), 3, root.where);
  }

 private:
  // `bus`: of the host bridge; `group`: the first bridge below it.
  void Walk(const XmlElement& above, std::string host, const std::string& bus,
            const std::string& group) {
    for (const XmlElement& child : above.children) {
      if (child.name != "object") continue;
      const std::string type = HwlocText(child, "type");
      if (type == "Package") {
        const std::string own = std::to_string(tree_.hosts.size());
        tree_.hosts.push_back(own);
        SayVendor(child);
        Walk(child, own, "", "");
      } else if (type == "Bridge") {
        const bool of_host = HwlocText(child, "bridge_type").starts_with("0");
        const std::string name = HwlocText(child, of_host ? "bridge_pci" : "pci_busid");
        Walk(child, host, of_host ? name : bus, of_host || !group.empty() ? group : name);
      } else if (type == "PCIDev") {
        AddDevice(child, host, bus, group);
      } else {
        Walk(child, host, bus, group);
      }
    }
  }

  void SayVendor(const XmlElement& package) {
    const std::string vendor = InfoOf(package, "CPUVendor");
    if (vendor == "GenuineIntel") seen_->SayCpu(HostKind::kIntel, package.where);
    if (vendor == "AuthenticAMD") seen_->SayCpu(HostKind::kAmd, package.where);
  }

  void AddDevice(const XmlElement& pci, const std::string& host, const std::string& bus,
                 const std::string& group) {
    // "0302 [10de:20b0] [10de:134f] a1"
    const std::string type = HwlocText(pci, "pci_type");
    const std::string kind = type.substr(0, 4), id = type.size() > 15 ? type.substr(6, 9) : "";
    if (kind == "0680" && id.starts_with("10de:") && nvswitches_++ == 0)
      nvswitch_where_ = pci.where;
    if (!IsGpuClass(kind) && !IsNicClass(kind)) return;
    if (tree_.devices.size() >= kMostDevices)
      Refuse(pci.where, fmt::format("more than {} devices", kMostDevices));
    PcieDevice device;
    device.nic = IsNicClass(kind);
    device.bus = HwlocText(pci, "pci_busid");
    device.host = host;
    // Virtual machines show no switch: what shares a root bus of its own shares one.
    const bool own_bus = !bus.empty() && bus.find(":[00") == std::string::npos;
    device.group = !group.empty() ? group : own_bus ? bus : "";
    device.where = pci.where;
    if (pci.Find("pci_link_speed") != nullptr) device.pcie = LinkRate(pci);
    if (device.nic) {
      device.network = NetworkOfPci(id, kind);
      for (const XmlElement& child : pci.children) {
        if (HwlocText(child, "type") == "OSDev") device.name = HwlocText(child, "name");
      }
    } else {
      const std::string name = NameOfGpu(pci);
      device.kind = GpuOfPci(id);
      if (device.kind.empty()) device.kind = GpuOfName(name);
      if (device.kind.empty() && !seen_->unknown_gpu)
        seen_->unknown_gpu = Fact<std::string>{
            name.empty() ? "PCI device " + id : fmt::format("{} (PCI device {})", name, id),
            pci.where};
    }
    tree_.devices.push_back(std::move(device));
  }

  Observed* seen_;
  PcieTree tree_;
  int nvswitches_ = 0;
  Location nvswitch_where_;
};

}  // namespace

void ReadHwlocXml(const SourcePtr& source, Observed* seen) {
  HwlocReader(seen).Read(ReadXml(source));
}

}  // namespace orrery::discover
