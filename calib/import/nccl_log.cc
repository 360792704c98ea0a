// SPDX-License-Identifier: Apache-2.0
// What text and JSON reports have in common.
#include "calib/import/nccl_log.h"

#include <fmt/format.h>

#include <set>

namespace orrery::measured {
namespace {

constexpr std::size_t kMostGarbled = 100;  // kept; all are counted
constexpr int kMostImplied = 4096;

// Both bandwidths are printed with two decimals.
constexpr double kHalfDigit = 0.005;

double BusFactor(const std::string& collective, int ranks) {
  const double share = (ranks - 1.0) / ranks;
  return collective == "all_reduce" ? 2 * share : share;
}

}  // namespace

int NcclRun::hosts() const {
  std::set<std::string> names;
  for (const MeasuredDevice& device : devices) names.insert(device.host);
  return static_cast<int>(names.size());
}

std::string CollectiveOfProgram(const std::string& word) {
  constexpr std::string_view kSuffix = "_perf";
  std::string name = word.substr(word.find_last_of('/') + 1);
  if (!name.ends_with(kSuffix)) return "";
  name.resize(name.size() - kSuffix.size());
  if (name == "alltoall") return "all_to_all";
  static const std::set<std::string> kKnown = {"all_reduce", "all_gather", "reduce_scatter",
                                               "broadcast",  "reduce",     "sendrecv",
                                               "gather",     "scatter",    "hypercube"};
  return kKnown.contains(name) ? name : "";
}

int ImpliedRanks(const std::string& collective, const std::vector<Measurement>& measurements) {
  if (collective != "all_reduce" && collective != "all_gather" && collective != "reduce_scatter" &&
      collective != "all_to_all") {
    return 0;
  }
  const Timing* most = nullptr;
  for (const Measurement& row : measurements) {
    const Timing* timing = row.out_of_place ? &*row.out_of_place : &*row.in_place;
    if (most == nullptr || timing->algbw > most->algbw) most = timing;
  }
  if (most == nullptr || most->algbw <= 2 * kHalfDigit) return 0;
  const double low = (most->busbw - kHalfDigit) / (most->algbw + kHalfDigit);
  const double high = (most->busbw + kHalfDigit) / (most->algbw - kHalfDigit);
  int found = 0;
  for (int n = 2; n <= kMostImplied; ++n) {
    const double factor = BusFactor(collective, n);
    if (factor < low || factor > high) continue;
    if (found != 0) return 0;
    found = n;
  }
  return found;
}

void AddGarbled(int line, int column, const std::string& why, NcclLog* log) {
  ++log->garbled_lines;
  if (log->garbled.size() < kMostGarbled)
    log->garbled.push_back({{log->source, line, column}, why, ""});
}

void FinishLog(NcclLog* log) {
  std::erase_if(log->runs, [](const NcclRun& run) { return run.measurements.empty(); });
  for (NcclRun& run : log->runs) {
    if (run.ranks > 0) continue;
    run.ranks = ImpliedRanks(run.collective, run.measurements);
    run.ranks_implied = run.ranks > 0;
  }
  if (!log->runs.empty()) return;
  const int64_t garbled = log->garbled_lines;
  Diagnostics diagnostics;
  diagnostics.Error({log->source, 0, 0},
                    garbled == 0 ? std::string("there is no measurement in this file")
                                 : fmt::format("no measurement could be read, {} line{} garbled",
                                               garbled, garbled == 1 ? " is" : "s are"),
                    "give the output of nccl-tests (all_reduce_perf and so on), with its column "
                    "titles, or its JSON report");
  for (const Diagnostic& one : log->garbled) diagnostics.Error(one.where, one.message, one.hint);
  diagnostics.ThrowIfAny();
}

NcclLog ReadNcclLog(const SourcePtr& source) {
  const std::size_t first = source->text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string::npos && source->text[first] == '{';
  return json ? ReadNcclJson(source) : ReadNcclText(source);
}

}  // namespace orrery::measured
