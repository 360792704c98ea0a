// SPDX-License-Identifier: Apache-2.0
// `plan topo NAME`: a cluster as text or JSON, also with links that have failed.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "model/arch/data_root.h"
#include "model/base/text.h"
#include "model/hardware/catalog.h"
#include "model/hardware/cluster.h"
#include "model/hardware/flow.h"
#include "model/hardware/host_order.h"
#include "model/hardware/print.h"
#include "model/hardware/summary.h"
#include "model/program/plan/commands.h"

namespace orrery::cli {
namespace {

constexpr int64_t kMostFlowNodes = 4096;  // a min-cut of more takes minutes
constexpr std::size_t kMostRoutes = 16, kMostCutNamed = 8;

struct TopoFlags {
  Flag name, nodes, json;
  std::vector<Flag> failed;
  FlagSet set{"topo NAME [--nodes N] [--failed A-B]",
              "Prints a cluster: its figures, a drawing of one node, how its devices reach each "
              "other, and routes with their narrowest link. With --failed or --json also the "
              "bisection bandwidth by min-cut over halves of neighbouring nodes, and detours.",
              {"plan topo aws-dl1", "plan topo selene --nodes 128", "plan topo ./my-cluster.yaml",
               "plan topo ./cluster.yaml --failed leaf0-spine1 --failed node3-leaf0 --json"}};

  TopoFlags() {
    set.Positional(&name, "NAME", "a name of `plan list topologies` or a YAML file",
                   Words::kTopology);
    set.Value(&nodes, "--nodes", "N", "compute nodes (default: as the file says)");
    set.Values(&failed, "--failed", "A-B",
               "links between two devices, switches or hosts that carry nothing; may be repeated");
    set.Output(&json, "--json", "[FILE]", "the answer as JSON, on standard output or in FILE",
               "\"orrery.");
  }
};

struct PairRoute {
  int64_t from = 0, to = 0;  // ranks
  bool detour = false;
  std::vector<LinkId> links;  // empty: none is left
};

// The first rank of the first node to that of others, evenly spread; those next to failed links first.
std::vector<PairRoute> RoutesOf(const Cluster& cluster, const std::vector<LinkId>& failed) {
  std::vector<PairRoute> routes;
  const int64_t per_node = cluster.gpus_per_node;
  std::vector<int64_t> from;
  for (const LinkId link : failed) {
    const Link& ends = cluster.links[static_cast<std::size_t>(link)];
    const Device& device = cluster.devices[static_cast<std::size_t>(ends.from)];
    if (device.node >= 0) from.push_back(device.node);
  }
  from.push_back(0);
  const int64_t stride = std::max<int64_t>(1, cluster.nodes / static_cast<int64_t>(kMostRoutes));
  for (const int64_t a : from) {
    for (int64_t b = 0; b < cluster.nodes && routes.size() < kMostRoutes; b += stride) {
      if (a == b) continue;
      PairRoute route{a * per_node, b * per_node, false, {}};
      route.links = RouteAround(cluster, route.from, route.to, &route.detour);
      routes.push_back(std::move(route));
    }
  }
  return routes;
}

std::string HostName(const Cluster& cluster, int64_t node) {
  const auto& hosts = cluster.spec.fabric.hosts;
  const auto at = static_cast<std::size_t>(node);
  return at < hosts.size() ? hosts[at] : fmt::format("n{}", node);
}

std::vector<std::string> HostNames(const Cluster& cluster, const std::vector<int64_t>& nodes) {
  std::vector<std::string> names;
  for (const int64_t node : nodes) names.push_back(HostName(cluster, node));
  return names;
}

std::vector<std::string> LinkNames(const Cluster& cluster, const std::vector<LinkId>& links) {
  std::vector<std::string> names;
  for (const LinkId link : links) names.push_back(cluster.LinkName(link));
  return names;
}

// A cluster with its failed links, and what its network still carries.
struct Broken {
  Cluster cluster;
  std::vector<LinkId> failed;
  Halves before, after;
  std::vector<PairRoute> routes;
};

std::string SuggestPair(const Cluster& cluster, const std::string& wrong) {
  std::vector<std::string> pairs;
  for (const Link& link : cluster.links) {
    if (link.kind != LinkKind::kFabric && link.kind != LinkKind::kNicPort) continue;
    if (link.from > link.to) continue;  // the way back
    std::string pair = cluster.DeviceName(link.from) + "-" + cluster.DeviceName(link.to);
    const bool parallel = !pairs.empty() && pairs.back() == pair;
    if (pairs.size() < 20'000 && !parallel) pairs.push_back(std::move(pair));
  }
  const std::string near = SuggestName(wrong, pairs);
  return !near.empty() || pairs.empty() ? near : "links are named like " + pairs.front();
}

Broken Break(const TopologySpec& spec, int64_t nodes, const std::vector<Flag>& failed) {
  Broken made{BuildCluster(spec, nodes), {}, {}, {}, {}};
  if (nodes > kMostFlowNodes)
    throw InputError(fmt::format("a min-cut of {} nodes", nodes),
                     fmt::format("--nodes of at most {}", kMostFlowNodes));
  for (const Flag& flag : failed) {
    const std::vector<LinkId> links = LinksBetween(made.cluster, flag.text);
    if (links.empty())
      throw InputError({{flag.where, fmt::format("no link '{}' in this cluster", flag.text),
                         SuggestPair(made.cluster, flag.text)}});
    for (const LinkId link : links) {  // one that is named twice has failed once
      if (std::ranges::find(made.failed, link) == made.failed.end()) made.failed.push_back(link);
    }
  }
  made.before = WorstHalves(made.cluster);
  made.after = made.before;
  if (!made.failed.empty()) {
    FailLinks(made.failed, &made.cluster);
    made.after = WorstHalves(made.cluster);
  }
  made.routes = RoutesOf(made.cluster, made.failed);
  return made;
}

std::string Shortened(std::vector<std::string> names) {
  const std::size_t all = names.size();
  if (all > kMostCutNamed) names.resize(kMostCutNamed);
  return fmt::format("{}{}", fmt::join(names, ", "),
                     all > kMostCutNamed ? fmt::format(" and {} more", all - kMostCutNamed) : "");
}

std::string BrokenText(const Broken& made) {
  const Cluster& cluster = made.cluster;
  std::string text = fmt::format("\nwith {} failed links: {}\n", made.failed.size(),
                                 Shortened(LinkNames(cluster, made.failed)));
  text += fmt::format("  bisection {} by min-cut, {} before; sending half: {}\n",
                      Format(made.after.rate), Format(made.before.rate),
                      Shortened(HostNames(cluster, made.after.nodes)));
  text += fmt::format("  the cut   {}\n", made.after.cut.empty()
                                              ? "nothing: no link is left between the halves"
                                              : Shortened(LinkNames(cluster, made.after.cut)));
  std::vector<std::string> lines;  // pairs of NICs between two nodes mostly go alike: each once
  for (const PairRoute& route : made.routes) {
    std::string path = "cut off: no route is left";
    if (!route.links.empty()) {
      path = fmt::format("{} {}", Format(cluster.Bottleneck(route.links)),
                         route.detour ? "detour" : "as before");
      for (const LinkId link : route.links) {
        const VertexId to = cluster.links[static_cast<std::size_t>(link)].to;
        if (cluster.devices[static_cast<std::size_t>(to)].node < 0)
          path += " > " + cluster.DeviceName(to);
      }
    }
    std::string line = fmt::format("{} to {}: {}", HostName(cluster, cluster.NodeOf(route.from)),
                                   HostName(cluster, cluster.NodeOf(route.to)), path);
    if (std::ranges::find(lines, line) == lines.end()) lines.push_back(std::move(line));
  }
  for (const std::string& line : lines) text += fmt::format("  {}\n", line);
  return text;
}

nlohmann::ordered_json TopoJson(const Broken& made) {
  const Cluster& cluster = made.cluster;
  const auto halves = [&](const Halves& one) {
    return nlohmann::ordered_json{{"bytes_per_s", one.rate.value},
                                  {"sending_half", HostNames(cluster, one.nodes)},
                                  {"cut", LinkNames(cluster, one.cut)}};
  };
  nlohmann::ordered_json routes = nlohmann::ordered_json::array();
  for (const PairRoute& route : made.routes) {
    routes.push_back(
        {{"from", HostName(cluster, cluster.NodeOf(route.from))},
         {"to", HostName(cluster, cluster.NodeOf(route.to))},
         {"detour", route.detour},
         {"connected", !route.links.empty()},
         {"bytes_per_s", route.links.empty() ? 0.0 : cluster.Bottleneck(route.links).value},
         {"links", LinkNames(cluster, route.links)}});
  }
  return {{"schema", "orrery.topo/1"},
          {"name", cluster.spec.name},
          {"nodes", cluster.nodes},
          {"gpus_per_node", cluster.gpus_per_node},
          {"nics_per_node", cluster.spec.node.nics.size()},
          {"oversubscription", cluster.summary.oversubscription},
          {"hosts", cluster.spec.fabric.hosts},
          {"numbering", NumberingText(cluster.spec.fabric)},
          {"failed", LinkNames(cluster, made.failed)},
          {"bisection_without_failures", halves(made.before)},
          {"bisection", halves(made.after)},
          {"routes", routes}};
}

}  // namespace

Description DescribeTopo() { return TopoFlags().set.Describe(); }

Answer RunTopo(const CommandLine& line, std::size_t first) {
  TopoFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeTopo().help};
  if (!flags.name.given) {
    throw InputError(
        {{flags.name.where, "which topology?", "`plan list topologies` shows the names"}});
  }
  Diagnostics diagnostics;
  const auto nodes = ReadInteger(flags.nodes, 1, int64_t{1'000'000}, &diagnostics);
  diagnostics.ThrowIfAny();
  Answer answer;
  TopologySpec spec;
  AtFlag(flags.name, [&] { spec = LoadTopology(flags.name.text); });
  AtFlag(flags.nodes, [&] {
    CheckCounts(spec, nodes.value_or(spec.nodes), 0);
    answer.text = PrintTopology(spec, nodes.value_or(spec.nodes));
  });
  if (IsUserFile(spec.file)) answer.text += fmt::format("\nuser file: {}\n", ShownPath(spec.file));
  if (flags.failed.empty() && !flags.json.given) return answer;
  const Broken made = Break(spec, nodes.value_or(spec.nodes), flags.failed);
  if (!flags.failed.empty()) answer.text += BrokenText(made);
  return Deliver(ExitCode::kOk, answer.text, TopoJson(made), flags.json);
}

}  // namespace orrery::cli
