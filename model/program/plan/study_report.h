// SPDX-License-Identifier: Apache-2.0
// What a study shows: the rows that no other beats, and what each flag changes.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/program/plan/study_row.h"

namespace orrery::cli {

// Figures that rows are compared by.
struct StudyMetric {
  const char* column;  // in the CSV
  const char* title;
  bool more_is_better;
};
std::span<const StudyMetric> StudyMetrics();
// Their indices.
enum StudyFigure : std::size_t {
  kStepFigure,
  kRateFigure,
  kMfuFigure,
  kMemoryFigure,
  kGpusFigure,
  kDollarsFigure
};

// Of each row what the report needs; a few dozen bytes.
struct StudyPoint {
  int64_t row = 0;
  RowStatus status = RowStatus::kRefused;
  std::vector<double> metrics;  // by StudyMetrics(); NaN: not known
  // Number of its combination of model and sequence length: rows of another one answer another question.
  std::size_t question = 0;
};
// Refused rows by reason.
using Refusals = std::map<std::string, int64_t>;

// Counts a refused row in `refusals`.
StudyPoint PointOf(const Study& study, const StudyRow& row, Refusals* refusals);
// The same from a line of the CSV.
StudyPoint PointOfLine(const Study& study, const std::string& line, Refusals* refusals);

// study_compare.cc

std::size_t QuestionOf(const Study& study, int64_t row);
// "model and sequence length": those that the study varies; "": none.
std::string QuestionWords(const Study& study);

// By point, whether it is compared: of each question the rows that leave the margin of memory, or, where none does, those that are
// nearly full.
std::vector<bool> ComparedRows(const std::vector<StudyPoint>& points);

// Indices into `points` of rows that are compared and that no other row of their question equals or beats in all of `metrics` and
// beats in one; best in the first metric first. Rows that lack a metric never count. Step times are compared at equal tokens per step.
std::vector<std::size_t> FrontOf(const std::vector<StudyPoint>& points,
                                 const std::vector<std::size_t>& metrics);

// Of a value of a flag: among combinations of the other flags.
struct Sensitivity {
  std::size_t axis = 0, value = 0;
  int64_t rows = 0, ok = 0;  // ok: fit, nearly full or not
  int64_t compared = 0;      // combinations in which another value is compared with this one
  int64_t best = 0;          // of those, in which no other value is faster
  double slower =
      0;  // median of (tokens/s of the best value) / (tokens/s of this one) - 1; NaN: never compared
};
// Values of model and sequence length are not compared.
std::vector<Sensitivity> SensitivitiesOf(const Study& study, const std::vector<StudyPoint>& points);

// Tokens/s, and dollars where all compared rows have a price, else GPUs.
std::vector<std::size_t> DefaultFront(const std::vector<StudyPoint>& points);

// study_report.cc

// `front_metrics`: indices of StudyMetrics().
std::string StudyText(const Study& study, const std::vector<StudyPoint>& points,
                      const Refusals& refusals, const std::vector<std::size_t>& front_metrics);
// Model, cluster and defaults, of the first row where they vary.
std::string StudyHeader(const Study& study);
// In one line: rows that fit, and the fastest of each question.
std::string StudyBrief(const Study& study, const std::vector<StudyPoint>& points);
// Schema orrery.sweep/1.
nlohmann::ordered_json StudyJson(const Study& study, const std::vector<StudyPoint>& points,
                                 const Refusals& refusals,
                                 const std::vector<std::size_t>& front_metrics);
// Every row, for studies that stand in one answer.
std::string StudyRowsText(const Study& study, const std::vector<StudyRow>& rows);
nlohmann::ordered_json StudyRowsJson(const Study& study, const std::vector<StudyRow>& rows);

}  // namespace orrery::cli
