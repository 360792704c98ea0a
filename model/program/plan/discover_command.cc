// SPDX-License-Identifier: Apache-2.0
// `plan discover FILE...`: a topology file from what other programs say of a cluster.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "model/arch/data_root.h"
#include "model/base/write_file.h"
#include "model/discover/topology_text.h"
#include "model/hardware/catalog.h"
#include "model/hardware/host_order.h"
#include "model/hardware/print.h"
#include "model/hardware/read_parts.h"
#include "model/hardware/summary.h"
#include "model/program/plan/commands.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kMostFiles = 256, kMostFileBytes = std::size_t{64} << 20;

struct DiscoverFlags {
  std::vector<Flag> files;
  Flag name, gpu, nodes, out, json;
  FlagSet set{
      "discover [FILE...] [flags]",
      "Writes a topology file from what other programs say of a cluster: NCCL's topology and graph "
      "XML and its log, hwloc's XML, nvidia-smi topo -m, lspci (-nn, -vv, -vmm, -tv), ibstat, "
      "hostfiles, Slurm's topology.conf, scontrol show node and topology, AWS's "
      "describe-instance-topology. Several files add up; where two differ, both places are named. "
      "Without a file: this machine. A line that no source states ends in '# assumed'.",
      {"plan discover topo.xml ibstat.txt --out cluster.yaml",
       "plan discover topo.xml topology.conf hosts --out cluster.yaml",
       "plan discover aws-topology.json", "plan discover"}};

  DiscoverFlags() {
    set.Positionals(&files, "FILE", "files of other programs, told apart by their content",
                    Words::kFile);
    set.Output(&out, "--out", "FILE", "the topology goes there, a summary to standard output",
               discover::kWrittenBy);
    set.Value(&name, "--name", "NAME", "of the topology (default: the machine's product name)");
    set.Value(&gpu, "--gpu", "NAME", "the GPU where no file names it, a name of `plan list gpus`",
              Words::kGpu);
    set.Value(&nodes, "--nodes", "N", "compute nodes (default: as the files say, else 1)");
    set.Output(&json, "--json", "[FILE]", "the answer as JSON, on standard output or in FILE",
               "\"orrery.");
  }
};

discover::Choices ReadChoices(const DiscoverFlags& flags) {
  Diagnostics diagnostics;
  discover::Choices choices;
  choices.nodes = ReadInteger(flags.nodes, 1, 65'536, &diagnostics);
  choices.nodes_where = flags.nodes.where;
  choices.name = flags.name.text;
  choices.gpu = flags.gpu.text;
  constexpr const char* kGpus = "calib/profiles/gpu";
  if (flags.gpu.given && choices.gpu != kUnknownGpu && !LooksLikePath(choices.gpu) &&
      FileOfName(kGpus, choices.gpu).empty())
    diagnostics.Error(flags.gpu.where, fmt::format("no GPU '{}'", choices.gpu),
                      SuggestName(choices.gpu, NamesOfKind(kGpus)));
  diagnostics.ThrowIfAny();
  return choices;
}

nlohmann::ordered_json DiscoverJson(const discover::Discovered& made) {
  const TopologySpec& spec = made.spec;
  nlohmann::ordered_json left_out = nlohmann::ordered_json::array();
  for (const discover::LeftOut& one : made.left_out)
    left_out.push_back(
        {{"name", one.name}, {"why", one.why}, {"source", discover::PlaceText(one.where)}});
  nlohmann::ordered_json degraded = nlohmann::ordered_json::object();
  for (const auto& [nic, rate] : spec.node.degraded_nics)
    degraded[spec.node.nics[static_cast<std::size_t>(nic)]] = rate.value;
  return {{"schema", "orrery.discover/1"},
          {"name", spec.name},
          {"gpu", spec.gpu},
          {"nodes", spec.nodes},
          {"gpus_per_node", spec.node.gpus},
          {"nics_per_node", spec.node.nics.size()},
          {"nic_bytes_per_s", spec.node.nic_rate.value},
          {"degraded_nics", std::move(degraded)},
          {"pcie_switches", spec.node.switches.size()},
          {"hosts", spec.fabric.hosts},
          {"numbering", NumberingText(spec.fabric)},
          {"nearest", made.nearest},
          {"assumed", made.assumed},
          {"left_out", std::move(left_out)},
          {"notes", made.notes},
          {"topology", made.yaml}};
}

std::string SummaryText(const discover::Discovered& made, const std::string& path) {
  const TopologySpec& spec = made.spec;
  std::string text = fmt::format(
      "{}: {} node{} x {} {}, {} NIC{} each\n", spec.name, spec.nodes, spec.nodes == 1 ? "" : "s",
      spec.node.gpus, spec.gpu == kUnknownGpu ? "GPUs of unknown kind (--gpu NAME)" : spec.gpu,
      spec.node.nics.size(), spec.node.nics.size() == 1 ? "" : "s");
  if (!made.nearest.empty()) text += "  nearest    " + made.nearest + " of the catalogue\n";
  if (const std::string numbers = NumberingText(spec.fabric); !numbers.empty())
    text += "  hosts      " + numbers + "\n";
  for (const std::string& note : made.notes) text += "  seen       " + note + "\n";
  for (const std::string& one : made.assumed) text += "  assumed    " + one + "\n";
  return text + fmt::format("  written    {}: check the lines with '# assumed'; plan topo {}\n",
                            path, path);
}

}  // namespace

Description DescribeDiscover() { return DiscoverFlags().set.Describe(); }

Answer RunDiscover(const CommandLine& line, std::size_t first) {
  DiscoverFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeDiscover().help};
  const discover::Choices choices = ReadChoices(flags);
  if (flags.files.size() > kMostFiles)
    throw InputError(
        {{flags.files.back().where, fmt::format("more than {} files", kMostFiles), ""}});
  discover::Observed seen;
  for (const Flag& file : flags.files) {
    AtFlag(file, [&] { discover::ReadClusterFile(ReadSource(file.text, kMostFileBytes), &seen); });
  }
  if (flags.files.empty()) discover::ReadMachine("", &seen);
  const discover::Discovered made = discover::WriteTopology(seen, choices);
  std::string text = made.yaml;
  if (flags.out.given) {
    if (const std::string why = WriteTextFile(flags.out.text, made.yaml); !why.empty())
      throw InputError(
          {{flags.out.where, fmt::format("cannot write '{}': {}", flags.out.text, why), ""}});
    text = SummaryText(made, flags.out.text);
  }
  Answer answer = Deliver(ExitCode::kOk, text, DiscoverJson(made), flags.json);
  answer.document = answer.document || !flags.out.given;  // a file to be kept
  return answer;
}

}  // namespace orrery::cli
