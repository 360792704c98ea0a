// SPDX-License-Identifier: Apache-2.0
// The collectives of calib/ACCURACY.md.
#include "calib/program/validate/accuracy_collectives.h"

#include <fmt/format.h>

#include <array>
#include <map>

namespace orrery {
namespace {

std::string PercentText(double error) { return fmt::format("{:.1f}", 100 * error); }

std::string BandCells(const BandMeans& means) {
  std::string cells;
  for (std::size_t band = 0; band < kSizeBands; ++band)
    cells += means.points[band] == 0
                 ? " - |"
                 : fmt::format(" {} |", PercentText(means.sum[band] / means.points[band]));
  return cells;
}

// Of these tables, each once: "8.9, 7.1 and 3.0 %"; "-": none has messages of that size.
std::string MeanOfTables(const std::vector<CollectiveErrors>& tables, bool unfitted, bool chosen) {
  std::array<double, kSizeBands> sum{};
  std::array<int, kSizeBands> count{};
  for (const CollectiveErrors& one : tables) {
    const BandMeans& means = chosen ? one.chosen : one.errors;
    for (std::size_t band = 0; band < kSizeBands; ++band) {
      if ((unfitted && !one.fitted.empty()) || means.points[band] == 0) continue;
      sum[band] += means.sum[band] / means.points[band];
      ++count[band];
    }
  }
  std::string text;
  for (std::size_t band = 0; band < kSizeBands; ++band)
    text += fmt::format("{}{}", band == 0 ? "" : " / ",
                        count[band] == 0 ? "-" : PercentText(sum[band] / count[band]));
  return text;
}

// What the table's means rest on: which rows made constants, and which were told their algorithm.
std::string CollectiveMeans(const std::vector<CollectiveErrors>& tables) {
  std::map<std::string, std::vector<std::string>> fitted;
  std::vector<std::string> rest;
  for (const CollectiveErrors& one : tables)
    one.fitted.empty() ? rest.push_back(one.table) : fitted[one.fitted].push_back(one.table);
  std::string out = fmt::format(
      "\nMean over tables: {}. Without those that made constants: {} ({}).\n\n"
      "| fitted to these tables, or chosen with them in view | tables |\n|---|---|\n",
      MeanOfTables(tables, false, false), MeanOfTables(tables, true, false), fmt::join(rest, ", "));
  for (const auto& [constants, names] : fitted)
    out += fmt::format("| {} | {} |\n", constants, fmt::join(names, ", "));
  out += fmt::format(
      "\nWith the algorithm that the model takes by itself (`plan bench --simulate`) in place of "
      "the one that a "
      "table names, the mean over tables is {}:\n\n| table | {} | {} | {} |\n|---|---|---|---|\n",
      MeanOfTables(tables, false, true), SizeBandName(0), SizeBandName(1), SizeBandName(2));
  for (const CollectiveErrors& one : tables) {
    if (!one.algorithm.empty()) out += fmt::format("| {} |{}\n", one.table, BandCells(one.chosen));
  }
  return out;
}

// Published tables that count in no mean, with the error where a topology of the catalogue comes near.
std::string LeftOutTables(const std::vector<CollectiveErrors>& tables) {
  std::string out = fmt::format(
      "\nIn no mean:\n\n| table | cluster | {} | {} | {} | why |\n|---|---|---|---|---|---|\n",
      SizeBandName(0), SizeBandName(1), SizeBandName(2));
  for (const CollectiveErrors& one : tables) {
    if (one.left_out.empty()) continue;
    out += fmt::format("| {} | {} |{} {} |\n", one.table,
                       one.topology.empty()
                           ? "-"
                           : fmt::format("{}, {} x {}", one.topology, one.nodes, one.gpus_per_node),
                       BandCells(one.errors), one.left_out);
  }
  return out;
}

}  // namespace

std::string CollectiveSection(const std::vector<CollectiveErrors>& every,
                              const std::vector<SweepErrors>& sweeps) {
  std::vector<CollectiveErrors> tables = every;
  std::erase_if(tables, [](const CollectiveErrors& one) { return !one.left_out.empty(); });
  std::string out = fmt::format(
      "## Collectives\n\n"
      "Mean error of the closed form against published tables of nccl-tests, by message size, with "
      "the constants of the hardware class, without a sweep of the machine. Most tables made some "
      "of "
      "these constants, see below.\n\n"
      "| table | collective | cluster | GPUs | algorithm | {0} | {1} | {2} "
      "|\n|---|---|---|---|---|---|---|---|\n",
      SizeBandName(0), SizeBandName(1), SizeBandName(2));
  for (const CollectiveErrors& one : tables)
    out += fmt::format("| {} | {} | {} | {} x {} | {} |{}\n", one.table, one.collective,
                       one.topology, one.nodes, one.gpus_per_node,
                       one.algorithm.empty() ? "chosen" : one.algorithm, BandCells(one.errors));
  out += CollectiveMeans(tables);
  out += LeftOutTables(every);
  out += fmt::format(
      "\nWith sweeps of the machine itself (`--collectives ID`), leave-one-size-out:\n\n"
      "| ID | machine | sweeps | {0} | {1} | {2} |\n|---|---|---|---|---|---|\n",
      SizeBandName(0), SizeBandName(1), SizeBandName(2));
  for (const SweepErrors& one : sweeps)
    out +=
        fmt::format("| {} | {} | {} |{}\n", one.id, one.machine, one.sweeps, BandCells(one.errors));
  return out + "\n";
}

}  // namespace orrery
