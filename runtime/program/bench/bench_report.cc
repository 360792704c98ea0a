// SPDX-License-Identifier: Apache-2.0
// Columns, errors by range of sizes, and which constants are guesses.
#include "runtime/program/bench/bench_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/collectives/nccl/machine.h"
#include "model/hardware/measured_collectives.h"
#include "model/program/common/job.h"
#include "model/program/common/table.h"

namespace orrery::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kMostDevices = 64;  // named one by one

// What collective times follow from, of a GPU profile; of a fabric's, everything does.
constexpr const char* kGpuConstants[] = {
    "collective_launch",     "scaleup_hop",     "ring_efficiency",
    "nvls_efficiency",       "nvls_round_trip", "low_latency_hop",
    "low_latency_bandwidth", "pipelining",      "local_copy"};
constexpr const char* kCopyConstants[] = {"collective_launch", "memory_bandwidth",
                                          "memory_efficiency"};

struct Range {
  const char* name;
  double below;  // bytes, this one excluded
};
constexpr double kKi = 1024, kMi = 1024 * kKi;
constexpr Range kRanges[] = {
    {"below 64 KiB", 64 * kKi}, {"64 KiB to 16 MiB", 16 * kMi + 1}, {"above 16 MiB", INFINITY}};

struct Origin {
  const char* role;
  const ProfileHeader* header;
  std::vector<std::string> guesses;
  int constants = 0;
};

bool IsGuess(const Provenance& constant) {
  return constant.points == 0 && !constant.source.starts_with("fitted") &&
         !constant.source.starts_with("vendor");
}

Origin OriginOf(const char* role, const ProfileHeader& header, std::span<const char* const> only) {
  Origin origin{role, &header, {}, 0};
  for (const auto& [key, constant] : header.constants) {
    if (!only.empty() && std::find(only.begin(), only.end(), key) == only.end()) continue;
    if (key == "gpu_direct") continue;  // a fact, and of NCCL's choice only
    ++origin.constants;
    if (IsGuess(constant)) origin.guesses.push_back(key);
  }
  return origin;
}

// The profiles that this prediction rests on.
std::vector<Origin> Origins(const BenchSimulation& simulation) {
  if (simulation.ranks() == 1) return {OriginOf("GPU", simulation.gpu().header, kCopyConstants)};
  std::vector<Origin> origins;
  if (simulation.cluster().summary.domain_gpus() > 1)
    origins.push_back(OriginOf("GPU", simulation.gpu().header, kGpuConstants));
  if (simulation.cluster().summary.domains() > 1)
    origins.push_back(OriginOf("network", simulation.fabric().header, {}));
  return origins;
}

// The sweep that the times follow, or how far to trust them without one.
std::string TrustText(const BenchSimulation& simulation, const BenchResult& result) {
  if (simulation.ranks() == 1 || result.rows.empty()) return "";
  if (const auto& follows = result.rows.back().follows) {
    return fmt::format("Times follow {} ({}; {})", follows->origin, orrery::Words(follows->rule),
                       simulation.fabric().measured->path);
  }
  // What small messages take follows from these.
  const bool crosses = simulation.cluster().summary.domains() > 1;
  const auto& known =
      crosses ? simulation.fabric().header.constants : simulation.gpu().header.constants;
  const auto latency = known.find(crosses ? "hop" : "collective_launch");
  if (latency == known.end() || !IsGuess(latency->second)) return "";
  return "No sweep of this group: estimate from priors, up to a factor of two off below 64 KiB; "
         "--collectives FILE adds a sweep";
}

std::string OriginText(const BenchSimulation& simulation, const BenchResult& result,
                       const char* mark) {
  std::string text;
  const std::string trust = TrustText(simulation, result);
  if (!trust.empty()) text += mark + trust + "\n";
  if (!result.rows.empty() && result.rows.back().follows) return text;
  for (const Origin& origin : Origins(simulation)) {
    std::string line =
        fmt::format("{} profile {}: {} of {} constants are measured or vendor data", origin.role,
                    origin.header->id, origin.constants - static_cast<int>(origin.guesses.size()),
                    origin.constants);
    if (!origin.guesses.empty())
      line += fmt::format("; priors: {}", fmt::join(origin.guesses, ", "));
    text += mark + report::Fold(line, 0, 92);
    for (std::size_t at = text.size() - 1;
         (at = text.rfind('\n', at)) != std::string::npos && at > 0; --at) {
      if (text.compare(at + 1, std::string_view(mark).size(), mark) != 0) text.insert(at + 1, mark);
    }
    text += '\n';
  }
  return text;
}

std::string Machine(const BenchSimulation& simulation) {
  const Cluster& cluster = simulation.cluster();
  return fmt::format("{}: {} node{} x {} {} = {} rank{}", cluster.summary.name, cluster.nodes,
                     cluster.nodes == 1 ? "" : "s", cluster.gpus_per_node, cluster.summary.gpu,
                     simulation.ranks(), simulation.ranks() == 1 ? "" : "s");
}

// "tree up to 16 MiB, ring above".
std::string AlgorithmText(const std::vector<BenchRow>& rows) {
  std::string text;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i + 1 < rows.size() && rows[i + 1].algorithm == rows[i].algorithm) continue;
    text += fmt::format("{}{}", text.empty() ? "" : ", ", rows[i].algorithm);
    if (i + 1 < rows.size())
      text += fmt::format(" to {}", Format(Bytes(static_cast<double>(rows[i].size.bytes))));
  }
  return text;
}

std::string Words(const nccl::Choice& choice) {
  return fmt::format("{} {}", nccl::Name(choice.algorithm), nccl::Name(choice.protocol));
}

// "# NCCL 2.28.9: tree ll to 64 KiB (1 to 16 channels), nvls_tree simple above (16 channels)".
std::string NcclText(const BenchResult& result, const char* mark) {
  if (!result.nccl) return "";
  std::string text;
  const std::vector<BenchRow>& rows = result.rows;
  for (std::size_t i = 0; i < rows.size();) {
    std::size_t end = i;
    int least = rows[i].nccl->channels, most = least;
    while (end + 1 < rows.size() && Words(*rows[end + 1].nccl) == Words(*rows[i].nccl)) {
      ++end;
      least = std::min(least, rows[end].nccl->channels);
      most = std::max(most, rows[end].nccl->channels);
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", ", Words(*rows[i].nccl));
    if (end + 1 < rows.size())
      text += fmt::format(" to {}", Format(Bytes(static_cast<double>(rows[end].size.bytes))));
    text += least == most ? fmt::format(" ({} channel{})", most, most == 1 ? "" : "s")
                          : fmt::format(" ({} to {} channels)", least, most);
    i = end + 1;
  }
  text =
      fmt::format("{}NCCL {} chooses: {}\n", mark, nccl::ReleaseText(result.nccl->release()), text);
  const auto priced = [](const BenchRow& row) {
    return FindAlgorithm(NameHere(row.nccl->algorithm)) != nullptr;
  };
  if (!std::ranges::all_of(rows, priced))
    text += fmt::format(
        "{}PAT and CollNet have no price here: their times are those of the fastest "
        "of the others\n",
        mark);
  return text;
}

std::string DeviceLines(const BenchSimulation& simulation) {
  const Cluster& cluster = simulation.cluster();
  if (simulation.ranks() > kMostDevices) return "";
  std::string text = "# Using devices\n";
  for (int rank = 0; rank < simulation.ranks(); ++rank) {
    text += fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device {:2} [modelled] {}\n",
                        rank, 0, fmt::format("node{}", cluster.NodeOf(rank)),
                        rank % cluster.gpus_per_node, cluster.summary.gpu);
  }
  return text + "#\n";
}

std::string NcclTable(const BenchSimulation& simulation, const BenchResult& result) {
  std::string text = fmt::format(
      "# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}           out-of-place     "
      "                  in-place\n",
      "", "", "", "", "");
  text += ColumnTitles(false);
  double sum = 0;
  for (const BenchRow& row : result.rows) {
    const double busbw = result.busbw(row, simulation.ranks());
    sum += busbw;
    text += RowStart(result.sweep, row.size, ReductionOf(result.sweep.collective));
    // The model knows no difference between the two.
    for (int side = 0; side < 2; ++side) {
      text += fmt::format("  {}  {}  {}     N/A", FloatText(row.us(), 7), FloatText(row.algbw(), 6),
                          FloatText(busbw, 6));
    }
    text += '\n';
  }
  const double average = sum / static_cast<double>(std::max<std::size_t>(1, result.rows.size()));
  return text + fmt::format("# Avg bus bandwidth    : {:g}\n#\n", average);
}

struct RangeError {
  const char* name;
  int points = 0;
  double absolute = 0, signed_sum = 0, worst = 0;
};

std::vector<RangeError> ErrorsByRange(const BenchResult& result) {
  std::vector<RangeError> errors;
  for (const Range& range : kRanges) errors.push_back({range.name});
  for (const BenchRow& row : result.rows) {
    if (row.size.bytes == 0) continue;
    std::size_t r = 0;
    while (static_cast<double>(row.size.bytes) >= kRanges[r].below) ++r;
    ++errors[r].points;
    errors[r].absolute += std::abs(row.error());
    errors[r].signed_sum += row.error();
    if (std::abs(row.error()) > std::abs(errors[r].worst)) errors[r].worst = row.error();
  }
  return errors;
}

std::string Percent(double share) { return fmt::format("{:+.1f} %", 100 * share); }

std::string ComparisonTable(const BenchResult& result) {
  report::Table table({{"size", true},
                       {"measured\nus", true},
                       {"predicted\nus", true},
                       {"error", true},
                       {"predicted\nalgorithm"},
                       {"NCCL\nchooses"}});
  for (const BenchRow& row : result.rows) {
    table.Row({std::to_string(row.size.bytes), fmt::format("{:.4g}", *row.measured_us),
               fmt::format("{:.4g}", row.us()), Percent(row.error()), std::string(row.algorithm),
               row.nccl ? Words(*row.nccl) : "-"});
  }
  report::Table ranges(
      {{"sizes"}, {"points", true}, {"mean |error|", true}, {"bias", true}, {"worst", true}});
  for (const RangeError& error : ErrorsByRange(result)) {
    if (error.points == 0) continue;
    ranges.Row({error.name, std::to_string(error.points),
                fmt::format("{:.1f} %", 100 * error.absolute / error.points),
                Percent(error.signed_sum / error.points), Percent(error.worst)});
  }
  return table.Text() + "\n" + ranges.Text();
}

std::string LogNotes(const BenchResult& result) {
  std::string text;
  if (result.measured->ranks == 0)
    text += "  The log does not state the number of ranks: taken from the flags.\n";
  if (result.measured->collective.empty())
    text += "  The log does not name its collective: taken from the command line.\n";
  if (result.log->garbled_lines == 0) return text;
  text += fmt::format("  Skipped {} garbled line{} of the log:\n", result.log->garbled_lines,
                      result.log->garbled_lines == 1 ? "" : "s");
  return text + Render(result.log->garbled, false);
}

std::string ComparisonText(const BenchSimulation& simulation, const BenchResult& result) {
  std::string text = fmt::format("{} on {}, predicted over {} against {}:{}\n\n",
                                 Name(result.sweep.collective), Machine(simulation), result.network,
                                 result.log->source->name, result.measured->line);
  if (!result.mismatch.empty()) text += fmt::format("Mismatched: {}\n\n", result.mismatch);
  text += ComparisonTable(result) + "\n" + LogNotes(result) + OriginText(simulation, result, "  ");
  return text;
}

Json GraphJson(const nccl::Graph& graph) {
  return {{"pattern", nccl::Name(graph.pattern)},
          {"channels", graph.channels},
          {"gb_s_inside", graph.inside},
          {"gb_s_across", graph.across},
          {"path_inside", nccl::Name(graph.distance_inside)},
          {"path_across", nccl::Name(graph.distance_across)},
          {"cross_nic", graph.cross_nic}};
}

// What NCCL's search finds on these ranks; null: it does not run here.
Json NcclJson(const BenchResult& result) {
  if (!result.nccl) return nullptr;
  const nccl::Graphs& graphs = result.nccl->graphs();
  Json json = {{"release", nccl::ReleaseText(result.nccl->release())},
               {"channels", result.nccl->channels()},
               {"nvls_channels", result.nccl->nvls_channels()},
               {"graphs", Json::array({GraphJson(graphs.ring), GraphJson(graphs.tree)})}};
  if (graphs.nvls_support) json["graphs"].push_back(GraphJson(graphs.nvls));
  if (graphs.in_network) json["graphs"].push_back(GraphJson(graphs.direct));
  return json;
}

Json RowJson(const BenchSimulation& simulation, const BenchResult& result, const BenchRow& row) {
  Json json = {{"size", row.size.bytes},
               {"count", row.size.count},
               {"time_us", row.us()},
               {"algbw_gb_s", row.algbw()},
               {"busbw_gb_s", result.busbw(row, simulation.ranks())}};
  // Where NCCL runs, its choice; else the algorithm that is fastest here. Inside a node the time is that of the fastest all the same.
  json["algorithm"] = row.nccl ? std::string_view(nccl::Name(row.nccl->algorithm)) : row.algorithm;
  if (row.nccl) {
    json["protocol"] = nccl::Name(row.nccl->protocol);
    json["channels"] = row.nccl->channels;
    json["threads"] = row.nccl->threads;
  }
  json["time_of"] = {{"algorithm", row.algorithm}, {"protocol", nccl::Name(row.protocol)}};
  if (row.follows)
    json["follows"] = {{"sweep", row.follows->origin}, {"rule", orrery::Words(row.follows->rule)}};
  if (row.measured_us) {
    json["measured_us"] = *row.measured_us;
    json["error"] = row.error();
    json["line"] = row.line;
  }
  return json;
}

}  // namespace

std::string ColumnTitles(bool predicted) {
  std::string text;
  for (const bool units : {false, true}) {
    text += units ? fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "(B)", "(elements)", "",
                                "", "")
                  : fmt::format("# {:>10}  {:>12}  {:>8}  {:>6}  {:>6}", "size", "count", "type",
                                "redop", "root");
    for (int side = 0; side < 2; ++side) {
      text += units
                  ? fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "(us)", "(GB/s)", "(GB/s)", "")
                  : fmt::format("  {:>7}  {:>6}  {:>6}  {:>6}", "time", "algbw", "busbw", "#wrong");
    }
    if (predicted)
      text += units ? fmt::format("  {:>9}  {:>9}", "(us)", "(%)")
                    : fmt::format("  {:>9}  {:>9}", "predicted", "deviation");
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

std::string RowStart(const Sweep& sweep, const FittedSize& size, const std::string& redop) {
  return fmt::format("{:12}  {:12}  {:>8}  {:>6}  {:6}", size.bytes, size.count, sweep.type.name,
                     redop, RootOf(sweep.collective));
}

std::string FloatText(double value, int width) {
  int digits = 0;  // before the point
  for (double power = 1; value >= power && digits < 300; power *= 10) ++digits;
  if (digits < width - 2) return fmt::format("{:{}.2f}", value, width);
  if (digits < width - 1) return fmt::format("{:{}.1f}", value, width);
  if (digits < width + 1) return fmt::format("{:{}.0f}", value, width);
  return fmt::format("{:{}.{}e}", value, width, width >= 7 ? 1 : 0);
}

std::string BenchText(const BenchSimulation& simulation, const BenchResult& result) {
  if (result.measured != nullptr) return ComparisonText(simulation, result);
  std::string text = fmt::format(
      "# Collective test starting: {}\n"
      "# Predicted by plan bench --simulate, nothing was run: network {}\n# {}\n#\n",
      NcclProgram(result.sweep.collective), result.network, Machine(simulation));
  text += DeviceLines(simulation) + NcclTable(simulation, result);
  text += fmt::format("# Algorithm: {}\n", AlgorithmText(result.rows)) + NcclText(result, "# ");
  return text + OriginText(simulation, result, "# ");
}

// The error, or what the largest size takes.
std::string BenchBrief(const BenchSimulation& simulation, const BenchResult& result) {
  const std::string what =
      fmt::format("{} on {}", Name(result.sweep.collective), Machine(simulation));
  if (result.rows.empty()) return what;
  if (result.measured != nullptr) {
    int points = 0;
    double absolute = 0, bias = 0;
    for (const RangeError& error : ErrorsByRange(result)) {
      points += error.points;
      absolute += error.absolute;
      bias += error.signed_sum;
    }
    const double count = std::max(points, 1);
    return fmt::format("{}: mean |error| {:.1f} %, bias {}, {} sizes", what, 100 * absolute / count,
                       Percent(bias / count), points);
  }
  const BenchRow& row = result.rows.back();
  return fmt::format("{}: {} in {}, {:.3g} GB/s bus bandwidth", what,
                     Format(Bytes(static_cast<double>(row.size.bytes))), Format(row.time),
                     result.busbw(row, simulation.ranks()));
}

nlohmann::ordered_json BenchJson(const BenchSimulation& simulation, const BenchResult& result) {
  const Cluster& cluster = simulation.cluster();
  Json json = {{"schema", "orrery.bench/1"},
               {"simulated", true},
               {"collective", Name(result.sweep.collective)},
               {"type", result.sweep.type.name},
               {"redop", ReductionOf(result.sweep.collective)},
               {"root", RootOf(result.sweep.collective)},
               {"topology", cluster.summary.name},
               {"nodes", cluster.nodes},
               {"gpus_per_node", cluster.gpus_per_node},
               {"gpu", cluster.summary.gpu},
               {"ranks", simulation.ranks()},
               {"network", result.network},
               {"nccl", NcclJson(result)},
               {"rows", Json::array()}};
  for (const BenchRow& row : result.rows) json["rows"].push_back(RowJson(simulation, result, row));
  if (result.measured != nullptr) {
    json["log"] = {{"file", result.log->source->name},
                   {"line", result.measured->line},
                   {"garbled_lines", result.log->garbled_lines},
                   {"mismatch", result.mismatch.empty() ? Json(nullptr) : Json(result.mismatch)}};
    json["errors"] = Json::array();
    for (const RangeError& error : ErrorsByRange(result)) {
      if (error.points == 0) continue;
      json["errors"].push_back({{"sizes", error.name},
                                {"points", error.points},
                                {"mean_absolute_error", error.absolute / error.points},
                                {"bias", error.signed_sum / error.points},
                                {"worst", error.worst}});
    }
  }
  json["profiles"] = Json::array();
  for (const Origin& origin : Origins(simulation)) {
    json["profiles"].push_back({{"role", origin.role},
                                {"profile", origin.header->id},
                                {"constants", origin.constants},
                                {"guesses", origin.guesses}});
  }
  return json;
}

}  // namespace orrery::cli
