// SPDX-License-Identifier: Apache-2.0
// Counts the nodes of a job from the hosts and slots of its hostfile.
#include "model/exchange/hostfile.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "model/base/host_list.h"
#include "model/base/plain_text.h"

namespace orrery::exchange {
namespace {

constexpr std::size_t kMostListed = 65536;

struct Hosts {
  int64_t count = 0;
  int64_t slots = 0;  // of each; 0: not said, or not the same
  Location where;     // of the first
};

Hosts ReadHosts(const SourcePtr& source) {
  Hosts all;
  std::set<std::string> names;
  bool equal = true;
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
    if (names.empty()) all.slots = slots, all.where = where;
    equal = equal && slots == all.slots;
    names.insert(hosts.begin(), hosts.end());
  }
  if (names.empty()) throw InputError({{{source, 1, 1}, "no host in this file", ""}});
  all.count = static_cast<int64_t>(names.size());
  if (!equal) all.slots = 0;
  return all;
}

}  // namespace

Settings NodesOf(const Hostfile& use, const SourcePtr& source, std::vector<std::string>* notes) {
  const Hosts hosts = ReadHosts(source);
  notes->push_back(fmt::format("{}: {} host{}{}", Place(hosts.where), hosts.count,
                               hosts.count == 1 ? "" : "s",
                               hosts.slots > 0 ? fmt::format(" of {} slots", hosts.slots) : ""));
  const int64_t per_host = use.each > 0 ? use.each : use.spread ? 0 : hosts.slots;
  int64_t nodes = hosts.count, each = per_host;
  if (use.tasks > 0 && per_host > 0) {
    nodes = (use.tasks + per_host - 1) / per_host;
    each = std::min(per_host, use.tasks);
  } else if (use.tasks > 0) {  // without slots one host after the other gets a process
    nodes = std::min(hosts.count, use.tasks);
    each = (use.tasks + nodes - 1) / nodes;
  }
  if (nodes > hosts.count)
    throw InputError({{use.file.where,
                       fmt::format("{} processes, {} on each host, need {} hosts, and {} names {}",
                                   use.tasks, each, nodes, source->name, hosts.count),
                       "more hosts, or fewer processes"}});
  if (use.tasks > 0 && nodes * each != use.tasks)
    throw InputError({{use.file.where,
                       fmt::format("{} processes are not shared out evenly over {} hosts of {}",
                                   use.tasks, nodes, source->name),
                       "as many on each host"}});
  Settings made{{"NNODES", std::to_string(nodes), use.file.where, "", true}};
  if (each > 0 && !use.agents)
    made.push_back({"GPUS_PER_NODE", std::to_string(each), use.file.where, "", true});
  return made;
}

std::string NoHostfile(const Hostfile& use) {
  return !use.file.unresolved.empty()
             ? use.file.unresolved
             : fmt::format("the hosts stand in {}, which is not found from this script",
                           use.file.value);
}

}  // namespace orrery::exchange
