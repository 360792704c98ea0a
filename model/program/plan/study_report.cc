// SPDX-License-Identifier: Apache-2.0
// The front and the sensitivities of a study.
#include "model/program/plan/study_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/base/text.h"
#include "model/plan/lower/balance.h"
#include "model/program/common/job.h"
#include "model/program/common/memory_report.h"
#include "model/program/common/table.h"
#include "model/program/common/time_report.h"
#include "model/program/plan/placement_report.h"

namespace orrery::cli {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr StudyMetric kMetrics[] = {
    {"step_time_s", "step", false}, {"tokens_per_s", "tokens/s", true},
    {"mfu", "MFU", true},           {"memory_bytes", "memory", false},
    {"gpus", "GPUs", false},        {"usd_per_billion_tokens", "USD per\n1e9 tokens", false},
};
constexpr std::size_t kStep = 0, kRate = 1, kMfu = 2, kMemory = 3, kGpus = 4, kDollars = 5;

std::string MetricWords(std::size_t metric, double value) {
  if (!std::isfinite(value)) return "-";
  switch (metric) {
    case kStep:
      return Format(Seconds(value));
    case kRate:
      return report::Scaled(value);
    case kMfu:
      return report::Percent(value);
    case kMemory:
      return Format(Bytes(value));
    case kGpus:
      return fmt::format("{:.0f}", value);
    default:
      return report::ThreeDigits(value);
  }
}

// How good, more is better.
double Worth(const StudyPoint& point, std::size_t metric) {
  const double value = point.metrics[metric];
  return kMetrics[metric].more_is_better ? value : -value;
}

std::string ValuesOf(const Study& study, int64_t row) {
  std::string words;
  const std::vector<std::size_t> at = study.At(row);
  for (std::size_t a = 0; a < at.size(); ++a)
    words += fmt::format("{}{} {}", a == 0 ? "" : ", ", study.axes()[a].key,
                         study.axes()[a].values[at[a]]);
  return words;
}

const StudyAxis* ModelAxis(const Study& study) {
  const auto axis = std::ranges::find(study.axes(), "model", &StudyAxis::key);
  return axis == study.axes().end() ? nullptr : &*axis;
}

std::size_t ModelOf(const Study& study, int64_t row) {
  const StudyAxis* axis = ModelAxis(study);
  return axis == nullptr ? 0 : study.At(row)[static_cast<std::size_t>(axis - study.axes().data())];
}

std::string FrontText(const Study& study, const std::vector<StudyPoint>& points,
                      const std::vector<std::size_t>& metrics) {
  constexpr std::size_t kMost = 20;
  const std::vector<std::size_t> front = FrontOf(points, metrics);
  if (front.empty()) return "\nNo row fits.\n";
  std::vector<report::Column> columns = {{"row", true}};
  for (const StudyMetric& metric : kMetrics) columns.push_back({metric.title, true});
  columns.push_back({"flags"});
  report::Table table(columns);
  for (const std::size_t shown : report::ShownRows(front.size(), kMost, 0)) {
    const StudyPoint& point = points[front[shown]];
    std::vector<std::string> cells = {std::to_string(point.row)};
    for (std::size_t m = 0; m < std::size(kMetrics); ++m)
      cells.push_back(MetricWords(m, point.metrics[m]));
    cells.push_back(ValuesOf(study, point.row));
    table.Row(std::move(cells));
  }
  std::string by;
  for (const std::size_t m : metrics)
    by += fmt::format("{}{}", by.empty() ? "" : ", ", kMetrics[m].column);
  const RowStatus ranked = RankedStatus(points);
  const auto without = std::ranges::count_if(points, [&](const StudyPoint& point) {
    return point.status == ranked && std::ranges::any_of(metrics, [&](std::size_t m) {
             return !std::isfinite(point.metrics[m]);
           });
  });
  const StudyAxis* models = ModelAxis(study);
  return fmt::format(
      "\nFrontier: {} row{}{} that no other{} beats in {}\n{}{}", front.size(),
      front.size() == 1 ? "" : "s",
      ranked == RowStatus::kNearlyFull ? fmt::format(", {} as all that fit,", report::kNearlyFull)
                                       : "",
      models != nullptr && models->values.size() > 1 ? " of its model" : "", by, table.Text(),
      without == 0 ? std::string()
                   : fmt::format("  not compared: {} that fit but lack a price or "
                                 "another of these figures (--front)\n",
                                 without));
}

// The most frequent reasons.
std::string RefusalText(const Refusals& refusals) {
  constexpr std::size_t kMost = 5;
  std::vector<std::pair<int64_t, std::string>> reasons;
  for (const auto& [reason, count] : refusals) reasons.emplace_back(-count, reason);
  std::ranges::sort(reasons);
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, reasons.size()); ++i)
    text += fmt::format("{:>8}  {}\n", -reasons[i].first, report::Fold(reasons[i].second, 10));
  int64_t others = 0;
  for (std::size_t i = kMost; i < reasons.size(); ++i) others -= reasons[i].first;
  if (others > 0)
    text += fmt::format("{:>8}  of {} other reasons\n", others, reasons.size() - kMost);
  return text.empty() ? "" : "\nRefused\n" + text;
}

constexpr const char* kClosedForm = "in closed form";

// The order of ranks, and what it gains where it was searched for; "": the default, not searched.
std::string PlacementWords(const StudyRow& row) {
  if (!row.found) return row.placement;
  const Strategy& best = row.found->strategy;
  std::string words = row.placement;
  if (best.layout != row.found->plain.strategy.layout)
    words += fmt::format("{}layers {}", words.empty() ? "" : ", ", LayoutWords(*best.layout));
  return words.empty() ? "default"
                       : fmt::format("{}: {:.1f} % less", words, 100 * row.found->gain());
}

std::string SensitivityText(const Study& study, const std::vector<StudyPoint>& points) {
  report::Table table({{"flag"},
                       {"value"},
                       {"rows", true},
                       {"fit", true},
                       {"compared", true},
                       {"fastest", true},
                       {"slower than the best\nvalue, median", true}});
  for (const Sensitivity& one : SensitivitiesOf(study, points)) {
    const StudyAxis& axis = study.axes()[one.axis];
    table.Row({one.value == 0 ? axis.key : "", axis.values[one.value], std::to_string(one.rows),
               std::to_string(one.ok), std::to_string(one.compared), std::to_string(one.best),
               std::isfinite(one.slower) ? report::Percent(one.slower) : "-"});
  }
  return "\nWhat each flag changes (tokens/s, all other flags alike)\n" + table.Text() +
         "  compared: combinations of the other flags in which this value and another fit; "
         "fastest: "
         "of\n  these, where none is faster\n";
}

}  // namespace

RowStatus RankedStatus(const std::vector<StudyPoint>& points) {
  const bool any = std::ranges::find(points, RowStatus::kOk, &StudyPoint::status) != points.end();
  return any ? RowStatus::kOk : RowStatus::kNearlyFull;
}

std::span<const StudyMetric> StudyMetrics() { return kMetrics; }

StudyPoint PointOf(const Study& study, const StudyRow& row, Refusals* refusals) {
  const bool known = row.status != RowStatus::kRefused;
  if (!known) ++(*refusals)[row.reason];
  return {
      row.row,
      row.status,
      {row.time.total, row.tokens_per_s, row.mfu, row.memory_bytes,
       known ? static_cast<double>(row.gpus) : kNone, row.usd_per_billion_tokens.value_or(kNone)},
      ModelOf(study, row.row)};
}

StudyPoint PointOfLine(const Study& study, const std::string& line, Refusals* refusals) {
  const std::vector<std::string> fields = CsvCells(line);
  const std::vector<std::string> names = CsvCells(CsvHeader(study));
  const std::size_t status = 1 + study.axes().size();
  StudyPoint point;
  point.row = std::strtoll(fields[0].c_str(), nullptr, 10);
  point.model = ModelOf(study, point.row);
  point.status = StatusOf(fields[status]);
  if (point.status == RowStatus::kRefused) ++(*refusals)[fields.back()];
  for (const StudyMetric& metric : kMetrics) {
    const auto at =
        static_cast<std::size_t>(std::ranges::find(names, metric.column) - names.begin());
    point.metrics.push_back(at >= fields.size() || fields[at].empty()
                                ? kNone
                                : std::strtod(fields[at].c_str(), nullptr));
  }
  return point;
}

std::vector<std::size_t> FrontOf(const std::vector<StudyPoint>& points,
                                 const std::vector<std::size_t>& metrics) {
  const RowStatus ranked = RankedStatus(points);
  std::vector<std::size_t> order, front;
  for (std::size_t i = 0; i < points.size(); ++i) {
    const bool known = std::ranges::all_of(
        metrics, [&](std::size_t m) { return std::isfinite(points[i].metrics[m]); });
    if (points[i].status == ranked && known) order.push_back(i);
  }
  // Whoever beats a row stands before it.
  std::ranges::stable_sort(order, [&](std::size_t a, std::size_t b) {
    for (const std::size_t m : metrics) {
      if (Worth(points[a], m) != Worth(points[b], m))
        return Worth(points[a], m) > Worth(points[b], m);
    }
    return false;
  });
  for (const std::size_t i : order) {
    const bool beaten = std::ranges::any_of(front, [&](std::size_t f) {
      return points[f].model == points[i].model && std::ranges::all_of(metrics, [&](std::size_t m) {
               return Worth(points[f], m) >= Worth(points[i], m);
             });
    });
    if (!beaten) front.push_back(i);
  }
  return front;
}

std::vector<Sensitivity> SensitivitiesOf(const Study& study,
                                         const std::vector<StudyPoint>& points) {
  const RowStatus ranked = RankedStatus(points);
  std::vector<Sensitivity> all;
  std::vector<const StudyPoint*> by_row(static_cast<std::size_t>(study.rows()), nullptr);
  for (const StudyPoint& point : points) by_row[static_cast<std::size_t>(point.row)] = &point;
  std::size_t stride = by_row.size();
  for (std::size_t a = 0; a < study.axes().size(); ++a) {
    const std::size_t count = study.axes()[a].values.size();
    stride /= count;  // rows between two values of this flag
    std::vector<Sensitivity> values(count);
    std::vector<std::vector<double>> slower(count);
    for (std::size_t first = 0; first < by_row.size(); ++first) {
      if (first / stride % count != 0) continue;
      double best = 0;
      int64_t compared = 0;
      for (std::size_t v = 0; v < count; ++v) {
        const StudyPoint* point = by_row[first + v * stride];
        if (point == nullptr) continue;
        ++values[v].rows;
        values[v].ok += Fits(point->status);
        if (point->status != ranked) continue;
        best = std::max(best, point->metrics[kRate]);
        ++compared;
      }
      if (compared < 2) continue;  // one value alone shows nothing of the flag
      for (std::size_t v = 0; v < count; ++v) {
        const StudyPoint* point = by_row[first + v * stride];
        if (point == nullptr || point->status != ranked) continue;
        ++values[v].compared;
        slower[v].push_back(best / point->metrics[kRate] - 1);
        if (point->metrics[kRate] == best) ++values[v].best;
      }
    }
    for (std::size_t v = 0; v < count; ++v) {
      values[v].axis = a;
      values[v].value = v;
      values[v].slower = kNone;
      if (!slower[v].empty()) {
        const auto middle = slower[v].begin() + static_cast<std::ptrdiff_t>(slower[v].size() / 2);
        std::nth_element(slower[v].begin(), middle, slower[v].end());
        values[v].slower = *middle;
      }
      all.push_back(values[v]);
    }
  }
  return all;
}

std::string StudyRowsText(const Study& study, const std::vector<StudyRow>& rows) {
  constexpr std::size_t kMost = 60;
  std::vector<report::Column> columns = {{"row", true}};
  for (const StudyAxis& axis : study.axes()) columns.push_back({axis.key, true});
  for (const char* title : {"step\n(80 % interval)", "tokens/s", "MFU", "memory"})
    columns.push_back({title, true});
  const bool placed =
      std::ranges::any_of(rows, [](const StudyRow& row) { return !PlacementWords(row).empty(); });
  if (placed) columns.push_back({"placement"});
  columns.push_back({""});
  report::Table table(columns);
  const auto simulated = std::ranges::count(rows, true, &StudyRow::simulated);
  const auto closed = std::ranges::count_if(rows, [](const StudyRow& row) {
    return row.status != RowStatus::kRefused && !row.simulated;
  });
  for (const std::size_t shown : report::ShownRows(rows.size(), kMost, 0)) {
    const StudyRow& row = rows[shown];
    Refusals refusals;
    const StudyPoint point = PointOf(study, row, &refusals);
    std::vector<std::string> cells = {std::to_string(row.row)};
    const std::vector<std::size_t> at = study.At(row.row);
    for (std::size_t a = 0; a < at.size(); ++a) cells.push_back(study.axes()[a].values[at[a]]);
    const bool known = row.status != RowStatus::kRefused;
    cells.push_back(known ? report::TimeWithInterval(row.time) : "-");
    for (const std::size_t m : {kRate, kMfu, kMemory})
      cells.push_back(MetricWords(m, point.metrics[m]));
    if (placed) cells.push_back(PlacementWords(row));
    std::string remark = row.status == RowStatus::kOk ? ""
                         : known                      ? WordOf(row.status)
                                                      : row.reason;
    if (known && !row.simulated && simulated > 0)
      remark = remark.empty() ? kClosedForm : fmt::format("{}, {}", remark, kClosedForm);
    cells.push_back(remark);
    table.Row(std::move(cells));
  }
  const std::string more =
      rows.size() > kMost ? fmt::format("  {} of {} rows; --json has all\n", kMost, rows.size())
                          : "";
  std::string engine;
  if (closed == 0 && simulated > 0)
    engine = "  Step times are simulated, as of plan predict.\n";
  else if (closed > 0)
    engine = simulated == 0 ? "  Step times are in closed form, none is simulated.\n"
                            : fmt::format("  Step times: {} {}, marked so, {} simulated.\n", closed,
                                          kClosedForm, simulated);
  return table.Text() + more + engine + "\n";
}

nlohmann::ordered_json StudyRowsJson(const Study& study, const std::vector<StudyRow>& rows) {
  nlohmann::ordered_json table = nlohmann::ordered_json::array();
  for (const StudyRow& row : rows) {
    nlohmann::ordered_json json = {{"row", row.row}};
    const std::vector<std::size_t> at = study.At(row.row);
    for (std::size_t a = 0; a < at.size(); ++a)
      json["flags"][study.axes()[a].key] = study.axes()[a].values[at[a]];
    json["fits"] = Fits(row.status);
    json["nearly_full"] = row.status == RowStatus::kNearlyFull;
    json["refused"] =
        row.reason.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(row.reason);
    json["layout"] = row.layout;
    json["step_time_interval_s"] = {row.time.low, row.time.high};
    json["engine"] = row.simulated ? "event" : "closed";
    json["placement"] =
        row.found ? report::PlacementJson(*row.found)
        : row.placement.empty()
            ? nlohmann::ordered_json()
            : nlohmann::ordered_json({{"placement", row.placement}, {"given", true}});
    Refusals refusals;
    const StudyPoint point = PointOf(study, row, &refusals);
    for (std::size_t m = 0; m < std::size(kMetrics); ++m)
      json[kMetrics[m].column] = point.metrics[m];
    table.push_back(std::move(json));
  }
  return table;
}

std::vector<std::size_t> DefaultFront(const std::vector<StudyPoint>& points) {
  const RowStatus ranked = RankedStatus(points);
  const bool priced = std::ranges::all_of(points, [&](const StudyPoint& point) {
    return point.status != ranked || std::isfinite(point.metrics[kDollars]);
  });
  return {kRate, priced ? kDollars : kGpus};
}

std::string StudyHeader(const Study& study) {
  const std::string header = StudyPredictor(study, Engine::kClosed).Header(0);
  if (header.empty()) return "";
  return (study.rows() > study.RowsPerJob() ? "Row 0: " : "") + header + "\n";
}

std::string StudyBrief(const Study& study, const std::vector<StudyPoint>& points) {
  const RowStatus ranked = RankedStatus(points);
  const StudyPoint* fastest = nullptr;
  int64_t fit = 0;
  for (const StudyPoint& point : points) {
    fit += Fits(point.status);
    if (point.status != ranked || !Fits(point.status)) continue;
    if (fastest == nullptr || point.metrics[kRate] > fastest->metrics[kRate]) fastest = &point;
  }
  const std::string rows = fmt::format("{} rows: {} fit", points.size(), fit);
  return fastest == nullptr ? rows
                            : fmt::format("{}; fastest row {}: {} {}, {}", rows, fastest->row,
                                          MetricWords(kRate, fastest->metrics[kRate]),
                                          kMetrics[kRate].title, ValuesOf(study, fastest->row));
}

std::string StudyText(const Study& study, const std::vector<StudyPoint>& points,
                      const Refusals& refusals, const std::vector<std::size_t>& front_metrics) {
  int64_t ok = 0, full = 0, unfit = 0;
  for (const StudyPoint& point : points) {
    ok += Fits(point.status);
    full += point.status == RowStatus::kNearlyFull;
    unfit += point.status == RowStatus::kDoesNotFit;
  }
  return fmt::format("{} rows: {} fit{}, {} do not fit in memory, {} refused\n", points.size(), ok,
                     full == 0 ? ""
                               : fmt::format(" ({} of them {}: below all others)", full,
                                             report::kNearlyFull),
                     unfit, static_cast<int64_t>(points.size()) - ok - unfit) +
         RefusalText(refusals) + FrontText(study, points, front_metrics) +
         SensitivityText(study, points);
}

nlohmann::ordered_json StudyJson(const Study& study, const std::vector<StudyPoint>& points,
                                 const Refusals& refusals,
                                 const std::vector<std::size_t>& front_metrics) {
  nlohmann::ordered_json json = {{"schema", "orrery.sweep/1"}, {"rows", points.size()}};
  json["rows_nearly_full"] =
      std::ranges::count(points, RowStatus::kNearlyFull, &StudyPoint::status);
  json["axes"] = nlohmann::ordered_json::array();
  for (const StudyAxis& axis : study.axes())
    json["axes"].push_back({{"flag", axis.key}, {"values", axis.values}});
  json["front"] = nlohmann::ordered_json::array();
  for (const std::size_t i : FrontOf(points, front_metrics)) {
    nlohmann::ordered_json row = {{"row", points[i].row}};
    const std::vector<std::size_t> at = study.At(points[i].row);
    for (std::size_t a = 0; a < at.size(); ++a)
      row["flags"][study.axes()[a].key] = study.axes()[a].values[at[a]];
    for (std::size_t m = 0; m < std::size(kMetrics); ++m)
      row[kMetrics[m].column] = points[i].metrics[m];
    row["nearly_full"] = points[i].status == RowStatus::kNearlyFull;
    json["front"].push_back(std::move(row));
  }
  json["refused"] = nlohmann::ordered_json::array();
  for (const auto& [reason, count] : refusals)
    json["refused"].push_back({{"reason", reason}, {"rows", count}});
  json["sensitivities"] = nlohmann::ordered_json::array();
  for (const Sensitivity& one : SensitivitiesOf(study, points))
    json["sensitivities"].push_back({{"flag", study.axes()[one.axis].key},
                                     {"value", study.axes()[one.axis].values[one.value]},
                                     {"rows", one.rows},
                                     {"fit", one.ok},
                                     {"compared", one.compared},
                                     {"fastest", one.best},
                                     {"median_slowdown", one.slower}});
  return json;
}

}  // namespace orrery::cli
