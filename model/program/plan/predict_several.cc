// SPDX-License-Identifier: Apache-2.0
// `plan predict` with lists: one row for each combination of values.
#include "model/program/plan/predict_several.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "model/program/common/bundle.h"
#include "model/program/common/terminal.h"
#include "model/program/plan/study_progress.h"
#include "model/program/plan/study_report.h"
#include "model/program/plan/study_run.h"

namespace orrery::cli {
namespace {

std::vector<StudyRow> PredictRows(const Study& study, const StudyRunOptions& options) {
  std::vector<StudyRow> rows(static_cast<std::size_t>(study.rows()));
  std::atomic<int64_t> done = 0;
  std::optional<StudyProgress> progress;
  if (const Terminal& terminal = CurrentTerminal(); !terminal.quiet)
    progress.emplace(StudyProgressOptions{"plan predict", study.rows(), 0, terminal.shows_progress},
                     [&] { return done.load(); });
  RunStudy(study, options, {}, [&](const std::vector<StudyRow>& some) {
    for (const StudyRow& row : some) rows[static_cast<std::size_t>(row.row)] = row;
    done += static_cast<int64_t>(some.size());
  });
  return rows;
}

}  // namespace

Answer PredictSeveral(const SeveralPredictions& asked) {
  const Study& study = asked.study;
  constexpr int64_t kMostInMemory = 100'000;
  Diagnostics diagnostics;
  if (study.rows() > kMostInMemory)
    diagnostics.Error(
        study.axes().front().where.front(),
        fmt::format("more than {} combinations are too many for one answer", kMostInMemory),
        "plan sweep STUDY.yaml writes them to a file");
  std::string varied = study.axes().front().key;
  std::ranges::replace(varied, '_', '-');
  for (const Flag* flag : asked.of_one_layout) {
    if (flag->given)
      diagnostics.Error(flag->where, fmt::format("{} takes one layout", flag->name),
                        fmt::format("one value for --{}", varied));
  }
  diagnostics.ThrowIfAny();
  StudyRunOptions options;
  options.engine = asked.engine;
  options.threads = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const std::vector<StudyRow> rows = PredictRows(study, options);
  std::vector<StudyPoint> points;
  Refusals refusals;
  for (const StudyRow& row : rows) points.push_back(PointOf(study, row, &refusals));
  const bool any = std::ranges::any_of(rows, [](const StudyRow& row) { return Fits(row.status); });
  const std::vector<std::size_t> front = DefaultFront(points);
  nlohmann::ordered_json json = StudyJson(study, points, refusals, front);
  json["table"] = StudyRowsJson(study, rows);
  WriteBundle(asked.bundle, json);
  Answer answer = Deliver(
      any ? ExitCode::kOk : ExitCode::kInfeasible,
      StudyHeader(study) + StudyRowsText(study, rows) + StudyText(study, points, refusals, front),
      json, asked.json);
  answer.brief = StudyBrief(study, points);
  return answer;
}

}  // namespace orrery::cli
