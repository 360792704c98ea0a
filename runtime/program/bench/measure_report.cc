// SPDX-License-Identifier: Apache-2.0
// Lines and columns.
#include "runtime/program/bench/measure_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/program/bench/bench_report.h"

namespace orrery::bench {
namespace {

using Json = nlohmann::ordered_json;

double AlgorithmBandwidth(const MeasuredRow& row, const SideTime& side) {  // GB/s
  return 1e-3 * static_cast<double>(row.size.bytes) / side.us;
}
double BusBandwidth(const Measuring& what, const MeasuredRow& row, const SideTime& side) {
  return AlgorithmBandwidth(row, side) *
         WireFactor(what.sweep.collective, static_cast<int>(what.ranks));
}

std::string SideText(const Measuring& what, const MeasuredRow& row, const SideTime& side) {
  const std::string wrong = what.options.checks > 0 ? std::to_string(side.wrong) : "N/A";
  return fmt::format("  {}  {}  {}  {:>6}", cli::FloatText(side.us, 7),
                     cli::FloatText(AlgorithmBandwidth(row, side), 6),
                     cli::FloatText(BusBandwidth(what, row, side), 6), wrong);
}

std::string TitleLines(const Measuring& what) {
  return fmt::format("#{:55}{:>20}{:>33}\n", "", "out-of-place", "in-place") +
         cli::ColumnTitles(!what.topology.empty());
}

Json SideJson(const Measuring& what, const MeasuredRow& row, const SideTime& side) {
  Json json = {{"time_us", side.us},
               {"algbw_gb_s", AlgorithmBandwidth(row, side)},
               {"busbw_gb_s", BusBandwidth(what, row, side)}};
  if (what.options.checks > 0) json["wrong"] = side.wrong;
  return json;
}

double AverageBusBandwidth(const Measuring& what, const std::vector<MeasuredRow>& rows) {
  double sum = 0;
  for (const MeasuredRow& row : rows) {
    sum +=
        BusBandwidth(what, row, row.time.out_of_place) + BusBandwidth(what, row, row.time.in_place);
  }
  return sum / static_cast<double>(2 * std::max<std::size_t>(1, rows.size()));
}

}  // namespace

std::string Measuring::redop() const {
  const std::string reduction = cli::ReductionOf(sweep.collective);
  return reduction == "sum" && maximum ? "max" : reduction;
}

std::string HeadingText(const Measuring& what, const std::vector<MeasuredRank>& ranks) {
  std::string text = fmt::format(
      "# Collective test starting: {}\n# nThread 1 nGpus 1 minBytes {} maxBytes {} step: {} "
      "warmup iters: {} iters: {} agg iters: 1 validation: {} graph: 0\n#\n# Using devices\n",
      cli::NcclProgram(what.sweep.collective), what.sweep.bytes.front(), what.sweep.bytes.back(),
      what.size_step, what.options.warmup, what.options.iterations, what.options.checks);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    text += fmt::format("#  Rank {:2} Group  0 Pid {:6} on {:>10} device {:2} [{}] {}\n", rank,
                        ranks[rank].process, ranks[rank].host, rank,
                        what.comm == cli::Comm::kLocal ? "thread" : cli::CommName(what.comm),
                        what.device);
  }
  return text + "#\n" + TitleLines(what);
}

std::string RowText(const Measuring& what, const MeasuredRow& row) {
  std::string text = cli::RowStart(what.sweep, row.size, what.redop());
  text += SideText(what, row, row.time.out_of_place) + SideText(what, row, row.time.in_place);
  if (row.predicted_us)
    text += fmt::format("  {}  {:>+9.1f}", cli::FloatText(*row.predicted_us, 9), 100 * row.error());
  return text + "\n";
}

std::string EndText(const Measuring& what, const std::vector<MeasuredRow>& rows) {
  std::string text;
  if (what.options.checks > 0) {
    const int64_t wrong = WrongOf(rows);
    text += fmt::format("# Out of bounds values : {} {}\n", wrong, wrong == 0 ? "OK" : "FAILED");
  }
  text += fmt::format("# Avg bus bandwidth    : {:g}\n#\n", AverageBusBandwidth(what, rows));
  if (what.topology.empty()) return text;
  double absolute = 0, bias = 0;
  for (const MeasuredRow& row : rows) {
    absolute += std::abs(row.error()) / static_cast<double>(rows.size());
    bias += row.error() / static_cast<double>(rows.size());
  }
  return text +
         fmt::format("# Predicted on {}: mean |error| {:.1f} %, bias {:+.1f} % (out of place)\n",
                     what.topology, 100 * absolute, 100 * bias);
}

std::string BriefText(const Measuring& what, const std::vector<MeasuredRow>& rows) {
  const int64_t wrong = WrongOf(rows);
  std::string text = fmt::format("{} on {} rank{}", Name(what.sweep.collective), what.ranks,
                                 what.ranks == 1 ? "" : "s");
  if (!rows.empty())
    text += fmt::format(": {} in {}", Format(Bytes(static_cast<double>(rows.back().size.bytes))),
                        Format(Seconds(1e-6 * rows.back().time.out_of_place.us)));
  text += fmt::format(", {:.3g} GB/s average bus bandwidth", AverageBusBandwidth(what, rows));
  if (what.options.checks == 0) return text;
  return text + (wrong == 0 ? ", results right" : fmt::format(", {} elements WRONG", wrong));
}

int64_t WrongOf(const std::vector<MeasuredRow>& rows) {
  int64_t wrong = 0;
  for (const MeasuredRow& row : rows)
    wrong += row.time.out_of_place.wrong + row.time.in_place.wrong;
  return wrong;
}

Json MeasuredJson(const Measuring& what, const std::vector<MeasuredRank>& ranks,
                  const std::vector<MeasuredRow>& rows) {
  Json json = {{"schema", "orrery.bench/1"},
               {"simulated", false},
               {"collective", Name(what.sweep.collective)},
               {"type", what.sweep.type.name},
               {"redop", what.redop()},
               {"root", cli::RootOf(what.sweep.collective)},
               {"comm", cli::CommName(what.comm)},
               {"device", what.device},
               {"ranks", what.ranks},
               {"iterations", what.options.iterations},
               {"warmup", what.options.warmup},
               {"checks", what.options.checks},
               {"hosts", Json::array()},
               {"rows", Json::array()}};
  for (const MeasuredRank& rank : ranks) json["hosts"].push_back(rank.host);
  if (!what.topology.empty()) json["topology"] = what.topology;
  for (const MeasuredRow& row : rows) {
    Json line = {{"size", row.size.bytes},
                 {"count", row.size.count},
                 {"out_of_place", SideJson(what, row, row.time.out_of_place)},
                 {"in_place", SideJson(what, row, row.time.in_place)}};
    if (row.predicted_us) {
      line["predicted_us"] = *row.predicted_us;
      line["error"] = row.error();
    }
    json["rows"].push_back(line);
  }
  json["average_busbw_gb_s"] = AverageBusBandwidth(what, rows);
  if (what.options.checks > 0) json["wrong"] = WrongOf(rows);
  return json;
}

}  // namespace orrery::bench
