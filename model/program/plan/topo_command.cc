// SPDX-License-Identifier: Apache-2.0
// `plan topo NAME`: a cluster as text.
#include "model/hardware/catalog.h"
#include "model/hardware/print.h"
#include "model/hardware/summary.h"
#include "model/program/plan/commands.h"

namespace orrery::cli {
namespace {

struct TopoFlags {
  Flag name, nodes;
  FlagSet set{"topo NAME [--nodes N]",
              "Prints a cluster: its figures, a drawing of one node, how its devices reach each "
              "other, and routes "
              "with their narrowest link.",
              {"plan topo aws-dl1", "plan topo selene --nodes 128", "plan topo ./my-cluster.yaml"}};

  TopoFlags() {
    set.Positional(&name, "NAME", "a name of `plan list topologies` or a YAML file",
                   Words::kTopology);
    set.Value(&nodes, "--nodes", "N", "compute nodes (default: as the file says)");
  }
};

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
  return answer;
}

}  // namespace orrery::cli
