// SPDX-License-Identifier: Apache-2.0
// Counts the nodes of a job from the hosts and slots of its hostfile.
#include "model/exchange/hostfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "model/base/host_list.h"
#include "model/base/plain_text.h"

namespace orrery::exchange {
std::vector<std::string> SplitAt(const std::string& text, char sign) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(sign, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

namespace {

constexpr std::size_t kMostListed = 65536;

constexpr const char* kThisMachine = "localhost";  // DeepSpeed's name where it finds no hostfile

constexpr int64_t kNoSlot = -1;
struct Host {
  std::string name;
  int64_t slots = 0;  // 0: not said
};
struct Hosts {
  std::vector<Host> all;
  Location where;  // of the first

  // Of each; 0: not said, or not the same.
  int64_t slots() const {
    const int64_t first = all.front().slots;
    return std::ranges::all_of(all, [&](const Host& host) { return host.slots == first; }) ? first
                                                                                           : 0;
  }
};

Hosts ReadHosts(const SourcePtr& source) {
  Hosts read;
  std::set<std::string> names;
  for (const HostLine& line : HostLinesOf(source->text)) {
    const Location where{source, line.line, 1};
    std::string why;
    const auto hosts = ExpandHosts(line.hosts, kMostListed + 1, &why);
    int64_t slots = 0;
    if (hosts.size() > kMostListed) why = fmt::format("more than {} hosts", kMostListed);
    if (!line.slots.empty() &&
        (ParseInteger(line.slots, &slots) != NumberFault::kNone || slots < 1))
      why = fmt::format("'{}' slots", line.slots.substr(0, 32));
    if (!why.empty()) throw InputError({{where, why, "such as node[0-3] slots=8"}});
    if (names.empty()) read.where = where;
    for (const std::string& host : hosts)
      if (names.insert(host).second) read.all.push_back({host, slots});
  }
  if (names.empty()) throw InputError({{{source, 1, 1}, "no host in this file", ""}});
  return read;
}

struct NodeSpec {
  std::string host;
  std::set<int64_t> slots;  // none: all of them
};

// NAME or NAME:SLOT,SLOT, by '@' (DeepSpeed, launcher/runner.py: parse_node_config_list).
std::vector<NodeSpec> NodeSpecsOf(const Setting& filter) {
  std::vector<NodeSpec> specs;
  const auto refuse = [&](const std::string& part) {
    throw InputError(
        {{filter.where,
          fmt::format("--{} '{}': '{}' is no host and its slots", filter.key, filter.value, part),
          "such as worker-0:0,1@worker-1"}});
  };
  for (const std::string& part : SplitAt(filter.value, '@')) {
    const std::size_t colon = part.find(':');
    const std::string name = part.substr(0, colon);
    if (name.empty()) refuse(part);
    auto spec = std::ranges::find(specs, name, &NodeSpec::host);
    if (spec == specs.end()) spec = specs.insert(specs.end(), {name, {}});
    if (colon == std::string::npos) continue;
    for (const std::string& slot : SplitAt(part.substr(colon + 1), ',')) {
      int64_t number = 0;
      if (ParseInteger(slot, &number) != NumberFault::kNone || number < 0) refuse(part);
      spec->slots.insert(number);
    }
  }
  return specs;
}

// "a:8,b:8"; a host that is named again has the slots of both (Open MPI).
Hosts ListedHosts(const Setting& list) {
  Hosts listed{{}, list.where};
  for (const std::string& part : SplitAt(list.value, ',')) {
    const std::size_t colon = part.find(':');
    const std::string name = part.substr(0, colon);
    int64_t slots = 0;
    if (name.empty() || colon == std::string::npos ||
        ParseInteger(part.substr(colon + 1), &slots) != NumberFault::kNone || slots < 1)
      throw InputError(
          {{list.where, fmt::format("'{}' is no host and its slots", part), "such as node0:8"}});
    const auto known = std::ranges::find(listed.all, name, &Host::name);
    if (known == listed.all.end())
      listed.all.push_back({name, slots});
    else
      known->slots += slots;
  }
  return listed;
}

// Hosts that no file names: those of the filter, or this machine.
Hosts NamedHosts(const Hostfile& use) {
  Hosts named{{}, use.filter.where};
  if (use.excludes) {
    named.all.push_back({kThisMachine, 0});
    return named;
  }
  for (const NodeSpec& spec : NodeSpecsOf(use.filter)) named.all.push_back({spec.host, 0});
  return named;
}

// The hosts that are left. As DeepSpeed has it, hosts and slots that are not there are refused.
void Filter(const Hostfile& use, bool local, Hosts* hosts) {
  const auto refuse = [&](const std::string& what, const char* hint) {
    throw InputError({{use.filter.where, fmt::format("--{}: {}", use.filter.key, what), hint}});
  };
  const std::vector<NodeSpec> specs = NodeSpecsOf(use.filter);
  for (const NodeSpec& spec : specs) {
    const auto host = std::ranges::find(hosts->all, spec.host, &Host::name);
    if (host == hosts->all.end())
      refuse(fmt::format("{} is no host of {}", spec.host, local ? "this machine" : use.file.value),
             "hosts of the hostfile");
    // Whose slots nobody counted has them.
    if (!local && host->slots > 0 && !spec.slots.empty() && *spec.slots.rbegin() >= host->slots)
      refuse(fmt::format("{} has {} slots, and no slot {}", spec.host, host->slots,
                         *spec.slots.rbegin()),
             "slots count from 0");
  }
  for (Host& host : hosts->all) {
    const auto spec = std::ranges::find(specs, host.name, &NodeSpec::host);
    if (spec == specs.end()) {
      if (!use.excludes) host.slots = kNoSlot;
      continue;
    }
    const auto named = static_cast<int64_t>(spec->slots.size());
    if (use.excludes && named > 0 && host.slots == 0)
      refuse(fmt::format("how many slots {} has is not known", host.name),
             "--topology, or slots=N in a hostfile");
    if (use.excludes)
      host.slots = host.slots > named && named > 0 ? host.slots - named : kNoSlot;
    else if (named > 0)
      host.slots = named;
  }
  std::erase_if(hosts->all, [](const Host& host) { return host.slots == kNoSlot; });
  if (hosts->all.empty()) refuse("no slot is left", "");
  const Host& first = hosts->all.front();
  for (const Host& host : hosts->all) {
    if (host.slots != first.slots)
      refuse(fmt::format("{} slots of {} and {} of {}", first.slots, first.name, host.slots,
                         host.name),
             "jobs with as many GPUs on each node are predicted");
  }
}

// Why there is none.
std::string NoHostfile(const Hostfile& use) {
  return !use.file.unresolved.empty()
             ? use.file.unresolved
             : fmt::format("the hosts stand in {}, which is not found from this script",
                           use.file.value);
}

// Whether a filter alone says which hosts those are.
bool NamesHosts(const Hostfile& use) {
  return use.filters() && (!use.excludes || use.file.value.empty());
}

// Hosts with unlike numbers of slots, which mpirun fills one after the other: those that the processes need alone.
void FillHosts(const Hostfile& use, Hosts* hosts) {
  const bool said =
      std::ranges::all_of(hosts->all, [](const Host& host) { return host.slots > 0; });
  if (!use.fills || use.agents || !said || hosts->slots() > 0) return;
  int64_t slots = 0;
  std::size_t taken = 0;
  while (taken < hosts->all.size() && (use.tasks == 0 || slots < use.tasks))
    slots += hosts->all[taken++].slots;
  hosts->all.resize(taken);
  if (hosts->slots() > 0) return;
  const Host& first = hosts->all.front();
  const Host& other = *std::ranges::find_if(
      hosts->all, [&](const Host& host) { return host.slots != first.slots; });
  throw InputError({{hosts->where,
                     fmt::format("{} slots of {} and {} of {}: mpirun starts as many ranks on each",
                                 first.slots, first.name, other.slots, other.name),
                     "jobs with as many GPUs on each node are predicted"}});
}

// Nodes of a job on `all` hosts, and the processes or slots of each.
std::pair<int64_t, int64_t> ShareOut(const Hostfile& use, int64_t all, int64_t slots,
                                     const std::string& file) {
  const Location& where = use.filters() ? use.filter.where : use.file.where;
  const int64_t per_host = use.each > 0 ? use.each : use.spread ? 0 : slots;
  int64_t nodes = all, each = per_host;
  if (use.tasks > 0 && per_host > 0) {
    nodes = (use.tasks + per_host - 1) / per_host;
    each = std::min(per_host, use.tasks);
  } else if (use.tasks > 0) {  // without slots one host after the other gets a process
    nodes = std::min(all, use.tasks);
    each = (use.tasks + nodes - 1) / nodes;
  }
  if (nodes > all)
    throw InputError({{where,
                       fmt::format("{} processes, {} on each host, need {} hosts, and {} names {}",
                                   use.tasks, each, nodes, file, all),
                       "more hosts, or fewer processes"}});
  if (use.tasks > 0 && nodes * each != use.tasks)
    throw InputError({{where,
                       fmt::format("{} processes are not shared out evenly over {} hosts of {}",
                                   use.tasks, nodes, file),
                       "as many on each host"}});
  return {nodes, each};
}

}  // namespace

Settings NodesOf(const Hostfile& use, const OpenNamed& open, int64_t gpus, Settings* unknown,
                 std::vector<std::string>* notes) {
  const bool listed = use.file.key == "hosts" && use.file.unresolved.empty();
  const bool opens = open && !listed && use.file.unresolved.empty() && !use.file.value.empty();
  const SourcePtr source = opens ? open(use.file) : nullptr;
  if (!use.filter.unresolved.empty()) {
    unknown->push_back(use.filter);
    return {};
  }
  if (source == nullptr && !listed && !NamesHosts(use)) {
    unknown->push_back(use.file);
    unknown->back().unresolved = NoHostfile(use);
    return {};
  }
  Hosts hosts = listed ? ListedHosts(use.file) : source ? ReadHosts(source) : NamedHosts(use);
  const Setting& named = use.filters() ? use.filter : use.file;
  if (use.filters()) {
    for (Host& host : hosts.all)
      if (host.slots == 0) host.slots = gpus;
    Filter(use, source == nullptr, &hosts);
    hosts.where = use.filter.where;
  }
  FillHosts(use, &hosts);
  const auto all = static_cast<int64_t>(hosts.all.size());
  const int64_t slots = hosts.slots();
  notes->push_back(fmt::format("{}: {} host{}{}", Place(hosts.where), all, all == 1 ? "" : "s",
                               slots > 0 ? fmt::format(" of {} slots", slots) : ""));
  const auto [nodes, each] = ShareOut(use, all, slots,
                                      listed   ? "the list"
                                      : source ? source->name
                                               : "the filter");
  Settings made{{"NNODES", std::to_string(nodes), named.where, "", true}};
  if (each > 0 && !use.agents)
    made.push_back({"GPUS_PER_NODE", std::to_string(each), named.where, "", true});
  return made;
}

}  // namespace orrery::exchange
