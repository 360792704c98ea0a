// SPDX-License-Identifier: Apache-2.0
// Flags, what they do, what is printed and written.
#include "calib/program/calibrate/sweep_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "calib/fit/rewrite.h"
#include "calib/program/calibrate/fit_report.h"
#include "calib/program/calibrate/inputs.h"
#include "calib/sweeps/fabric_fit.h"
#include "calib/sweeps/section.h"
#include "calib/sweeps/sweep_holdout.h"
#include "model/base/write_file.h"

namespace orrery {
namespace {

constexpr std::size_t kShownGarbled = 10;

struct SweepArguments {
  std::vector<std::string> files, topologies;
  std::string holdout, output, machine, algorithm, fabric;
  int ranks = 0, nodes = 0;
  bool in_place = false;
};

void SayGarbled(const SweepFiles& files) {
  if (files.garbled_rows == 0) return;
  fmt::print("{} rows could not be read:\n", files.garbled_rows);
  for (std::size_t i = 0; i < std::min(files.garbled.size(), kShownGarbled); ++i) {
    const Diagnostic& one = files.garbled[i];
    fmt::print("  {}:{}: {}\n", one.where.source ? one.where.source->name : "", one.where.line,
               one.message);
  }
}

// What logs do not say and the command line does.
void Complete(const SweepArguments& arguments, std::vector<MeasuredRuns>* sweeps) {
  for (MeasuredRuns& sweep : *sweeps) {
    if (sweep.ranks == 0) sweep.ranks = arguments.ranks;
    if (sweep.nodes == 0) sweep.nodes = arguments.nodes;
  }
  NameAlgorithm(arguments.algorithm, sweeps);
}

// Of a file, so that others are read without one that is no sweep.
SweepFiles ReadFile(const std::string& file, bool alone, std::vector<FileCheck>* checks) {
  checks->push_back({file, Fate::kUsed, "", {}});
  try {
    return ReadSweeps({file});
  } catch (const InputError& error) {
    if (alone) throw;
    checks->back() = {file, Fate::kNotUsed, ReasonOf(error), {}};
  }
  return {};
}

// Takes sweeps of other machines than asked for, or than their topology describes, out of a file's.
void TakeOthers(const SweepArguments& arguments, const MachineTopologies& topologies,
                SweepFiles* read, FileCheck* check) {
  const std::size_t all = read->sweeps.size();
  if (all == 0) return;
  std::string other;
  std::erase_if(read->sweeps, [&](const MeasuredRuns& sweep) {
    return sweep.machine.find(arguments.machine) == std::string::npos;
  });
  const std::size_t asked = read->sweeps.size();
  std::erase_if(read->sweeps, [&](const MeasuredRuns& sweep) {
    const TopologySpec* topology = topologies.Find(sweep.machine);
    const std::string why = topology == nullptr ? "" : OtherMachine(sweep, *topology);
    if (!why.empty()) other = why;
    return !why.empty();
  });
  const std::size_t left = read->sweeps.size();
  check->why = fmt::format("{} sweep{}", left, left == 1 ? "" : "s");
  if (asked == 0) {
    check->fate = Fate::kNotUsed;
    check->why = fmt::format("no sweep ran on a machine with '{}' in its name", arguments.machine);
  } else if (left == 0) {
    check->fate = Fate::kMismatched;
    check->why = other;
  } else if (left < asked) {
    check->why += fmt::format("; mismatched {}: {}", asked - left, other);
  }
}

// All files, each with its check, which it prints. Throws InputError: none can be used.
SweepFiles ReadFiles(const SweepArguments& arguments, const MachineTopologies& topologies) {
  SweepFiles files;
  std::vector<FileCheck> checks;
  for (const std::string& file : arguments.files) {
    SweepFiles read = ReadFile(file, arguments.files.size() == 1, &checks);
    Complete(arguments, &read.sweeps);
    TakeOthers(arguments, topologies, &read, &checks.back());
    files.Append(std::move(read));
  }
  RefuseUnused(checks);
  fmt::print("{}\n", RenderChecks(checks));
  return files;
}

void WriteFile(const std::string& path, const std::string& text) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, error);
  if (const std::string why = RewriteTextFile(path, text); !why.empty())
    throw InputError(fmt::format("cannot write {}: {}", path, why));
  fmt::print("wrote {}\n", path);
}

std::string FileNameOf(const std::string& machine) {
  std::string name;
  for (const char c : machine) {
    const auto u = static_cast<unsigned char>(c);
    const bool plain = std::isalnum(u) != 0 || c == '.';
    if (plain)
      name += static_cast<char>(std::tolower(u));
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "machine" : name;
}

void SaveMachines(const std::vector<FittedMachine>& machines, const std::string& output) {
  if (output.empty()) return;
  const auto usable = [](const FittedMachine& machine) {
    return std::ranges::any_of(machine.groups, [](const FittedGroup& group) {
      return group.runs.ranks > 1 && group.runs.nodes > 0;
    });
  };
  std::vector<const FittedMachine*> written;
  for (const FittedMachine& machine : machines)
    if (usable(machine)) written.push_back(&machine);
  if (written.empty())
    throw InputError("no sweep states its number of ranks and nodes",
                     "set them with --ranks N and --nodes N");
  if (output.ends_with(".yaml") && written.size() > 1) {
    std::string names;
    for (const FittedMachine* machine : written) names += "\n    " + machine->machine;
    throw InputError(
        fmt::format("-o names one file, and there are {} machines:{}", written.size(), names),
        "--machine TEXT takes one of them, or name a folder");
  }
  for (const FittedMachine* machine : written) {
    WriteFile(
        output.ends_with(".yaml")
            ? output
            : (std::filesystem::path(output) / (FileNameOf(machine->machine) + ".yaml")).string(),
        SectionText(*machine));
  }
}

// Class constants of a network instead of curves.
void CalibrateFabric(const SweepArguments& arguments, const std::vector<MeasuredRuns>& sweeps,
                     const MachineTopologies& topologies) {
  ProfileStore store;
  const CollectiveSource source(sweeps, topologies, arguments.fabric, &store);
  std::vector<FitParameter> parameters =
      MakeParameters(FabricRequests(arguments.fabric, store), &store);
  const Evidence evidence({&source}, store);
  const FabricFit fit = FitFabric(evidence, source, std::move(parameters));
  fmt::print("{}\n", RenderConstants(fit.result));
  HeldOutSweep left{fmt::format("{}, leave-one-size-out", arguments.fabric), 2, {}};
  HeldOutSweep fitted{fmt::format("{}, fitted", arguments.fabric), 2, {}};
  double sum = 0;
  for (std::size_t i = 0; i < fit.bytes.size(); ++i) {
    left.points.push_back({fit.bytes[i], fit.left_out[i]});
    fitted.points.push_back({fit.bytes[i], fit.result.error[i]});
    sum += std::abs(std::exp(fit.left_out[i]) - 1);
  }
  fmt::print("{}\n", RenderHoldOut(SweepHoldout::kPoint, {fitted}));
  fmt::print("{}", RenderHoldOut(SweepHoldout::kPoint, {left}));
  fmt::print("mean over all leave-one-out points: {:.1f} %\n",
             100 * sum / static_cast<double>(fit.bytes.size()));
  if (arguments.output.empty() && !arguments.in_place) return;
  for (const std::string& path : WriteProfiles(LinesOf(fit.result, {}, "", evidence.store()),
                                               arguments.output, evidence.store()))
    fmt::print("wrote {}\n", path);
}

void RunSweeps(const SweepArguments& arguments) {
  const MachineTopologies topologies(arguments.topologies);
  const SweepFiles files = ReadFiles(arguments, topologies);
  SayGarbled(files);
  std::size_t points = 0;
  for (const MeasuredRuns& sweep : files.sweeps) points += sweep.points.size();
  fmt::print("{} sweeps, {} points; {} rows without bytes or time skipped\n\n", files.sweeps.size(),
             points, files.empty_rows);
  if (!arguments.fabric.empty()) return CalibrateFabric(arguments, files.sweeps, topologies);
  if (!arguments.holdout.empty()) {
    const SweepHoldout holdout = ParseSweepHoldout(arguments.holdout);
    fmt::print("{}", RenderHoldOut(holdout, HoldOut(holdout, files.sweeps, topologies)));
    if (arguments.output.empty()) return;
  }
  const std::vector<FittedMachine> machines = FitMachines(files.sweeps, topologies);
  for (const FittedMachine& machine : machines) fmt::print("{}\n", RenderMachine(machine));
  SaveMachines(machines, arguments.output);
}

// Flags that say something about training runs only.
void RejectRunFlags(const cli::CalibrateFlags& flags) {
  Diagnostics diagnostics;
  const auto reject = [&](const cli::Flag& flag) {
    diagnostics.Error(flag.where,
                      fmt::format("{} does not apply to sweeps of collectives", flag.name),
                      "plan calibrate --help lists the flags of sweeps");
  };
  for (const cli::Flag* flag : {&flags.job, &flags.residuals}) {
    if (flag->given) reject(*flag);
  }
  for (const auto* several : {&flags.gpus, &flags.frameworks, &flags.sources, &flags.free}) {
    if (!several->empty()) reject(several->front());
  }
  diagnostics.ThrowIfAny();
}

SweepArguments ArgumentsOf(const cli::CalibrateFlags& flags) {
  constexpr int64_t kMost = 1 << 24;
  Diagnostics diagnostics;
  SweepArguments arguments;
  arguments.files = cli::TextsOf(flags.files);
  arguments.topologies = cli::TextsOf(flags.topologies);
  arguments.holdout = flags.holdout.text;
  arguments.output = flags.output.text;
  arguments.machine = flags.machine.text;
  arguments.algorithm = flags.algorithm.text;
  if (!flags.fabrics.empty()) arguments.fabric = flags.fabrics[0].text;
  if (flags.fabrics.size() > 1)
    diagnostics.Error(flags.fabrics[1].where, "sweeps are fitted for one fabric at a time", "");
  arguments.ranks = static_cast<int>(ReadInteger(flags.ranks, 2, kMost, &diagnostics).value_or(0));
  arguments.nodes = static_cast<int>(ReadInteger(flags.nodes, 1, kMost, &diagnostics).value_or(0));
  arguments.in_place = flags.in_place.given;
  diagnostics.ThrowIfAny();
  return arguments;
}

}  // namespace

bool NamesSweeps(const cli::CalibrateFlags& flags) {
  return std::ranges::any_of(flags.files, [](const cli::Flag& file) {
    try {
      return IsSweepFile(file.text);
    } catch (const InputError&) {  // whoever takes the file says what is wrong with it
      return false;
    }
  });
}

void CalibrateSweeps(const cli::CalibrateFlags& flags) {
  RejectRunFlags(flags);
  RunSweeps(ArgumentsOf(flags));
}

}  // namespace orrery
