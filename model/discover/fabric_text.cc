// SPDX-License-Identifier: Apache-2.0
// Switches as rows, links with assumed rates.
#include "model/discover/fabric_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "model/hardware/host_order.h"

namespace orrery::discover {
namespace {

class FabricWriter {
 public:
  FabricWriter(const Observed& seen, BytesPerSecond per_host) : seen_(seen), per_host_(per_host) {
    for (std::size_t i = 0; i < seen.switches.size(); ++i) place_[seen.switches[i].name] = i;
    above_.assign(seen.switches.size(), -1);
    below_.assign(seen.switches.size(), 0);
  }

  void Check() {
    PlaceSwitches();
    for (std::size_t i = 0; i < seen_.switches.size(); ++i) CountUp(i);
    const bool hosts = std::ranges::any_of(below_, [](int64_t count) { return count > 0; });
    if (!hosts && !seen_.switches.empty())
      Refuse(seen_.switches.front().where, "no switch is said to have nodes",
             "the lines of leaf switches, with Nodes=, as scontrol show topology prints them");
  }

  std::string Write(std::vector<std::string>* assumed) {
    for (const SwitchFact& one : seen_.switches) CheckName(one.name, one.where);
    PlaceHosts();
    PlaceSwitches();
    for (std::size_t i = 0; i < seen_.switches.size(); ++i) CountUp(i);
    std::string yaml = "fabric:\n  kind: named\n";
    AppendHostOrder(seen_, &yaml);
    yaml += "  switches:\n";
    for (const SwitchFact& one : seen_.switches) {
      const std::string hosts =
          one.hosts.empty() ? "" : fmt::format(", hosts: [{}]", fmt::join(one.hosts, ", "));
      yaml += fmt::format("    - {{name: {}{}}}  # {}\n", one.name, hosts, PlaceText(one.where));
    }
    std::vector<std::size_t> roots;
    for (std::size_t i = 0; i < above_.size(); ++i) {
      if (above_[i] < 0) roots.push_back(i);
    }
    const std::string core = place_.contains("core") ? "assumed-core" : "core";
    if (roots.size() > 1)
      yaml += fmt::format("    - {{name: {}}}  # assumed: no source joins these switches\n", core);
    if (seen_.switches.size() == 1) return yaml;
    yaml += "  links:\n";
    for (std::size_t i = 0; i < above_.size(); ++i) {
      if (above_[i] >= 0)
        yaml += LinkRow(seen_.switches[i].name,
                        seen_.switches[static_cast<std::size_t>(above_[i])].name, below_[i]);
    }
    for (const std::size_t root : roots) {
      if (roots.size() > 1) yaml += LinkRow(seen_.switches[root].name, core, below_[root]);
    }
    assumed->push_back("fabric.links.rate: full rate of the hosts below");
    if (roots.size() > 1) assumed->push_back("fabric.switches: " + core);
    return yaml;
  }

 private:
  std::string LinkRow(const std::string& a, const std::string& b, int64_t hosts) const {
    return fmt::format("    - {{between: [{}, {}], rate: {:.6g}Gbps}}  # assumed: full rate\n", a,
                       b, per_host_.value * static_cast<double>(hosts) * 8 / 1e9);
  }

  void PlaceHosts() {
    std::map<std::string, const SwitchFact*> of;
    for (const SwitchFact& one : seen_.switches) {
      for (const std::string& host : one.hosts) {
        const auto [known, added] = of.try_emplace(host, &one);
        if (!added)
          Refuse(one.where,
                 fmt::format("host '{}' is on switch '{}' here, but {} says '{}'", host, one.name,
                             PlaceText(known->second->where), known->second->name));
      }
    }
    for (const NamedNode& host : seen_.hosts) {
      if (!of.contains(host.name))
        Refuse(host.where,
               fmt::format("host '{}' is on no switch of {}", host.name,
                           PlaceText(seen_.switches.front().where)),
               "names must be the same in all files");
    }
  }

  void PlaceSwitches() {
    for (std::size_t i = 0; i < seen_.switches.size(); ++i) {
      for (const std::string& name : seen_.switches[i].below) {
        const auto found = place_.find(name);
        if (found == place_.end())
          Refuse(seen_.switches[i].where,
                 fmt::format("switch '{}' is described nowhere", name.substr(0, 64)));
        if (above_[found->second] >= 0)
          Refuse(seen_.switches[i].where,
                 fmt::format("switch '{}' is below '{}' already", name,
                             seen_.switches[static_cast<std::size_t>(above_[found->second])].name));
        above_[found->second] = static_cast<int>(i);
      }
    }
  }

  // Adds the hosts of a switch to all above it.
  void CountUp(std::size_t from) {
    const auto hosts = static_cast<int64_t>(seen_.switches[from].hosts.size());
    std::size_t steps = 0;
    for (int at = static_cast<int>(from); at >= 0; at = above_[static_cast<std::size_t>(at)]) {
      below_[static_cast<std::size_t>(at)] += hosts;
      if (++steps > above_.size())
        Refuse(seen_.switches[from].where,
               fmt::format("the switches above '{}' form a loop", seen_.switches[from].name));
    }
  }

  const Observed& seen_;
  BytesPerSecond per_host_;
  std::map<std::string, std::size_t> place_;
  std::vector<int> above_;
  std::vector<int64_t> below_;  // hosts
};

}  // namespace

void AppendHostOrder(const Observed& seen, std::string* yaml) {
  if (seen.launched.empty()) {
    *yaml +=
        "  # nodes 0, 1, ...: in natural order of host names, or as a list 'hosts: [...]' has "
        "them\n";
    return;
  }
  std::vector<std::string> names, rest;
  std::set<std::string> launched;
  for (const NamedNode& host : seen.launched) {
    names.push_back(host.name);
    launched.insert(host.name);
  }
  for (const NamedNode& host : seen.hosts) {
    if (!launched.contains(host.name)) rest.push_back(host.name);
  }
  std::sort(rest.begin(), rest.end(), NaturallyLess);
  names.insert(names.end(), rest.begin(), rest.end());
  *yaml += fmt::format("  hosts: [{}]  # nodes 0, 1, ...: the order of {}\n",
                       fmt::join(names, ", "), PlaceText(seen.launched.front().where));
}

void CheckSwitches(const Observed& seen) { FabricWriter(seen, {}).Check(); }

void AppendNamedFabric(const Observed& seen, BytesPerSecond per_host, std::string* yaml,
                       std::vector<std::string>* assumed) {
  *yaml += FabricWriter(seen, per_host).Write(assumed);
}

}  // namespace orrery::discover
