// SPDX-License-Identifier: Apache-2.0
// Which NICs and ports are those of training, where several networks or rates are seen.
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "model/discover/sheet.h"

namespace orrery::discover {
namespace {

// Active ports of one network and rate.
struct PortGroup {
  std::string network;
  double rate = 0;
  int64_t count = 0;
  double total() const { return rate * static_cast<double>(count); }
};

std::vector<PortGroup> GroupsOf(const std::vector<IbDevice>& ports) {
  std::vector<PortGroup> groups;
  for (const IbDevice& one : ports) {
    if (!one.active()) continue;
    const auto same = std::ranges::find_if(groups, [&](const PortGroup& group) {
      return group.network == one.network && group.rate == one.rate.value;
    });
    if (same == groups.end())
      groups.push_back({one.network, one.rate.value, 1});
    else
      ++same->count;
  }
  return groups;
}

std::string NicsText(int64_t count) {
  return fmt::format("{} NIC{}", count, count == 1 ? "" : "s");
}

// Of a port next to those of training.
std::string WhyNotOf(const PortGroup& most, const std::vector<PortGroup>& groups,
                     const IbDevice& port) {
  const auto own = std::ranges::find_if(groups, [&](const PortGroup& group) {
    return group.network == port.network && group.rate == port.rate.value;
  });
  const bool other = port.network != most.network;
  std::string why = fmt::format(
      "{} next to {} {}", other ? port.network : "at " + Gbps(port.rate), NicsText(most.count),
      other ? "of " + most.network : "at " + Gbps(BytesPerSecond(most.rate)));
  if (own->total() == most.total() && own->count == most.count) why += ", as fast as these";
  return why;
}

}  // namespace

// Of NICs whose source shows slots alone: a bond of Ethernet ports next to InfiniBand is none of training.
void Sheet::NameNetworks() {
  if (!seen_.tree) return;
  for (PcieDevice& device : seen_.tree->value.devices) {
    if (!device.nic) continue;
    for (const IbDevice& one : seen_.ib) {
      if (one.name != device.name) continue;
      if (device.network.empty()) device.network = one.network;
      if (device.rate.value <= 0 && one.active()) device.rate = one.rate;
    }
  }
  // What the tree alone said of them is decided again.
  std::erase_if(seen_.left_out, [&](const LeftOut& one) {
    return std::ranges::any_of(seen_.tree->value.devices, [&](const PcieDevice& device) {
      return device.nic && NameOf(device) == one.name;
    });
  });
  seen_.LeaveOut(seen_.tree->value);
}

// Those of NICs of the tree by their names; else those of the network and rate that carry most together, of the network
// that another source names if it does.
std::vector<const IbDevice*> Sheet::PortsOfTraining() {
  std::vector<const IbDevice*> ports;
  if (seen_.tree) {
    for (const PcieDevice* nic : NicsOf(seen_.tree->value)) {
      const IbDevice* port = nullptr;  // of several an active one
      for (const IbDevice& one : seen_.ib)
        if (one.name == nic->name && (port == nullptr || !port->active())) port = &one;
      if (port != nullptr) ports.push_back(port);
    }
  }
  if (!ports.empty()) return ports;
  std::vector<PortGroup> groups = GroupsOf(seen_.ib);
  const auto named = [&](const PortGroup& group) {
    return seen_.network && group.network == seen_.network->value;
  };
  const bool any = std::ranges::any_of(groups, named);
  const auto before = [&](const PortGroup& a, const PortGroup& b) {
    if (any && named(a) != named(b)) return named(b);
    if (a.total() != b.total()) return a.total() < b.total();
    if (a.count != b.count) return a.count < b.count;
    return a.network != b.network ? b.network == "infiniband" : a.rate < b.rate;
  };
  const auto most = std::ranges::max_element(groups, before);
  for (const IbDevice& one : seen_.ib) {
    if (!one.active() || most == groups.end()) continue;
    if (one.network == most->network && one.rate.value == most->rate)
      ports.push_back(&one);
    else
      seen_.LeaveOut({one.name, WhyNotOf(*most, groups, one), one.where});
  }
  return ports;
}

// A NIC whose ports are all down is in its slot and carries nothing.
void Sheet::LeaveOutPorts() {
  if (seen_.ib.empty()) return;
  const bool several = seen_.hosts.size() > 1 || (seen_.nodes && seen_.nodes->value > 1);
  if (several && std::ranges::none_of(seen_.ib, &IbDevice::active))
    Refuse(seen_.ib.front().where, "no port here is active, and the cluster has several nodes",
           "bring the links up and print the list again, or leave this file out");
  std::set<std::string> up, down;
  for (const IbDevice& one : seen_.ib) (one.active() ? up : down).insert(one.name);
  if (!seen_.tree) return;
  std::erase_if(seen_.tree->value.devices, [&](const PcieDevice& device) {
    return device.nic && down.contains(device.name) && !up.contains(device.name);
  });
}

}  // namespace orrery::discover
