// SPDX-License-Identifier: Apache-2.0
// The table of commands, and the way from a command line to one of them.
#include "model/program/plan/commands.h"

#include <fmt/format.h>

#include "model/program/common/bench_flags.h"
#include "model/program/common/check_flags.h"
#include "model/program/common/fidelity_flags.h"
#include "model/program/common/lab_flags.h"
#include "model/program/common/launch_flags.h"
#include "model/program/common/launcher_guard.h"
#include "model/program/common/program.h"
#include "model/program/common/run_flags.h"
#include "model/program/common/simulate_flags.h"
#include "model/program/common/terminal.h"
#include "model/program/common/watch_flags.h"

namespace orrery::cli {
namespace {

constexpr Command kCommands[] = {
    {"", "rank the layouts of a training job on a cluster", RunSearch, DescribeSearch},
    {"predict", "step time, memory and breakdown of one given layout", RunPredict, DescribePredict},
    {"provision", "which machines to rent: days against dollars over offers and node counts",
     RunProvision, DescribeProvision},
    {"sweep", "a study: every combination of flags of predict as a CSV row", RunSweep,
     DescribeSweep},
    {"simulate", "one step of one given layout, simulated op by op; writes a trace", nullptr,
     DescribeSimulate},
    {"run", "train for real on CPU or GPU ranks: losses, step times, a trace", nullptr,
     DescribeRun},
    {"lab", "a cluster in a box: network namespaces with real TCP between them", nullptr,
     DescribeLab},
    {"bench", "the table of nccl-tests, measured here or predicted for a cluster", nullptr,
     DescribeBench},
    {"show", "the executable plan of one layout: programs, streams, groups, schedule", RunShow,
     DescribeShow},
    {"export", "the best layout as files for a framework and a launcher", RunExport,
     DescribeExport},
    {"topo", "a cluster: figures, a drawing of one node, links and routes", RunTopo, DescribeTopo},
    {"discover", "a topology file from NCCL's dumps, lspci, Slurm, AWS, or this machine",
     RunDiscover, DescribeDiscover},
    {"list", "the names of models, topologies, GPUs, fabrics, frameworks", RunList, DescribeList},
    {"validate", "how far predictions are from a CSV of measured runs", nullptr, DescribeValidate},
    {"calibrate", "fit the constants of profiles to measurements", nullptr, DescribeCalibrate},
    {"compare", "which term of a prediction differs from a measured run", nullptr, DescribeCompare},
    {"watch", "follow a job's log: what leaves the predicted interval, and since when", nullptr,
     DescribeWatch},
    {"check", "health of nodes and pairs: compute, memory, disk, clock, network", nullptr,
     DescribeCheck},
    {"launch", "gather the nodes of a job, test them, write the hostfile, start a command", nullptr,
     DescribeLaunch},
    {"open", "a bundle's question answered again, from its own files", RunOpen, DescribeOpen},
    {"diff", "what moved between two bundles, and because of what", RunDiff, DescribeDiff},
    {"completion", "the completion script of a shell", RunCompletion, DescribeCompletion},
    {"help", "what a command does and its flags", RunHelp, DescribeHelp},
    {"version", "the version of this program", RunVersion, DescribeVersion},
};

Answer RunExternal(const CommandLine& line, const std::string& name) {
  std::vector<std::string> words = {"plan-" + name};
  const std::vector<std::string>& looks = CurrentTerminal().given;
  words.insert(words.end(), looks.begin(), looks.end());
  words.insert(words.end(), line.words().begin() + 2, line.words().end());
  if (TakesStopRequests(name)) HoldStopRequests();  // behind flags for all commands, too
  ExecBeside(name, words);
  if (FindCommand(name) != nullptr) {
    throw InputError({{line.where(1), fmt::format("the program plan-{} is not built", name),
                       "./plan in the source folder builds it, where its libraries are installed; "
                       "the archive of "
                       "static programs holds only what plans, predicts and simulates"}});
  }
  std::string hint = SuggestName(name, CommandNames());
  throw InputError({{line.where(1), fmt::format("there is no command '{}'", name),
                     hint.empty() ? "`plan help` lists the commands" : hint}});
}

}  // namespace

std::span<const Command> Commands() { return kCommands; }

const Command* FindCommand(const std::string& name) {
  for (const Command& command : kCommands) {
    if (command.name == name) return &command;
  }
  return nullptr;
}

std::vector<std::string> CommandNames() {
  std::vector<std::string> names;
  for (const Command& command : kCommands) {
    if (command.name[0] != '\0') names.emplace_back(command.name);
  }
  return names;
}

Answer Run(const CommandLine& line) {
  const std::vector<std::string>& words = line.words();
  if (words.size() == 1) return RunHelp(line, 1);
  const std::string& first = words[1];
  if (first == "--version") return RunVersion(line, 2);
  if (first == "-h" || first == "--help") return RunHelp(line, 2);
  if (first.starts_with('-')) return RunSearch(line, 1);
  const Command* command = first.empty() ? nullptr : FindCommand(first);
  if (command == nullptr || command->run == nullptr) return RunExternal(line, first);
  return command->run(line, 2);
}

}  // namespace orrery::cli
