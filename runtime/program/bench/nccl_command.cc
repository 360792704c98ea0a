// SPDX-License-Identifier: Apache-2.0
// What NCCL wrote of its choices, channels and topology, beside what this twin says of them.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "calib/import/nccl_debug.h"
#include "model/collectives/nccl/machine.h"
#include "model/collectives/nccl_choice.h"
#include "model/program/common/program.h"
#include "model/program/common/table.h"
#include "runtime/program/bench/bench_command.h"

namespace orrery::cli {
namespace {

using Json = nlohmann::ordered_json;
using measured::LoggedChoice;
using measured::LoggedGraph;
using measured::NcclDebug;

struct Twin {
  const ClusterSummary* cluster = nullptr;
  std::shared_ptr<const nccl::Communicator> nccl;
};

struct Compared {
  const LoggedChoice* logged = nullptr;
  nccl::Operation operation = nccl::Operation::kAllReduce;
  double bytes = 0;  // as nccl-tests counts
  std::optional<nccl::Choice> twin;

  bool algorithm() const { return twin && twin->algorithm == logged->algorithm; }
  bool protocol() const { return twin && twin->protocol == logged->protocol; }
};

// Newer logs count what one rank sends or receives; without a collective the size is the whole.
double WholeBytes(const LoggedChoice& choice, nccl::Operation operation, int ranks) {
  const bool once_per_rank = choice.operation && (operation == nccl::Operation::kAllGather ||
                                                  operation == nccl::Operation::kReduceScatter);
  return static_cast<double>(choice.bytes) * (once_per_rank ? ranks : 1);
}

std::vector<Compared> CompareChoices(const NcclDebug& log, nccl::Operation named,
                                     const nccl::Communicator& nccl) {
  std::vector<Compared> all;
  for (const LoggedChoice& choice : log.choices) {
    Compared one;
    one.logged = &choice;
    one.operation = choice.operation.value_or(named);
    one.bytes = WholeBytes(choice, one.operation, nccl.ranks());
    one.twin = nccl.Choose(one.operation, one.bytes);
    all.push_back(one);
  }
  std::ranges::stable_sort(all, {}, [](const Compared& one) {
    return std::pair(static_cast<int>(one.operation), one.bytes);
  });
  return all;
}

std::string Percent(std::size_t part, std::size_t whole) {
  return fmt::format("{} of {} ({:.1f} %)", part, whole,
                     100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

std::string ChoiceText(const std::vector<Compared>& all) {
  if (all.empty())
    return "  No choice in this log: rank 0 writes them with "
           "NCCL_DEBUG_SUBSYS=INIT,GRAPH,TUNING.\n";
  report::Table table({{"collective"},
                       {"bytes", true},
                       {"calls", true},
                       {"NCCL\nchose"},
                       {"channels", true},
                       {"twin\nchooses"},
                       {"channels", true},
                       {""}});
  const auto words = [](nccl::Algorithm algorithm, nccl::Protocol protocol) {
    return fmt::format("{} {}", nccl::Name(algorithm), nccl::Name(protocol));
  };
  for (const Compared& one : all) {
    table.Row({nccl::Name(one.operation), fmt::format("{:.0f}", one.bytes),
               std::to_string(one.logged->times),
               words(one.logged->algorithm, one.logged->protocol),
               one.logged->channels > 0 ? std::to_string(one.logged->channels) : "-",
               one.twin ? words(one.twin->algorithm, one.twin->protocol) : "none",
               one.twin ? std::to_string(one.twin->channels) : "-",
               one.algorithm() && one.protocol() ? "" : "differs"});
  }
  const auto count = [&](auto agrees) {
    return static_cast<std::size_t>(std::ranges::count_if(all, agrees));
  };
  return table.Text() +
         fmt::format(
             "\n  The same: algorithm {}, protocol {}. Channels are what a call used; the "
             "twin says how many it may use.\n",
             Percent(count([](const Compared& one) { return one.algorithm(); }), all.size()),
             Percent(count([](const Compared& one) { return one.protocol(); }), all.size()));
}

// The twin's graph of a pattern; a tree stands for all its kinds.
const nccl::Graph* GraphLike(const nccl::Graphs& graphs, nccl::Pattern pattern) {
  switch (pattern) {
    case nccl::Pattern::kRing:
      return &graphs.ring;
    case nccl::Pattern::kBalancedTree:
    case nccl::Pattern::kSplitTree:
    case nccl::Pattern::kTree:
      return &graphs.tree;
    case nccl::Pattern::kNvls:
      return graphs.nvls_support ? &graphs.nvls : nullptr;
    case nccl::Pattern::kDirect:
      return graphs.in_network ? &graphs.direct : nullptr;
  }
  return nullptr;
}

std::string Words(const nccl::Graph* graph) {
  if (graph == nullptr) return "none";
  return fmt::format("{} x {:g}/{:g}, {}/{}", graph->channels, graph->inside, graph->across,
                     nccl::Name(graph->distance_inside), nccl::Name(graph->distance_across));
}

std::string GraphText(const std::vector<LoggedGraph>& logged, const nccl::Graphs& graphs) {
  if (logged.empty()) return "";
  report::Table table(
      {{"pattern"}, {"NCCL: channels x GB/s\ninside/across, paths"}, {"twin"}, {""}});
  for (const LoggedGraph& one : logged) {
    const nccl::Graph* twin = GraphLike(graphs, one.pattern);
    const std::string own = fmt::format("{} x {:g}/{:g}, {}/{}", one.channels, one.inside,
                                        one.across, one.path_inside, one.path_across);
    const bool same = twin != nullptr && twin->channels == one.channels &&
                      static_cast<float>(one.inside) == twin->inside &&
                      static_cast<float>(one.across) == twin->across;
    table.Row({nccl::Name(one.pattern), own, Words(twin), same ? "" : "differs"});
  }
  return table.Text() + "\n";
}

Json GraphsJson(const std::vector<LoggedGraph>& logged, const nccl::Graphs& graphs) {
  Json all = Json::array();
  for (const LoggedGraph& one : logged) {
    Json row = {{"pattern", nccl::Name(one.pattern)},
                {"channels", one.channels},
                {"gb_s_inside", one.inside},
                {"gb_s_across", one.across},
                {"line", one.line}};
    if (const nccl::Graph* twin = GraphLike(graphs, one.pattern)) {
      row["twin"] = {{"channels", twin->channels},
                     {"gb_s_inside", twin->inside},
                     {"gb_s_across", twin->across}};
    } else {
      row["twin"] = nullptr;
    }
    all.push_back(row);
  }
  return all;
}

// Rings of the log whose GPUs of the first node stand in the order of one of the twin's rings.
std::size_t RingsAlike(const NcclDebug& log, const nccl::Graph& ring, int each) {
  const auto local = static_cast<std::size_t>(each);
  const auto known = [&](const std::vector<int>& order) {
    for (int c = 0; c < ring.channels; ++c) {
      const auto begin = ring.order.begin() + c * each;
      std::vector<int> own(begin, begin + each);
      for (std::size_t turn = 0; turn < local; ++turn) {
        if (std::ranges::equal(own, order)) return true;
        std::ranges::rotate(own, own.begin() + 1);
      }
    }
    return false;
  };
  std::size_t alike = 0;
  for (const std::vector<int>& one : log.rings) {
    std::vector<int> first;
    for (const int rank : one) {
      if (rank < each) first.push_back(rank);
    }
    alike += first.size() == local && known(first) ? 1 : 0;
  }
  return alike;
}

Answer CompareLog(const BenchFlags& flags, const SourcePtr& source, const Twin& twin,
                  nccl::Operation operation, const NcclDebug& log) {
  const nccl::Communicator& nccl = *twin.nccl;
  const bool other_nodes = log.nodes > 0 && log.nodes != nccl.nodes();
  if (log.ranks > 0 && (log.ranks != nccl.ranks() || other_nodes)) {
    const std::string on = log.nodes > 0 ? fmt::format(" on {} nodes", log.nodes) : "";
    throw InputError(std::vector<Diagnostic>{
        {flags.nccl.where,
         fmt::format("{} is of {} ranks{}, the flags are of {} on {}", source->name, log.ranks, on,
                     nccl.ranks(), nccl.nodes()),
         "set --nodes and --gpus-per-node to match"}});
  }
  const std::vector<Compared> all = CompareChoices(log, operation, nccl);
  std::string text =
      fmt::format("NCCL {} on {}: {} nodes, {} ranks; the twin by the rules of {}\n\n",
                  log.release.empty() ? "of unknown release" : log.release, twin.cluster->name,
                  nccl.nodes(), nccl.ranks(), nccl::ReleaseText(nccl.release()));
  for (const measured::LoggedSetting& one : log.settings)
    text += fmt::format("  {}:{}: {}\n", source->name, one.line, one.text);
  if (!log.settings.empty())
    text += "  With these settings choices are not NCCL's own, which the twin follows.\n\n";
  text += ChoiceText(all) + "\n" + GraphText(log.graphs, nccl.graphs());
  if (log.channels > 0)
    text += fmt::format("  Channels: {} and {} of NVLS; twin: {} and {}\n", log.channels,
                        log.nvls_channels, nccl.channels(), nccl.nvls_channels());
  const int each = nccl.ranks() / nccl.nodes();
  const std::size_t alike = RingsAlike(log, nccl.graphs().ring, each);
  if (!log.rings.empty())
    text += fmt::format("  Rings with the twin's order of GPUs on the first node: {}\n",
                        Percent(alike, log.rings.size()));
  if (log.garbled_lines > 0) {
    text += fmt::format("  Skipped {} garbled line{}:\n", log.garbled_lines,
                        log.garbled_lines == 1 ? "" : "s") +
            Render(log.garbled, false);
  }
  Json json = {{"schema", "orrery.nccl/1"},      {"file", source->name},
               {"release", log.release},         {"rules", nccl::ReleaseText(nccl.release())},
               {"topology", twin.cluster->name}, {"ranks", nccl.ranks()},
               {"nodes", nccl.nodes()},          {"choices", Json::array()}};
  for (const Compared& one : all) {
    Json row = {{"collective", nccl::Name(one.operation)},
                {"bytes", one.bytes},
                {"calls", one.logged->times},
                {"algorithm", nccl::Name(one.logged->algorithm)},
                {"protocol", nccl::Name(one.logged->protocol)},
                {"channels", one.logged->channels},
                {"line", one.logged->line}};
    if (one.twin) {
      row["twin"] = {{"algorithm", nccl::Name(one.twin->algorithm)},
                     {"protocol", nccl::Name(one.twin->protocol)},
                     {"channels", one.twin->channels}};
    }
    json["choices"].push_back(row);
  }
  json["graphs"] = GraphsJson(log.graphs, nccl.graphs());
  json["rings"] = {{"logged", log.rings.size()}, {"as_one_of_the_twin", alike}};
  json["settings"] = Json::array();
  for (const measured::LoggedSetting& one : log.settings)
    json["settings"].push_back({{"text", one.text}, {"line", one.line}});
  json["garbled_lines"] = log.garbled_lines;
  return Deliver(ExitCode::kOk, text, json, flags.json);
}

Answer CompareGraphs(const BenchFlags& flags, const SourcePtr& source, const Twin& twin) {
  std::vector<LoggedGraph> graphs;
  AtFlag(flags.nccl, [&] { graphs = measured::ReadNcclGraphs(source); });
  const Json json = {{"schema", "orrery.nccl/1"},
                     {"file", source->name},
                     {"topology", twin.cluster->name},
                     {"rules", nccl::ReleaseText(twin.nccl->release())},
                     {"graphs", GraphsJson(graphs, twin.nccl->graphs())}};
  return Deliver(
      ExitCode::kOk,
      fmt::format("Graphs of {} compared with those of {}\n\n", source->name, twin.cluster->name) +
          GraphText(graphs, twin.nccl->graphs()),
      json, flags.json);
}

const char* NameOf(HostKind kind) {
  return kind == HostKind::kIntel ? "Intel" : kind == HostKind::kAmd ? "AMD" : "Arm";
}

// One line of a description for both, "-" where they are the same in the second column.
std::vector<std::pair<std::string, std::string>> Traits(const nccl::NodeDescription& node) {
  const auto nic = [&](std::size_t i) {
    return node.nics[i].rate > 0 ? node.nics[i].rate : node.nic_rate;
  };
  const auto slot = [&] {
    return !node.gpus.empty() && node.gpus[0].pcie > 0 ? node.gpus[0].pcie : node.pcie;
  };
  int links = 0;
  for (const auto& one : node.nvlinks) links += one.a == 0 || one.b == 0 ? one.count : 0;
  const bool in_switch =
      std::ranges::any_of(node.nvlinks, [](const auto& one) { return one.b < 0; });
  return {{"GPUs", fmt::format("{} of compute capability {}", node.gpus.size(), node.capability)},
          {"NVLinks of the first", fmt::format("{}{}", links, in_switch ? " into a switch" : "")},
          {"PCIe of the first", fmt::format("{:g} GB/s", slot())},
          {"PCIe switches", std::to_string(node.switches.size())},
          {"CPUs", fmt::format("{} {}, {:g} GB/s between", node.cpus.size(), NameOf(node.cpu),
                               node.between_cpus)},
          {"NICs",
           node.nics.empty() ? "none" : fmt::format("{} of {:g} GB/s", node.nics.size(), nic(0))},
          {"GPUDirect", node.gpu_direct ? "yes" : "no"},
          {"the network reduces", node.in_network ? "yes" : "no"}};
}

Answer CompareTopology(const BenchFlags& flags, const SourcePtr& source, const Twin& twin,
                       const nccl::NodeDescription& own, nccl::Operation operation) {
  nccl::NodeDescription dumped;
  AtFlag(flags.nccl, [&] { dumped = measured::ReadNcclTopology(source); });
  const int nodes = twin.nccl->nodes();
  const nccl::Communicator there(
      dumped, nodes, std::make_shared<const nccl::Graphs>(nccl::FindGraphs(dumped, nodes > 1)));
  report::Table traits({{"as NCCL sees it"}, {"dump"}, {twin.cluster->name}, {""}});
  Json json = {{"schema", "orrery.nccl/1"},      {"file", source->name},
               {"topology", twin.cluster->name}, {"rules", nccl::ReleaseText(twin.nccl->release())},
               {"traits", Json::array()},        {"choices", Json::array()}};
  const auto left = Traits(dumped), right = Traits(own);
  for (std::size_t i = 0; i < left.size(); ++i) {
    traits.Row({left[i].first, left[i].second, right[i].second,
                left[i].second == right[i].second ? "" : "differs"});
    json["traits"].push_back(
        {{"trait", left[i].first}, {"dump", left[i].second}, {"topology", right[i].second}});
  }
  report::Table choices({{"bytes", true},
                         {"on the dump"},
                         {"channels", true},
                         {"on the topology"},
                         {"channels", true},
                         {""}});
  const auto words = [](const nccl::Choice& choice) {
    return fmt::format("{} {}", nccl::Name(choice.algorithm), nccl::Name(choice.protocol));
  };
  for (const int64_t bytes : ReadSweep(flags).bytes) {
    const auto a = there.Choose(operation, static_cast<double>(bytes));
    const auto b = twin.nccl->Choose(operation, static_cast<double>(bytes));
    if (!a || !b) continue;
    choices.Row({std::to_string(bytes), words(*a), std::to_string(a->channels), words(*b),
                 std::to_string(b->channels), words(*a) == words(*b) ? "" : "differs"});
    json["choices"].push_back({{"bytes", bytes},
                               {"algorithm", nccl::Name(a->algorithm)},
                               {"protocol", nccl::Name(a->protocol)},
                               {"channels", a->channels},
                               {"twin",
                                {{"algorithm", nccl::Name(b->algorithm)},
                                 {"protocol", nccl::Name(b->protocol)},
                                 {"channels", b->channels}}}});
  }
  return Deliver(
      ExitCode::kOk,
      fmt::format("Topology of {} ({} nodes) compared with {}\n\n{}\n{}\n", source->name, nodes,
                  twin.cluster->name, traits.Text(), fmt::format("{}:", nccl::Name(operation))) +
          choices.Text(),
      json, flags.json);
}

}  // namespace

Answer CompareNccl(const BenchFlags& flags, const BenchSimulation& simulation,
                   Collective collective) {
  const Cluster& cluster = simulation.cluster();
  const auto operation = NcclOperation(collective);
  Twin twin;
  twin.cluster = &cluster.summary;
  const auto follow = [&](nccl::Release release) {
    twin.nccl = NcclCommunicator(cluster.summary, simulation.gpu(), simulation.fabric(),
                                 {simulation.ranks(), cluster.summary.domain_gpus(), 1}, release);
  };
  follow(simulation.release());
  std::vector<int> gpus;
  for (int g = 0; g < cluster.summary.domain_gpus(); ++g) gpus.push_back(g);
  const auto own =
      nccl::Describe(nccl::SettingOf(cluster.summary, simulation.gpu(), simulation.fabric()), gpus);
  if (!operation || twin.nccl == nullptr || !own) {
    throw InputError(std::vector<Diagnostic>{
        {flags.nccl.where,
         operation ? fmt::format("NCCL does not run {} ranks on {}", simulation.ranks(),
                                 cluster.summary.name)
                   : fmt::format("NCCL has no algorithms for {}", Name(collective)),
         "all_reduce, all_gather, reduce_scatter or broadcast among NVIDIA GPUs"}});
  }
  SourcePtr source;
  AtFlag(flags.nccl, [&] { source = NcclSource(flags.nccl); });
  switch (measured::KindOfNcclFile(*source)) {
    case measured::NcclFile::kLog: {
      NcclDebug log;
      AtFlag(flags.nccl, [&] { log = measured::ReadNcclDebug(source); });
      if (!flags.nccl_release.given) follow(nccl::NearestRelease(log.release));
      return CompareLog(flags, source, twin, *operation, log);
    }
    case measured::NcclFile::kGraphs:
      return CompareGraphs(flags, source, twin);
    case measured::NcclFile::kTopology:
      break;
  }
  return CompareTopology(flags, source, twin, *own, *operation);
}

}  // namespace orrery::cli
