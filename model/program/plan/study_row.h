// SPDX-License-Identifier: Apache-2.0
// One row of a study: what `plan predict` says of its case.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/program/plan/study.h"
#include "model/twin/placement.h"

namespace orrery::cli {

enum class RowStatus { kOk, kNearlyFull, kDoesNotFit, kRefused };
inline bool Fits(RowStatus status) {
  return status == RowStatus::kOk || status == RowStatus::kNearlyFull;
}
// As in the CSV.
const char* WordOf(RowStatus status);
RowStatus StatusOf(const std::string& word);

struct StudyRow {
  int64_t row = 0;
  RowStatus status = RowStatus::kRefused;
  std::string reason;  // where it is refused
  int64_t gpus = 0;
  std::string layout;
  StepTime time;  // NaN where it is refused
  bool simulated = false;
  bool engines_differ = false;
  std::string notes;  // what the time leaves open: report::NotesText()
  double tokens_per_s = 0, mfu = 0, memory_bytes = 0, capacity_bytes = 0;
  std::optional<double> usd_per_billion_tokens;
  std::string placement;                 // of its ranks, as --placement has it; "": the default
  std::optional<PlacementChoice> found;  // by --placement search
};
std::string_view EngineOf(const StudyRow& row);  // "event" or "closed", as in the CSV

// Predicts rows; keeps the job of the last one. For one thread.
class StudyPredictor {
 public:
  StudyPredictor(const Study& study, Engine engine);
  ~StudyPredictor();
  StudyRow Predict(int64_t row);
  // What the job of a row is and what defaults it takes; "": it is refused.
  std::string Header(int64_t row);

 private:
  struct Resolved;
  const Resolved& JobOfRow(int64_t row, const StudyCase& flags);
  void Fill(const Resolved& job, const Strategy& strategy, StudyRow* out);

  const Study& study_;
  const Engine engine_;
  const Trust trust_;
  std::unique_ptr<Resolved> job_;
  int64_t job_number_ = -1;
};

// Names of the columns: row, the study's flags, and the figures.
std::string CsvHeader(const Study& study);
// With a line end and no other.
std::string CsvLine(const Study& study, const StudyRow& row);
// Cells of a line, without quotes.
std::vector<std::string> CsvCells(const std::string& line);
// Number of the row that a line (without its end) holds whole; -1: it is none of this study's, as behind a damaged disk or
// an editor: another number of cells, flags of another row, no such status, no number where there is one.
int64_t RowOfLine(const Study& study, const std::string& line);

}  // namespace orrery::cli
