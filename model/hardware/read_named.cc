// SPDX-License-Identifier: Apache-2.0
// Reads a fabric of named switches and hosts: every NIC of every host is plugged in once, and every
// switch with hosts reaches every other.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "model/hardware/host_order.h"
#include "model/hardware/read_parts.h"

namespace orrery {
namespace {

constexpr std::size_t kMostSwitches = 2048;
constexpr std::size_t kMostSwitchLinks = 65'536;  // parallel ones counted each
constexpr int64_t kMostParallel = 1024;
constexpr std::size_t kLongestName = 128;

class NamedReader {
 public:
  NamedReader(const Node& map, const TopologySpec& spec, FabricSpec* fabric)
      : map_(map), spec_(spec), fabric_(fabric) {
    for (std::size_t k = 0; k < spec.node.nics.size(); ++k)
      nics_[spec.node.nics[k]] = static_cast<int>(k);
  }

  void Read() {
    map_.Find("hosts");  // read last: it needs the switches
    for (const Node& row : map_.Items("switches")) ReadSwitch(row);
    if (map_.Has("links")) {
      for (const Node& row : map_.Items("links")) ReadLink(row);
    }
    if (!map_.diagnostics()->ok()) return;
    CheckHosts();
    if (!map_.diagnostics()->ok()) return;
    NumberHosts();
    if (!map_.diagnostics()->ok()) return;
    CheckConnected();
    SetOversubscription();
  }

 private:
  // Names stand in commands ("leaf0-spine1") and in drawings.
  std::string ReadName(const Node& at, const std::string& name) {
    const bool plain = std::ranges::all_of(name, [](unsigned char c) {
      return std::isalnum(c) || c == '-' || c == '_' || c == '.' || c == ':';
    });
    if (name.empty() || name.size() > kLongestName || !plain)
      at.Error(fmt::format("'{}' is no name of a switch or host", name.substr(0, kLongestName)),
               "letters, digits, '-', '_', '.' and ':', at most 128");
    return name;
  }

  void ReadSwitch(const Node& row) {
    if (fabric_->switches.size() >= kMostSwitches) {
      if (fabric_->switches.size() == kMostSwitches)
        row.Error(fmt::format("more than {} switches", kMostSwitches));
      return;
    }
    NamedSwitch made;
    made.name = ReadName(row, row.String("name"));
    if (!places_.try_emplace(made.name, static_cast<int>(fabric_->switches.size())).second)
      row.ErrorAt("name", fmt::format("two switches are called '{}'", made.name));
    const bool has_hosts = row.Has("hosts");
    if (row.Has("nics")) {
      for (const Node& nic : row.Items("nics")) AddNic(nic, &made);
      if (!has_hosts) row.ErrorAt("nics", "NICs, but no hosts", "add 'hosts: [...]'");
    } else if (has_hosts) {
      for (std::size_t k = 0; k < nics_.size(); ++k) made.nics.push_back(static_cast<int>(k));
    }
    if (has_hosts) {
      for (const Node& host : row.Items("hosts")) Plug(host, &made);
    }
    row.RejectUnknownKeys();
    fabric_->switches.push_back(std::move(made));
  }

  void AddNic(const Node& cell, NamedSwitch* made) {
    const std::string name = cell.AsString();
    const auto found = nics_.find(name);
    if (found == nics_.end()) {
      cell.Error("no device '" + name + "' in a node", SuggestName(name, spec_.node.nics));
    } else if (std::ranges::find(made->nics, found->second) != made->nics.end()) {
      cell.Error(name + " stands here twice");
    } else {
      made->nics.push_back(found->second);
    }
  }

  void Plug(const Node& cell, NamedSwitch* made) {
    const std::string name = ReadName(cell, cell.AsString());
    const auto [host, added] =
        hosts_.try_emplace(name, static_cast<int64_t>(fabric_->hosts.size()));
    if (added) {
      if (static_cast<int64_t>(fabric_->hosts.size()) > spec_.max_nodes) return;
      fabric_->hosts.push_back(name);
      plugged_.emplace_back(nics_.size(), -1);
    }
    if (host->second >= static_cast<int64_t>(plugged_.size())) return;
    auto& plugs = plugged_[static_cast<std::size_t>(host->second)];
    for (const int nic : made->nics) {
      int& at = plugs[static_cast<std::size_t>(nic)];
      if (at >= 0) {
        const bool here = at == static_cast<int>(fabric_->switches.size());
        const std::string other =
            here ? made->name : fabric_->switches[static_cast<std::size_t>(at)].name;
        cell.Error(fmt::format("{} of host '{}' is on switch '{}' already",
                               spec_.node.nics[static_cast<std::size_t>(nic)], name, other),
                   "a NIC has one switch; 'nics: [nic0]' plugs in only some");
        return;
      }
      at = static_cast<int>(fabric_->switches.size());
    }
    made->hosts.push_back(host->second);
  }

  int Switch(const Node& cell) {
    const std::string name = cell.AsString();
    const auto found = places_.find(name);
    if (found != places_.end()) return found->second;
    std::vector<std::string> names;
    for (const auto& [known, place] : places_) names.push_back(known);
    cell.Error("no switch '" + name + "'", SuggestName(name, names));
    return -1;
  }

  void ReadLink(const Node& row) {
    const std::vector<Node> ends = row.Items("between");
    SwitchLink link;
    link.rate = row.ReadBytesPerSecond("rate");
    link.count = static_cast<int>(row.Integer("count", 1, kMostParallel, 1));
    row.RejectUnknownKeys();
    if (ends.size() != 2) {
      row.ErrorAt("between", "a link is between two switches", "between: [leaf0, spine0]");
      return;
    }
    link.a = Switch(ends[0]);
    link.b = Switch(ends[1]);
    if (link.a < 0 || link.b < 0) return;
    if (link.a == link.b) row.ErrorAt("between", "a link from a switch to itself");
    parallel_ += static_cast<std::size_t>(link.count);
    if (parallel_ > kMostSwitchLinks) {
      row.Error(fmt::format("more than {} links", kMostSwitchLinks));
      return;
    }
    fabric_->links.push_back(link);
  }

  void CheckHosts() {
    if (static_cast<int64_t>(fabric_->hosts.size()) != spec_.max_nodes) {
      map_.ErrorAt("switches",
                   fmt::format("max_nodes is {}, but these switches have {} hosts", spec_.max_nodes,
                               hosts_.size()),
                   "max_nodes is the number of hosts");
      return;
    }
    for (std::size_t host = 0; host < plugged_.size(); ++host) {
      for (std::size_t nic = 0; nic < plugged_[host].size(); ++nic) {
        if (plugged_[host][nic] >= 0) continue;
        map_.ErrorAt("switches", fmt::format("{} of host '{}' is on no switch",
                                             spec_.node.nics[nic], fabric_->hosts[host]));
        return;
      }
    }
  }

  // Old numbers in the order of `hosts`; shorter with an error.
  std::vector<std::size_t> ListedHosts() const {
    std::vector<std::size_t> order;
    std::vector<char> listed(fabric_->hosts.size(), 0);
    for (const Node& cell : map_.Items("hosts")) {
      const std::string name = cell.AsString();
      if (!map_.diagnostics()->ok()) return order;
      const auto found = hosts_.find(name);
      if (found == hosts_.end()) {
        cell.Error(fmt::format("host '{}' is on no switch", name.substr(0, kLongestName)),
                   SuggestName(name, fabric_->hosts));
        return order;
      }
      const auto host = static_cast<std::size_t>(found->second);
      if (listed[host]++ != 0) {
        cell.Error(fmt::format("host '{}' stands here twice", name), "each host once");
        return order;
      }
      order.push_back(host);
    }
    if (!map_.diagnostics()->ok()) return order;
    if (const auto missing = std::ranges::find(listed, 0); missing != listed.end())
      map_.ErrorAt("hosts",
                   fmt::format("{} of {} hosts: '{}' is missing", order.size(), listed.size(),
                               fabric_->hosts[static_cast<std::size_t>(missing - listed.begin())]),
                   "all hosts of the switches, in the order of nodes; without this list they are "
                   "in natural order of their names");
    return order;
  }

  // Switches list hosts as they are cabled; nodes are in the order in which launchers take them.
  void NumberHosts() {
    std::vector<std::string>& names = fabric_->hosts;
    std::vector<std::size_t> order(names.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (map_.Has("hosts"))
      order = ListedHosts();
    else
      std::sort(order.begin(), order.end(),
                [&](std::size_t a, std::size_t b) { return NaturallyLess(names[a], names[b]); });
    if (!map_.diagnostics()->ok()) return;
    std::vector<std::string> numbered;
    std::vector<int64_t> node(names.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      numbered.push_back(names[order[i]]);
      node[order[i]] = static_cast<int64_t>(i);
    }
    names = std::move(numbered);
    for (NamedSwitch& one : fabric_->switches) {
      for (int64_t& host : one.hosts) host = node[static_cast<std::size_t>(host)];
      std::sort(one.hosts.begin(), one.hosts.end());
    }
  }

  void CheckConnected() {
    std::vector<std::size_t> group(fabric_->switches.size());
    for (std::size_t i = 0; i < group.size(); ++i) group[i] = i;
    const auto root = [&](std::size_t at) {
      while (group[at] != at) at = group[at] = group[group[at]];
      return at;
    };
    for (const SwitchLink& link : fabric_->links)
      group[root(static_cast<std::size_t>(link.a))] = root(static_cast<std::size_t>(link.b));
    const NamedSwitch* first = nullptr;
    std::size_t base = 0;
    for (std::size_t i = 0; i < group.size(); ++i) {
      const NamedSwitch& one = fabric_->switches[i];
      if (one.hosts.empty()) continue;
      if (first == nullptr) first = &one, base = root(i);
      if (root(i) == base) continue;
      map_.ErrorAt(map_.Has("links") ? "links" : "switches",
                   fmt::format("no way from switch '{}' to '{}'", first->name, one.name),
                   "add links: [{between: [" + first->name + ", " + one.name +
                       "], rate: 400Gbps}], or both to a third switch");
      return;
    }
  }

  void SetOversubscription() {
    std::vector<double> up(fabric_->switches.size(), 0);
    for (const SwitchLink& link : fabric_->links) {
      up[static_cast<std::size_t>(link.a)] += link.rate.value * link.count;
      up[static_cast<std::size_t>(link.b)] += link.rate.value * link.count;
    }
    fabric_->oversubscription = 1;
    for (std::size_t i = 0; i < up.size(); ++i) {
      const NamedSwitch& one = fabric_->switches[i];
      const double below =
          spec_.node.nic_rate.value * static_cast<double>(one.hosts.size() * one.nics.size());
      if (up[i] > 0) fabric_->oversubscription = std::max(fabric_->oversubscription, below / up[i]);
    }
  }

  const Node& map_;
  const TopologySpec& spec_;
  FabricSpec* fabric_;
  std::map<std::string, int> nics_, places_;
  std::map<std::string, int64_t> hosts_;   // by name, in the order of the switches
  std::vector<std::vector<int>> plugged_;  // by host, then NIC: the switch; -1: none
  std::size_t parallel_ = 0;
};

}  // namespace

void ReadNamedFabric(const Node& map, const TopologySpec& spec, FabricSpec* fabric) {
  NamedReader(map, spec, fabric).Read();
}

}  // namespace orrery
