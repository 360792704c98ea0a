// SPDX-License-Identifier: Apache-2.0
// From flags to a cluster, a sweep and its table.
#include "runtime/program/bench/bench_command.h"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "calib/import/device_names.h"
#include "model/collectives/nccl/machine.h"
#include "model/hardware/catalog.h"
#include "model/hardware/measured_collectives.h"
#include "model/program/common/names.h"
#include "model/program/common/program.h"
#include "model/program/common/simulate_flags.h"
#include "runtime/program/bench/bench_report.h"
#include "runtime/program/bench/bench_sweep.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kAfterName = 2;  // plan bench
constexpr int64_t kMostRanks = 65536;
constexpr int64_t kMostAllToAllRanks = 1024;  // their pairs are routed one by one

[[noreturn]] void Refuse(const Flag& flag, std::string message, std::string hint) {
  Diagnostics diagnostics;
  diagnostics.Error(flag.where, std::move(message), std::move(hint));
  diagnostics.ThrowIfAny();
  std::abort();  // unreachable
}

struct Setting {
  Cluster cluster;
  GpuProfile gpu;
  FabricProfile fabric;
  net::Backend backend = net::Backend::kFluid;
  nccl::Release release = nccl::kOwnRelease;
};

TopologySpec ReadTopologyFlag(const BenchFlags& flags) {
  if (!flags.topology.given) {
    Refuse(flags.topology, "which cluster?",
           "--topology NAME or a YAML file; `plan list topologies` shows the names");
  }
  TopologySpec spec;
  AtFlag(flags.topology, [&] { spec = LoadTopology(flags.topology.text); });
  if (flags.gpu.given) spec.gpu = flags.gpu.text;
  if (flags.collectives.given) spec.collectives = flags.collectives.text;
  if (spec.gpu == kUnknownGpu)
    Refuse(flags.gpu, fmt::format("the GPU of {} is not known", spec.name), "--gpu NAME names one");
  return spec;
}

Setting ReadSetting(const BenchFlags& flags, Collective collective) {
  Diagnostics diagnostics;
  const auto nodes = ReadInteger(flags.nodes, 1, int64_t{1} << 30, &diagnostics);
  const auto gpus = ReadInteger(flags.gpus_per_node, 1, 1024, &diagnostics);
  Setting setting;
  setting.backend = ReadChoice<net::Backend>(flags.network, kNetworkNames, &diagnostics)
                        .value_or(net::Backend::kFluid);
  if (setting.backend == net::Backend::kSimGrid && !net::HasSimGrid()) {
    diagnostics.Error(flags.network.where, "this build has no SimGrid backend",
                      "install libsimgrid-dev and build again, or --network fluid");
  }
  diagnostics.ThrowIfAny();
  const TopologySpec spec = ReadTopologyFlag(flags);
  AtFlag(flags.gpus_per_node.given && !flags.nodes.given ? flags.gpus_per_node : flags.nodes, [&] {
    CheckCounts(spec, nodes.value_or(spec.nodes), static_cast<int>(gpus.value_or(0)));
  });
  const int64_t ranks = nodes.value_or(spec.nodes) * gpus.value_or(spec.node.gpus);
  const int64_t most = collective == Collective::kAllToAll ? kMostAllToAllRanks : kMostRanks;
  if (ranks > most) {
    Refuse(flags.nodes,
           fmt::format("{} among {} ranks is too large to route", Name(collective), ranks),
           fmt::format("at most {} ranks", most));
  }
  setting.cluster =
      BuildCluster(spec, nodes.value_or(spec.nodes), static_cast<int>(gpus.value_or(0)));
  AtFile(flags.gpu, "a GPU", [&] { setting.gpu = LoadGpuProfile(spec.gpu); });
  AtFile(flags.collectives, kTimesOfCollectives, [&] {
    setting.fabric = LoadFabricProfile(setting.cluster.summary.fabric_profile,
                                       setting.cluster.summary.collectives, spec.gpu);
  });
  if (flags.nccl_release.given)
    AtFlag(flags.nccl_release, [&] {
      setting.release = nccl::ReadRelease(flags.nccl_release.text);
      nccl::RequireRelease(setting.release, setting.gpu);
    });
  return setting;
}

using measured::NcclLog;
using measured::NcclRun;

std::string Words(const NcclRun& run) {
  const int hosts = run.hosts();
  return fmt::format("line {}: {}, {}{}", run.line,
                     run.collective.empty() ? "collective not named" : run.collective,
                     run.ranks > 0 ? fmt::format("{} rank{}", run.ranks, run.ranks == 1 ? "" : "s")
                                   : "ranks not named",
                     hosts > 0 ? fmt::format(" on {} host{}", hosts, hosts == 1 ? "" : "s") : "");
}

// The last table that the flags describe.
const NcclRun& Matching(const NcclLog& log, const BenchFlags& flags, Collective collective,
                        const Cluster& cluster) {
  const NcclRun* found = nullptr;
  std::vector<std::string> there;
  for (const NcclRun& run : log.runs) {
    there.push_back(Words(run));
    const bool named = run.collective.empty() || run.collective == Name(collective);
    const bool as_many = run.ranks == 0 || run.ranks == cluster.ranks();
    const bool as_far = run.hosts() == 0 || run.hosts() == cluster.nodes;
    if (named && as_many && as_far) found = &run;
  }
  if (found != nullptr) return *found;
  Refuse(
      flags.log,
      fmt::format("no table of {} is {} among {} rank{} on {} node{}", log.source->name,
                  Name(collective), cluster.ranks(), cluster.ranks() == 1 ? "" : "s", cluster.nodes,
                  cluster.nodes == 1 ? "" : "s"),
      fmt::format("it holds {}; set --nodes and --gpus-per-node to match", fmt::join(there, "; ")));
}

// The log names another GPU than this cluster has.
std::string MismatchOf(const NcclRun& run, const GpuProfile& gpu, const Cluster& cluster) {
  std::vector<std::string> names;
  for (const measured::MeasuredDevice& device : run.devices) names.push_back(device.name);
  const std::string why = measured::OtherDevice(names, gpu);
  return why.empty() ? ""
                     : fmt::format("{}, and {} has {}", why, cluster.summary.name, gpu.header.id);
}

// All sizes of the log, or those between -b and -e.
std::vector<BenchRow> RowsOf(const NcclRun& run, const BenchFlags& flags, const Sweep& sweep) {
  std::vector<BenchRow> rows;
  for (const measured::Measurement& point : run.measurements) {
    if (flags.begin.given && point.bytes < sweep.bytes.front()) continue;
    if (flags.end.given && point.bytes > sweep.bytes.back()) continue;
    BenchRow row;
    row.size = {point.bytes, point.bytes / sweep.type.bytes};
    row.measured_us = (point.out_of_place ? *point.out_of_place : *point.in_place).us;
    row.line = point.line;
    rows.push_back(row);
  }
  if (rows.empty()) {
    Refuse(flags.log, "no size of the log lies between -b and -e",
           fmt::format("it goes from {} to {}", run.measurements.front().bytes,
                       run.measurements.back().bytes));
  }
  return rows;
}

// nccl-tests may print NCCL's lines, too.
NcclLog ReadLog(const SourcePtr& source) {
  try {
    return measured::ReadNcclLog(source);
  } catch (const InputError&) {
    if (source->text.find("busbw") == std::string::npos)
      RefuseMachineFile(source, "a log of nccl-tests");
    throw;
  }
}

Answer Predict(const BenchFlags& flags) {
  BenchResult result;
  result.sweep = ReadSweep(flags);
  Setting setting = ReadSetting(flags, result.sweep.collective);
  result.network = report::NameIn(kNetworkNames, setting.backend);
  NcclLog log;
  if (flags.log.given) {
    AtFlag(flags.log, [&] { log = ReadLog(NcclSource(flags.log)); });
    result.log = &log;
    result.measured = &Matching(log, flags, result.sweep.collective, setting.cluster);
    result.mismatch = MismatchOf(*result.measured, setting.gpu, setting.cluster);
    result.rows = RowsOf(*result.measured, flags, result.sweep);
  } else {
    for (const int64_t bytes : result.sweep.bytes) {
      BenchRow row;
      row.size = FitSize(result.sweep.collective, bytes, static_cast<int>(setting.cluster.ranks()),
                         result.sweep.type);
      result.rows.push_back(row);
    }
  }
  BenchSimulation simulation(std::move(setting.cluster), std::move(setting.gpu),
                             std::move(setting.fabric), setting.backend, setting.release);
  const Cluster& cluster = simulation.cluster();
  const auto operation = NcclOperation(result.sweep.collective);
  if (operation && !flags.algorithm.given) {
    result.nccl = NcclCommunicator(cluster.summary, simulation.gpu(), simulation.fabric(),
                                   {simulation.ranks(), cluster.summary.domain_gpus(), 1},
                                   simulation.release());
  }
  for (BenchRow& row : result.rows) {
    if (result.nccl)
      row.nccl = result.nccl->Choose(*operation, static_cast<double>(row.size.bytes));
    BenchTime time;
    AtFlag(flags.algorithm, [&] {
      time = simulation.Time(result.sweep.collective, Bytes(static_cast<double>(row.size.bytes)),
                             flags.algorithm.text);
    });
    row.time = time.time;
    row.algorithm = time.algorithm;
    row.protocol = time.protocol;
    row.follows = time.measured;
  }
  Answer answer = Deliver(ExitCode::kOk, BenchText(simulation, result),
                          BenchJson(simulation, result), flags.json);
  answer.brief = BenchBrief(simulation, result);
  return answer;
}

}  // namespace

SourcePtr NcclSource(const Flag& file) {
  const SourcePtr source = ReadSource(file.text);
  switch (KindOfClusterFile(*source)) {
    case ClusterFile::kNcclLog:
    case ClusterFile::kNcclTopology:
    case ClusterFile::kNcclGraphs:
      break;
    default:
      if (source->text.find("NCCL") == std::string::npos)
        RefuseMachineFile(source, "a log of NCCL or nccl-tests");
  }
  return source;
}

std::unique_ptr<BenchSimulation> MakeSimulation(const BenchFlags& flags, Collective collective) {
  Setting setting = ReadSetting(flags, collective);
  return std::make_unique<BenchSimulation>(std::move(setting.cluster), std::move(setting.gpu),
                                           std::move(setting.fabric), setting.backend,
                                           setting.release);
}

Answer BenchCollective(const CommandLine& line) {
  BenchFlags flags;
  if (flags.set.Parse(line, kAfterName, false)) return {ExitCode::kOk, DescribeBench().help};
  if (flags.simulate.given || flags.calibrate.given) flags.set.CheckOutputs();
  TakeBenchScenario(&flags);
  if (flags.nccl.given) {
    if (!flags.simulate.given)
      Refuse(flags.nccl, "--nccl compares with the model", "add --simulate and --topology");
    const Collective collective = ReadSweep(flags).collective;
    return CompareNccl(flags, *MakeSimulation(flags, collective), collective);
  }
  if (flags.simulate.given) return Predict(flags);
  if (flags.calibrate.given) return machine::Calibrate(flags);
  return bench::MeasureCollective(flags, line.words());
}

}  // namespace orrery::cli
