// SPDX-License-Identifier: Apache-2.0
// The front and the sensitivities of a study.
#include "model/program/plan/study_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

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

std::string MetricWords(std::size_t metric, double value) {
  if (!std::isfinite(value)) return "-";
  switch (metric) {
    case kStepFigure:
      return Format(Seconds(value));
    case kRateFigure:
      return report::Scaled(value);
    case kMfuFigure:
      return report::Percent(value);
    case kMemoryFigure:
      return Format(Bytes(value));
    case kGpusFigure:
      return fmt::format("{:.0f}", value);
    default:
      return report::ThreeDigits(value);
  }
}

std::string ValuesOf(const Study& study, int64_t row) {
  std::string words;
  const std::vector<std::size_t> at = study.At(row);
  for (std::size_t a = 0; a < at.size(); ++a)
    words += fmt::format("{}{} {}", a == 0 ? "" : ", ", study.axes()[a].key,
                         study.axes()[a].values[at[a]]);
  return words;
}

// " of its model and tokens per step": what rows on the frontier have in common with those that they beat.
std::string AmongWords(const Study& study, const std::vector<std::size_t>& metrics) {
  std::string words = QuestionWords(study);
  if (std::ranges::find(metrics, kStepFigure) != metrics.end())
    words += (words.empty() ? "" : " and ") + std::string("tokens per step");
  return words.empty() ? "" : " of its " + words;
}

std::string FrontText(const Study& study, const std::vector<StudyPoint>& points,
                      const std::vector<std::size_t>& metrics) {
  constexpr std::size_t kMost = 20;
  const std::vector<std::size_t> front = FrontOf(points, metrics);
  if (front.empty()) return "\nNo row fits.\n";
  std::vector<report::Column> columns = {{"row", true}};
  for (const StudyMetric& metric : StudyMetrics()) columns.push_back({metric.title, true});
  columns.push_back({"flags"});
  report::Table table(columns);
  const auto full = [&](std::size_t i) { return points[i].status == RowStatus::kNearlyFull; };
  const bool all_full = std::ranges::all_of(front, full);
  for (const std::size_t shown : report::ShownRows(front.size(), kMost, 0)) {
    const StudyPoint& point = points[front[shown]];
    std::vector<std::string> cells = {std::to_string(point.row)};
    for (std::size_t m = 0; m < StudyMetrics().size(); ++m)
      cells.push_back(MetricWords(m, point.metrics[m]));
    cells.push_back(ValuesOf(study, point.row));
    if (full(front[shown]) && !all_full)
      cells.back() += fmt::format(" ({}, as all that fit of its {})", report::kNearlyFull,
                                  QuestionWords(study));
    table.Row(std::move(cells));
  }
  std::string by;
  for (const std::size_t m : metrics)
    by += fmt::format("{}{}", by.empty() ? "" : ", ", StudyMetrics()[m].column);
  const std::vector<bool> compared = ComparedRows(points);
  int64_t without = 0;
  for (std::size_t i = 0; i < points.size(); ++i)
    without += compared[i] && std::ranges::any_of(metrics, [&](std::size_t m) {
                 return !std::isfinite(points[i].metrics[m]);
               });
  return fmt::format("\nFrontier: {} row{}{} that no other{} beats in {}\n{}{}", front.size(),
                     front.size() == 1 ? "" : "s",
                     all_full ? fmt::format(", {} as all that fit,", report::kNearlyFull) : "",
                     AmongWords(study, metrics), by, table.Text(),
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
  std::string text =
      "\nWhat each flag changes (tokens/s, all other flags alike)\n" + table.Text() +
      "  compared: combinations of the other flags in which this value and another fit; fastest: "
      "of\n  these, where none is faster\n";
  if (const std::string apart = QuestionWords(study); !apart.empty())
    text += fmt::format("  not compared: tokens/s of one {} with those of another\n", apart);
  return text;
}

}  // namespace

StudyPoint PointOf(const Study& study, const StudyRow& row, Refusals* refusals) {
  const bool known = row.status != RowStatus::kRefused;
  if (!known) ++(*refusals)[row.reason];
  return {
      row.row,
      row.status,
      {row.time.total, row.tokens_per_s, row.mfu, row.memory_bytes,
       known ? static_cast<double>(row.gpus) : kNone, row.usd_per_billion_tokens.value_or(kNone)},
      QuestionOf(study, row.row)};
}

StudyPoint PointOfLine(const Study& study, const std::string& line, Refusals* refusals) {
  const std::vector<std::string> fields = CsvCells(line);
  const std::vector<std::string> names = CsvCells(CsvHeader(study));
  const std::size_t status = 1 + study.axes().size();
  StudyPoint point;
  point.row = std::strtoll(fields[0].c_str(), nullptr, 10);
  point.question = QuestionOf(study, point.row);
  point.status = StatusOf(fields[status]);
  if (point.status == RowStatus::kRefused) ++(*refusals)[fields.back()];
  for (const StudyMetric& metric : StudyMetrics()) {
    const auto at =
        static_cast<std::size_t>(std::ranges::find(names, metric.column) - names.begin());
    point.metrics.push_back(at >= fields.size() || fields[at].empty()
                                ? kNone
                                : std::strtod(fields[at].c_str(), nullptr));
  }
  return point;
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
    for (const std::size_t m : {kRateFigure, kMfuFigure, kMemoryFigure})
      cells.push_back(MetricWords(m, point.metrics[m]));
    if (placed) cells.push_back(PlacementWords(row));
    std::string remark = row.status == RowStatus::kOk ? ""
                         : known                      ? WordOf(row.status)
                                                      : row.reason;
    const auto add = [&](const char* words) {
      remark += (remark.empty() ? "" : ", ") + std::string(words);
    };
    if (known && !row.simulated && simulated > 0) add(kClosedForm);
    if (row.engines_differ) add("engines differ");
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
    json["engine"] = EngineOf(row);
    json["notes"] = row.notes;
    json["placement"] =
        row.found ? report::PlacementJson(*row.found)
        : row.placement.empty()
            ? nlohmann::ordered_json()
            : nlohmann::ordered_json({{"placement", row.placement}, {"given", true}});
    Refusals refusals;
    const StudyPoint point = PointOf(study, row, &refusals);
    for (std::size_t m = 0; m < StudyMetrics().size(); ++m)
      json[StudyMetrics()[m].column] = point.metrics[m];
    table.push_back(std::move(json));
  }
  return table;
}

std::string StudyHeader(const Study& study) {
  const std::string header = StudyPredictor(study, Engine::kClosed).Header(0);
  if (header.empty()) return "";
  return (study.rows() > study.RowsPerJob() ? "Row 0: " : "") + header + "\n";
}

std::string StudyBrief(const Study& study, const std::vector<StudyPoint>& points) {
  const std::vector<bool> compared = ComparedRows(points);
  std::map<std::size_t, const StudyPoint*> fastest;  // by question
  int64_t fit = 0;
  for (std::size_t i = 0; i < points.size(); ++i) {
    fit += Fits(points[i].status);
    if (!compared[i]) continue;
    const StudyPoint*& best = fastest[points[i].question];
    if (best == nullptr || points[i].metrics[kRateFigure] > best->metrics[kRateFigure])
      best = &points[i];
  }
  std::string text =
      fmt::format("{} row{}: {} fit", points.size(), points.size() == 1 ? "" : "s", fit);
  for (const auto& [question, best] : fastest)
    text += fmt::format("; fastest{} row {}: {} {}, {}",
                        fastest.size() > 1 ? " of its " + QuestionWords(study) + ":" : "",
                        best->row, MetricWords(kRateFigure, best->metrics[kRateFigure]),
                        StudyMetrics()[kRateFigure].title, ValuesOf(study, best->row));
  return text;
}

std::string StudyText(const Study& study, const std::vector<StudyPoint>& points,
                      const Refusals& refusals, const std::vector<std::size_t>& front_metrics) {
  int64_t ok = 0, full = 0, unfit = 0;
  for (const StudyPoint& point : points) {
    ok += Fits(point.status);
    full += point.status == RowStatus::kNearlyFull;
    unfit += point.status == RowStatus::kDoesNotFit;
  }
  return fmt::format("{} row{}: {} fit{}, {} do not fit in memory, {} refused\n", points.size(),
                     points.size() == 1 ? "" : "s", ok,
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
    for (std::size_t m = 0; m < StudyMetrics().size(); ++m)
      row[StudyMetrics()[m].column] = points[i].metrics[m];
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
