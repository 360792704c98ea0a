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
                     const IbDevice& port, bool alike) {
  const auto own = std::ranges::find_if(groups, [&](const PortGroup& group) {
    return group.network == port.network && group.rate == port.rate.value;
  });
  const bool other = port.network != most.network;
  std::string why = fmt::format(
      "{} next to {} {}", other ? port.network : "at " + Gbps(port.rate), NicsText(most.count),
      other ? "of " + most.network : "at " + Gbps(BytesPerSecond(most.rate)));
  if (own->total() == most.total() && own->count == most.count) why += ", as fast as these";
  if (!other && !port.type.empty() && port.rate.value < most.rate && alike)
    why += fmt::format(" with the same adapter ({}): has its link trained down?", port.type);
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

// Slower ones of the same adapter that make the NICs whole have trained down: next to them are no others of training.
bool Sheet::HaveTrainedDown(int64_t fast, int64_t slow) const {
  if (slow == 0) return false;
  if (seen_.tree) {
    const auto nics = static_cast<int64_t>(NicsOf(seen_.tree->value).size());
    if (nics > 0) return fast + slow == nics;
  }
  return !IsWhole(fast, gpus_.value) && IsWhole(fast + slow, gpus_.value);
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
  if (most == groups.end()) return ports;
  const auto fast = [&](const IbDevice& one) {
    return one.active() && one.network == most->network && one.rate.value == most->rate;
  };
  const auto alike = [&](const IbDevice& one) {
    return std::ranges::any_of(
        seen_.ib, [&](const IbDevice& other) { return fast(other) && other.type == one.type; });
  };
  const auto slow = [&](const IbDevice& one) {
    return one.active() && one.network == most->network && one.rate.value < most->rate &&
           alike(one);
  };
  const bool down = HaveTrainedDown(most->count, std::ranges::count_if(seen_.ib, slow));
  for (const IbDevice& one : seen_.ib) {
    if (fast(one) || (down && slow(one)))
      ports.push_back(&one);
    else if (one.active())
      seen_.LeaveOut({one.name, WhyNotOf(*most, groups, one, alike(one)), one.where});
  }
  return ports;
}

// What NCCL says that it uses against the devices that other sources show.
void Sheet::CheckInUse(const std::vector<const IbDevice*>& used) {
  const auto& network = seen_.network_used;
  const bool sockets = network && network->value == "tcp";
  const auto active = [](const IbDevice* one) { return one->active() && !one->network.empty(); };
  const auto as_used = [&](const IbDevice* one) {
    return active(one) && one->network == network->value;
  };
  const auto first = std::ranges::find_if(used, active);
  if (network && first != used.end() && std::ranges::none_of(used, as_used)) {
    const std::string shown = fmt::format("{} says {} of {}", PlaceText((*first)->where),
                                          (*first)->network, (*first)->name);
    if (!sockets || (*first)->network == "infiniband")
      Refuse(network->where, fmt::format("the network is {} here, but {}", network->value, shown),
             "leave out the file that is not of this cluster; or NCCL does not use these NICs");
    notes_.push_back(fmt::format("NCCL uses sockets ({}) where it could use RDMA: {}",
                                 PlaceText(network->where), shown));
  }
  if (!seen_.nics_used) return;
  // Devices of another source than the log; NCCL uses ports next to those of training, too. Sockets go over any number of
  // interfaces.
  const bool in_tree = seen_.tree && !NicsOf(seen_.tree->value).empty();
  const bool others =
      in_tree ? seen_.tree->where.source != seen_.nics_used->where.source : first != used.end();
  const int64_t in_use = seen_.nics_used->value;
  const int64_t most = in_tree ? nics_.value : std::ranges::count_if(seen_.ib, &IbDevice::active);
  const bool more = in_use > most && (in_tree || (others && !sockets));
  if (more || (in_use < nics_.value && others && !sockets))
    Refuse(seen_.nics_used->where,
           fmt::format("{} in use here, but {} shows {}", NicsText(in_use), nics_.from,
                       more ? most : nics_.value),
           more ? ""
                : "NCCL leaves out NICs that are down and those that NCCL_IB_HCA does not name: "
                  "leave out the log, or the file that shows more");
}

// Each NIC's own rate, where it is below that of the others: its port or its slot has trained down.
void Sheet::FindDegraded(const std::vector<const IbDevice*>& used) {
  constexpr double kSame = 0.95;  // a port of 100 Gbit/s in a slot of 12.5 GB/s and the like
  const std::vector<const PcieDevice*> nics =
      seen_.tree ? NicsOf(seen_.tree->value) : std::vector<const PcieDevice*>();
  std::vector<Degraded> all;
  double most = 0;
  for (std::size_t i = 0; i < static_cast<std::size_t>(nics_.value); ++i) {
    const PcieDevice* nic = i < nics.size() ? nics[i] : nullptr;
    const IbDevice* port = used.size() == static_cast<std::size_t>(nics_.value) ? used[i] : nullptr;
    Degraded one{static_cast<int>(i), "", nic_rate_.value, ""};
    if (nic != nullptr) one.name = NameOf(*nic);
    if (nic != nullptr && nic->rate.value > 0)
      one.rate = nic->rate, one.from = PlaceText(nic->where);
    if (port != nullptr && port->active() && port->rate.value > 0)
      one = {one.nic, port->name, port->rate, PlaceText(port->where)};
    if (nic != nullptr && nic->pcie.value > 0 && nic->pcie.value < kSame * one.rate.value) {
      notes_.push_back(fmt::format(
          "PCIe of {} carries {:.4g}Gbps, less than its port's {} ({}): it has fewer lanes "
          "or a lower speed than it needs",
          one.name, nic->pcie.value * 8 / 1e9, Gbps(one.rate), PlaceText(nic->where)));
      one.rate = nic->pcie, one.from = PlaceText(nic->where);
    }
    most = std::max(most, one.rate.value);
    all.push_back(std::move(one));
  }
  if (all.empty()) return;
  if (most < nic_rate_.value.value) {  // all of them in such slots
    nic_rate_.from += ", as their slots carry";
    nic_rate_.value = BytesPerSecond(most);
  }
  for (Degraded& one : all) {
    if (one.rate.value < kSame * nic_rate_.value.value) degraded_.push_back(std::move(one));
  }
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
