// SPDX-License-Identifier: Apache-2.0
// Reads sweeps from CSV and from logs of nccl-tests.
#include "calib/sweeps/sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>

#include "calib/import/nccl_log.h"
#include "calib/import/training_log.h"
#include "model/base/csv.h"

namespace orrery {
namespace {

constexpr std::size_t kMostKept = 100;
constexpr double kLargestMessage = 1e15, kLongestUs = 1e12;
constexpr int64_t kMostRanks = 1 << 24;

const std::set<std::string>& Collectives() {
  static const std::set<std::string> names = {"all_reduce", "all_gather", "reduce_scatter",
                                              "broadcast",  "reduce",     "sendrecv",
                                              "all_to_all"};
  return names;
}

std::string CollectiveName(std::string text) {
  if (text.ends_with("_perf")) text.resize(text.size() - 5);
  static const std::map<std::string, std::string> kOther = {
      {"allreduce", "all_reduce"}, {"allgather", "all_gather"}, {"reducescatter", "reduce_scatter"},
      {"alltoall", "all_to_all"},  {"bcast", "broadcast"},      {"send_recv", "sendrecv"}};
  const auto other = kOther.find(text);
  return other == kOther.end() ? text : other->second;
}

// The collective that a log's name speaks of, "2node_16gpu_allreduce.txt", where none of its lines does; "": none.
std::string CollectiveInName(const std::string& path) {
  const std::string name = std::filesystem::path(path).filename().string();
  static const std::array<const char*, 9> kWords = {"all_reduce", "allreduce",      "all_gather",
                                                    "allgather",  "reduce_scatter", "reducescatter",
                                                    "alltoall",   "broadcast",      "sendrecv"};
  for (const char* word : kWords) {
    if (name.find(word) != std::string::npos) return CollectiveName(word);
  }
  return "";
}

void Garbled(const Location& where, const std::string& message, const std::string& hint,
             SweepFiles* files) {
  ++files->garbled_rows;
  if (files->garbled.size() < kMostKept) files->garbled.push_back({where, message, hint});
}

// A number of ranks or nodes; 0 where the source itself is not sure ("64 or 96").
int CountIn(const std::string& text) {
  const bool plain =
      !text.empty() && text.size() < 9 &&
      std::all_of(text.begin(), text.end(), [](unsigned char c) { return c >= '0' && c <= '9'; });
  const int64_t count = plain ? std::stoll(text) : 0;
  return count <= kMostRanks ? static_cast<int>(count) : 0;
}

// The smaller time of a row in seconds; 0: it has none or it is garbled (then recorded).
double SecondsOf(const CsvTable& csv, std::size_t row, double* bytes, SweepFiles* files) {
  double best = 0;
  for (const char* column : {"time_us_out_of_place", "time_us_in_place"}) {
    const std::optional<double> us = csv.Number(row, column, 0, kLongestUs);
    if (!us && !csv.Text(row, column).empty()) {
      Garbled(csv.where(row, column), fmt::format("'{}' is no time", csv.Text(row, column)), "",
              files);
      return 0;
    }
    if (us && *us > 0 && (best == 0 || *us < best)) best = *us;
  }
  const std::optional<double> size = csv.Number(row, "bytes", 0, kLargestMessage);
  if (!size) {
    Garbled(csv.where(row, "bytes"), fmt::format("'{}' is no size", csv.Text(row, "bytes")), "",
            files);
    return 0;
  }
  *bytes = *size;
  if (best == 0 || *size == 0) ++files->empty_rows;
  return *size == 0 ? 0 : 1e-6 * best;
}

MeasuredRuns HeadOf(const CsvTable& csv, std::size_t row, const std::string& file) {
  MeasuredRuns sweep;
  sweep.name = csv.Text(row, "table");
  const std::string given = csv.Text(row, "machine");
  sweep.machine = given.empty()
                      ? MachineOf(csv.Text(row, "hardware") + ", " + csv.Text(row, "network"))
                      : given;
  sweep.collective = CollectiveName(csv.Text(row, "collective"));
  sweep.algorithm = csv.Text(row, "algorithm");
  sweep.ranks = CountIn(csv.Text(row, "gpus"));
  sweep.nodes = CountIn(csv.Text(row, "nodes"));
  sweep.source = csv.Text(row, "source").empty() ? file : csv.Text(row, "source");
  return sweep;
}

// Rows with too many or too few fields are left aside; a header without its columns is fatal.
void CountBrokenRows(Diagnostics* cells, SweepFiles* files) {
  try {
    cells->ThrowIfAny();
  } catch (const InputError& error) {
    for (const Diagnostic& one : error.diagnostics()) {
      if (one.where.line <= 1) throw;
      Garbled(one.where, one.message, one.hint, files);
    }
  }
}

void ReadCsv(const SourcePtr& source, SweepFiles* files) {
  Diagnostics fatal, cells;
  const CsvTable csv =
      CsvTable::Parse(source, {"table", "nodes", "gpus", "collective", "bytes"}, &cells);
  CountBrokenRows(&cells, files);
  if (!csv.HasColumn("time_us_out_of_place") && !csv.HasColumn("time_us_in_place"))
    fatal.Error({source, 1, 0}, "no column with times",
                "time_us_out_of_place or time_us_in_place, in microseconds");
  fatal.ThrowIfAny();
  std::map<std::string, std::size_t> at;
  for (std::size_t row = 0; row < csv.rows(); ++row) {
    double bytes = 0;
    const double seconds = SecondsOf(csv, row, &bytes, files);
    if (seconds <= 0) continue;
    MeasuredRuns head = HeadOf(csv, row, source->name);
    if (!Collectives().contains(head.collective)) {
      Garbled(csv.where(row, "collective"), fmt::format("no collective '{}'", head.collective), "",
              files);
      continue;
    }
    const std::string key = fmt::format("{}\n{}\n{}\n{}\n{}", head.name, head.collective,
                                        head.algorithm, head.ranks, head.nodes);
    const auto [found, added] = at.try_emplace(key, files->sweeps.size());
    if (added) files->sweeps.push_back(std::move(head));
    files->sweeps[found->second].points.push_back({bytes, seconds});
  }
}

void ReadLog(const SourcePtr& source, SweepFiles* files) {
  const measured::NcclLog log = measured::ReadNcclLog(source);
  files->garbled_rows += log.garbled_lines;
  for (const Diagnostic& one : log.garbled)
    if (files->garbled.size() < kMostKept) files->garbled.push_back(one);
  for (const measured::NcclRun& run : log.runs) {
    MeasuredRuns sweep;
    sweep.name =
        fmt::format("{}:{}", std::filesystem::path(source->name).filename().string(), run.line);
    sweep.collective = run.collective.empty() ? CollectiveInName(source->name) : run.collective;
    if (sweep.collective.empty()) {
      Garbled({source, run.line, 0}, "nothing says which collective this table is of",
              "name the file after it, like all_reduce.txt", files);
      continue;
    }
    sweep.machine = run.devices.empty() ? sweep.name : run.devices.front().name;
    for (const measured::MeasuredDevice& device : run.devices) {
      if (std::ranges::find(sweep.devices, device.name) == sweep.devices.end())
        sweep.devices.push_back(device.name);
    }
    sweep.ranks = run.ranks;
    sweep.nodes = run.hosts();
    sweep.source = fmt::format("{}, {}", std::filesystem::path(source->name).filename().string(),
                               sweep.machine);
    for (const measured::Measurement& row : run.measurements) {
      double us = row.out_of_place ? row.out_of_place->us : row.in_place->us;
      if (row.in_place && row.in_place->us > 0) us = std::min(us, row.in_place->us);
      if (row.bytes > 0 && us > 0)
        sweep.points.push_back({static_cast<double>(row.bytes), 1e-6 * us});
      else
        ++files->empty_rows;
    }
    if (!sweep.points.empty()) files->sweeps.push_back(std::move(sweep));
  }
}

bool HasSweepColumns(const std::string& text) {
  const std::string header = text.substr(0, text.find('\n'));
  return header.find("bytes") != std::string::npos &&
         header.find("collective") != std::string::npos &&
         header.find("time_us") != std::string::npos;
}

bool HasLogTitles(const std::string& text) {
  return text.find("algbw") != std::string::npos || text.find("busbw") != std::string::npos;
}

}  // namespace

void SweepFiles::Append(SweepFiles from) {
  std::ranges::move(from.sweeps, std::back_inserter(sweeps));
  for (Diagnostic& one : from.garbled)
    if (garbled.size() < kMostKept) garbled.push_back(std::move(one));
  garbled_rows += from.garbled_rows;
  empty_rows += from.empty_rows;
}

bool IsSweepFile(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  const SourcePtr source = measured::ReadLogSource(path);
  return HasSweepColumns(source->text) || HasLogTitles(source->text);
}

SweepFiles ReadSweepSource(const SourcePtr& source) {
  SweepFiles files;
  if (HasSweepColumns(source->text)) {
    ReadCsv(source, &files);
  } else {
    ReadLog(source, &files);
  }
  for (MeasuredRuns& sweep : files.sweeps)
    std::ranges::stable_sort(sweep.points, {}, &SweepPoint::bytes);
  if (!files.sweeps.empty()) return files;
  Diagnostics diagnostics;
  diagnostics.Error({source, 0, 0},
                    fmt::format("no measurement could be read, {} rows are garbled and {} empty",
                                files.garbled_rows, files.empty_rows));
  for (const Diagnostic& one : files.garbled) diagnostics.Error(one.where, one.message, one.hint);
  diagnostics.ThrowIfAny();
  return files;
}

SweepFiles ReadSweeps(const std::vector<std::string>& paths) {
  SweepFiles all;
  for (const std::string& path : paths) all.Append(ReadSweepSource(measured::ReadLogSource(path)));
  return all;
}

std::string MachineOf(const std::string& hardware) {
  std::istringstream words(hardware);
  std::string word, kept;
  const auto is_count = [](std::string text) {
    while (!text.empty() && (text.back() == ')' || text.back() == ',')) text.pop_back();
    while (!text.empty() && text.front() == '(') text.erase(0, 1);
    if (text.size() < 2) return false;
    if (text.front() == 'x')
      text.erase(0, 1);
    else if (text.back() == 'x')
      text.pop_back();
    else
      return false;
    return CountIn(text) > 0;
  };
  while (words >> word) {
    if (!is_count(word)) kept += (kept.empty() ? "" : " ") + word;
  }
  return kept;
}

}  // namespace orrery
