// SPDX-License-Identifier: Apache-2.0
// Predicts as Predict() does, but keeps layer tables and shapes from row to row and verifies nothing.
#include "model/program/plan/study_row.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "model/plan/lower/names.h"
#include "model/price/breakdown.h"
#include "model/program/common/candidate_report.h"
#include "model/program/common/memory_report.h"
#include "model/program/common/time_report.h"

namespace orrery::cli {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();
constexpr const char* kStatusWords[] = {"ok", report::kNearlyFull, "does not fit", "refused"};

constexpr std::string_view kEngineWords[] = {"closed", "event"};

// Lines are rows: a text's own line ends become spaces.
std::string Cell(std::string text) {
  for (char& c : text) c = c == '\n' || c == '\r' ? ' ' : c;
  if (text.find_first_of(",\"") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + "\"";
}

// A row's number and flags, as its line begins.
std::string KeyOfRow(const Study& study, int64_t row) {
  std::string key = std::to_string(row);
  const std::vector<std::size_t> at = study.At(row);
  for (std::size_t a = 0; a < at.size(); ++a) key += "," + Cell(study.axes()[a].values[at[a]]);
  return key;
}

bool IsNumber(const std::string& cell) {
  char* end = nullptr;
  std::strtod(cell.c_str(), &end);
  return !cell.empty() && *end == '\0';
}

std::string NumberCell(double number) { return number == number ? fmt::format("{}", number) : ""; }

}  // namespace

std::string_view EngineOf(const StudyRow& row) { return kEngineWords[row.simulated]; }

const char* WordOf(RowStatus status) { return kStatusWords[static_cast<int>(status)]; }

RowStatus StatusOf(const std::string& word) {
  const auto at = std::ranges::find(kStatusWords, std::string_view(word),
                                    [](const char* one) { return std::string_view(one); });
  return at == std::end(kStatusWords) ? RowStatus::kRefused
                                      : static_cast<RowStatus>(at - std::begin(kStatusWords));
}

// Of one job.
struct StudyPredictor::Resolved {
  std::string refused;  // why there is none
  report::Job job;
  orrery::Job twin;
  ShapeCache shapes;
  std::unique_ptr<StepPredictor> predictor;
};

StudyPredictor::StudyPredictor(const Study& study, Engine engine)
    : study_(study), engine_(engine), trust_(LoadTrust()) {}
StudyPredictor::~StudyPredictor() = default;

const StudyPredictor::Resolved& StudyPredictor::JobOfRow(int64_t row, const StudyCase& flags) {
  const int64_t number = row / study_.RowsPerJob();
  if (number == job_number_) return *job_;
  job_ = std::make_unique<Resolved>();
  job_number_ = number;
  try {
    job_->job = flags.job.Resolve();
    job_->twin = JobOf(job_->job.request, job_->job.profiles);
    job_->predictor = std::make_unique<StepPredictor>(job_->twin, &job_->shapes);
  } catch (const InputError& error) {
    job_->refused = error.diagnostics().front().message;
  }
  return *job_;
}

void StudyPredictor::Fill(const Resolved& job, const Strategy& strategy, StudyRow* out) {
  Prediction prediction;
  if (engine_ == Engine::kClosed) {
    const auto closed = job.predictor->Predict(strategy);
    if (const auto* refusal = std::get_if<Refusal>(&closed)) {
      out->reason = refusal->reason;
      return;
    }
    prediction = PredictionOf(job.twin, strategy, std::get<StepTime>(closed));
    prediction.memory = ReportMemory(LowerLegal(job.twin, strategy), LimitsOf(job.twin, strategy),
                                     Communicators(strategy));
    const Confidence known = ConfidenceOf(job.twin, strategy, Window::kStep, trust_, &job_->shapes);
    prediction.time.low = known.low;
    prediction.time.high = known.high;
    prediction.outside = known.outside;
  } else {
    const auto predicted = orrery::Predict(job.twin, strategy, engine_);
    if (const auto* refusal = std::get_if<Refusal>(&predicted)) {
      out->reason = refusal->reason;
      return;
    }
    prediction = std::get<Prediction>(predicted);
  }
  out->status = !prediction.memory->fits         ? RowStatus::kDoesNotFit
                : prediction.memory->nearly_full ? RowStatus::kNearlyFull
                                                 : RowStatus::kOk;
  out->gpus = strategy.ranks();
  out->layout = DescribeLayout(strategy, prediction.micro_batches);
  out->time = prediction.time;
  out->simulated = prediction.simulated.has_value();
  out->engines_differ = prediction.EnginesDiffer();
  out->notes = report::NotesText(job.job, prediction);
  out->tokens_per_s = prediction.tokens_per_second;
  out->mfu = prediction.mfu;
  out->memory_bytes = prediction.memory->total.value;
  out->capacity_bytes = prediction.memory->capacity.value;
  if (prediction.price_per_billion_tokens)
    out->usd_per_billion_tokens = prediction.price_per_billion_tokens->value;
}

StudyRow StudyPredictor::Predict(int64_t row) {
  StudyRow out;
  out.row = row;
  out.time = report::UnknownTime();
  out.tokens_per_s = out.mfu = out.memory_bytes = out.capacity_bytes = kUnknown;
  const StudyCase flags = study_.CaseOf(row);
  const Resolved& job = JobOfRow(row, flags);
  out.reason = job.refused;
  if (!job.refused.empty()) return out;
  try {
    const Strategy strategy = OneStrategy(flags.layout, job.job, &out.found, engine_);
    if (strategy.placement) out.placement = PlacementText(*strategy.placement);
    Fill(job, strategy, &out);
  } catch (const InputError& error) {
    out.reason = error.diagnostics().front().message;
  }
  return out;
}

std::string StudyPredictor::Header(int64_t row) {
  const Resolved& job = JobOfRow(row, study_.CaseOf(row));
  return job.refused.empty() ? report::JobHeader(job.job) : "";
}

std::string CsvHeader(const Study& study) {
  std::string header = "row";
  for (const StudyAxis& axis : study.axes()) header += "," + axis.key;
  header +=
      ",status,gpus,layout_words,step_time_s,step_time_low_s,step_time_high_s,tokens_per_s,"
      "mfu,"
      "memory_bytes,capacity_bytes,usd_per_billion_tokens";
  for (const BreakdownTerm& term : BreakdownTerms()) header += std::string(",") + term.key;
  return header + ",engine,notes,reason\n";
}

std::string CsvLine(const Study& study, const StudyRow& row) {
  std::string line = KeyOfRow(study, row.row);
  const bool known = row.status != RowStatus::kRefused;
  line += fmt::format(",{},{},{}", WordOf(row.status), known ? std::to_string(row.gpus) : "",
                      Cell(row.layout));
  for (const double number :
       {row.time.total, row.time.low, row.time.high, row.tokens_per_s, row.mfu, row.memory_bytes,
        row.capacity_bytes, row.usd_per_billion_tokens.value_or(kUnknown)})
    line += "," + NumberCell(number);
  for (const BreakdownTerm& term : BreakdownTerms())
    line += "," + NumberCell(known ? row.time.*term.seconds : kUnknown);
  return line +
         fmt::format(",{},{},{}\n", known ? EngineOf(row) : "", Cell(row.notes), Cell(row.reason));
}

std::vector<std::string> CsvCells(const std::string& line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"' && quoted && i + 1 < line.size() && line[i + 1] == '"') {
      cells.back() += line[++i];
    } else if (line[i] == '"') {
      quoted = !quoted;
    } else if (line[i] == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += line[i];
    }
  }
  return cells;
}

int64_t RowOfLine(const Study& study, const std::string& line) {
  // Status, GPUs, layout; then the figures; engine, notes and the reason.
  constexpr std::size_t kWords = 3, kLastWords = 3;
  char* end = nullptr;
  const int64_t row = std::strtoll(line.c_str(), &end, 10);
  if (end == line.c_str() || *end != ',' || row < 0 || row >= study.rows()) return -1;
  if (!line.starts_with(KeyOfRow(study, row) + ",")) return -1;
  const std::vector<std::string> cells = CsvCells(line);
  const std::size_t status = 1 + study.axes().size();
  const std::size_t figures = 8 + BreakdownTerms().size();
  if (cells.size() != status + kWords + figures + kLastWords) return -1;
  const RowStatus known = StatusOf(cells[status]);
  if (cells[status] != WordOf(known)) return -1;
  const bool refused = known == RowStatus::kRefused;
  if (refused == cells.back().empty()) return -1;
  const std::string& engine = cells[cells.size() - kLastWords];
  if (refused ? !engine.empty() : std::ranges::find(kEngineWords, engine) == std::end(kEngineWords))
    return -1;
  for (std::size_t i = status + kWords; i + kLastWords < cells.size(); ++i) {
    if (!cells[i].empty() && (refused || !IsNumber(cells[i]))) return -1;
  }
  return !refused && (cells[status + kWords].empty() || cells[status + 1].empty()) ? -1 : row;
}

}  // namespace orrery::cli
