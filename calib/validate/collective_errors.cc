// SPDX-License-Identifier: Apache-2.0
// Reads tables of collective times and predicts each point by closed form.
#include "calib/validate/collective_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "model/arch/data_root.h"
#include "model/base/csv.h"
#include "model/base/diagnostics.h"
#include "model/collectives/select.h"
#include "model/hardware/catalog.h"
#include "model/hardware/summary.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr double kMostBytes = 1e15, kMostUs = 1e12;
constexpr int64_t kMostNodes = 1 << 20, kMostPerNode = 1024;

struct Point {
  double bytes = 0, seconds = 0;
};

struct Table {
  std::string collective;
  std::vector<Point> points;
};

// The smaller of the two times of a row: single spikes of tens of microseconds are common.
std::optional<double> SecondsOf(const CsvTable& csv, std::size_t row) {
  std::optional<double> best;
  for (const char* column : {"time_us_out_of_place", "time_us_in_place"}) {
    const std::optional<double> us = csv.Number(row, column, 0, kMostUs);
    if (us && *us > 0 && (!best || 1e-6 * *us < *best)) best = 1e-6 * *us;
  }
  return best;
}

std::map<std::string, Table> ReadTables(const std::vector<std::string>& paths) {
  std::map<std::string, Table> tables;
  for (const std::string& path : paths) {
    Diagnostics diagnostics;
    const CsvTable csv =
        CsvTable::Parse(ReadSource(path), {"table", "collective", "bytes"}, &diagnostics);
    for (std::size_t i = 0; i < csv.rows(); ++i) {
      const std::optional<double> bytes = csv.Number(i, "bytes", 0, kMostBytes);
      const std::optional<double> seconds = SecondsOf(csv, i);
      if (!bytes || *bytes <= 0 || !seconds) continue;
      Table& table = tables[csv.Text(i, "table")];
      table.collective = csv.Text(i, "collective");
      table.points.push_back({*bytes, *seconds});
    }
    diagnostics.ThrowIfAny();
  }
  return tables;
}

std::optional<Collective> CollectiveOf(const std::string& text) {
  constexpr std::pair<const char*, Collective> kNames[] = {
      {"all_reduce", Collective::kAllReduce},         {"allreduce", Collective::kAllReduce},
      {"all_gather", Collective::kAllGather},         {"broadcast", Collective::kBroadcast},
      {"reduce_scatter", Collective::kReduceScatter}, {"sendrecv", Collective::kSendRecv},
      {"all_to_all", Collective::kAllToAll}};
  for (const auto& [name, collective] : kNames) {
    if (text == name) return collective;
  }
  return std::nullopt;
}

void Compare(const Table& table, Collective collective, CollectiveErrors* one) {
  const ClusterSummary cluster =
      Summarise(LoadTopology(one->topology), one->nodes, one->gpus_per_node);
  const GpuProfile gpu = LoadGpuProfile(cluster.gpu);
  const FabricProfile fabric = LoadFabricProfile(cluster.fabric_profile);
  const GroupShape shape{static_cast<int>(cluster.ranks()), cluster.domain_gpus(), 1};
  Network network = ViewNetwork(cluster, gpu, fabric, shape);
  if (!one->nccl.empty()) network.nccl.release = nccl::NearestRelease(one->nccl);
  if (one->gpus_per_process > 1) network.issue = kIssueOfEach * one->gpus_per_process;
  const auto compare = [&](const std::string& algorithm, BandMeans* errors) {
    const PreparedCollective prepared = Prepare(collective, network, algorithm);
    for (const Point& point : table.points) {
      const double seconds = cluster.ranks() == 1 ? CopyTime(network, gpu, Bytes(point.bytes)).value
                                                  : prepared.Time(point.bytes);
      errors->Add(point.bytes, seconds / point.seconds - 1);
    }
  };
  compare(one->algorithm, &one->errors);
  compare("", &one->chosen);
}

}  // namespace

void BandMeans::Add(double bytes, double error) {
  const auto band = static_cast<std::size_t>(SizeBand(bytes));
  sum[band] += std::abs(error);
  ++points[band];
}

std::vector<CollectiveErrors> PredictCollectives(const std::string& runs,
                                                 const std::vector<std::string>& times) {
  const std::map<std::string, Table> tables = ReadTables(times);
  Diagnostics diagnostics;
  const CsvTable csv = CsvTable::Parse(
      ReadSource(runs), {"table", "topology", "nodes", "gpus_per_node", "algorithm"}, &diagnostics);
  std::vector<CollectiveErrors> all;
  for (std::size_t i = 0; i < csv.rows(); ++i) {
    CollectiveErrors one;
    one.table = csv.Text(i, "table");
    one.topology = csv.Text(i, "topology");
    one.algorithm = csv.Text(i, "algorithm");
    one.fitted = csv.Text(i, "fitted");
    one.nccl = csv.Text(i, "nccl");
    one.left_out = csv.Text(i, "left_out");
    if (!one.left_out.empty() && one.topology.empty()) {
      all.push_back(std::move(one));
      continue;
    }
    one.nodes = csv.Integer(i, "nodes", 1, kMostNodes).value_or(0);
    one.gpus_per_node =
        static_cast<int>(csv.Integer(i, "gpus_per_node", 1, kMostPerNode).value_or(0));
    if (!csv.Text(i, "gpus_per_process").empty())
      one.gpus_per_process =
          static_cast<int>(csv.Integer(i, "gpus_per_process", 1, kMostPerNode).value_or(1));
    const auto table = tables.find(one.table);
    const auto collective =
        table == tables.end() ? std::nullopt : CollectiveOf(table->second.collective);
    if (!collective)
      diagnostics.Error(csv.where(i, "table"),
                        fmt::format("no collective times of '{}'", one.table),
                        "a table of the files of times");
    if (!collective || one.nodes == 0 || one.gpus_per_node == 0) continue;
    one.collective = Name(*collective);
    Compare(table->second, *collective, &one);
    all.push_back(std::move(one));
  }
  diagnostics.ThrowIfAny();
  return all;
}

std::vector<SweepErrors> LeftOutSweeps() {
  std::vector<fs::path> files;
  for (const auto& entry :
       fs::directory_iterator(fs::path(DataRoot()) / "calib" / "profiles" / "collectives"))
    files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::vector<SweepErrors> all;
  for (const fs::path& file : files) {
    const MeasuredCollectives measured = ReadMeasuredCollectives(ReadSource(file.string()));
    SweepErrors one{file.stem().string(), measured.machine, 0, {}};
    for (const GroupCurve& group : measured.groups) {
      ++one.sweeps;
      for (std::size_t band = 0; band < kSizeBands; ++band) {
        if (!group.left_out_error[band]) continue;
        one.errors.sum[band] += group.points * *group.left_out_error[band];
        one.errors.points[band] += group.points;
      }
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace orrery
