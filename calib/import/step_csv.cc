// SPDX-License-Identifier: Apache-2.0
// Reads a CSV of steps whose header says the units: "step,step_time [ms],loss,memory [GiB]".
//
// Known columns: step, step_time (or time, elapsed, iteration_time), loss, samples (global batch),
// samples/s, tokens/s, mfu [%] or mfu, memory, rank (rows of ranks on one step are one sample, that of the slowest). A unit may end the name: step_time_s, forward_ms. Any other column with a unit of time is a term of
// that name; columns without one are skipped. Comments begin with '#'.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "calib/import/log_lines.h"
#include "calib/import/rank_lines.h"
#include "calib/import/training_log.h"

namespace orrery::measured {
namespace {

const char* const kCsvHint =
    "the first line names the columns, times with their unit: step,step_time [ms],loss";

struct Column {
  std::string name;
  std::string unit;
};

Column ColumnIn(std::string_view cell) {
  cell = Trimmed(cell);
  if (cell.size() >= 2 && cell.front() == '"' && cell.back() == '"')
    cell = cell.substr(1, cell.size() - 2);
  Column column;
  const std::size_t open = cell.find_first_of("[(");
  const std::size_t close = cell.find_last_of("])");
  column.name = Trimmed(cell.substr(0, open));
  if (open != std::string_view::npos && close != std::string_view::npos && close > open)
    column.unit = Trimmed(cell.substr(open + 1, close - open - 1));
  // As keys of this project's JSON end.
  for (const std::string unit : {"s", "ms"}) {
    if (!column.unit.empty() || !column.name.ends_with("_" + unit)) continue;
    column.name.resize(column.name.size() - unit.size() - 1);
    column.unit = unit;
  }
  return column;
}

bool IsStepTime(const std::string& name) {
  static const std::set<std::string> kNames = {"step_time",      "time",      "elapsed",
                                               "iteration_time", "step time", "iteration time"};
  return kNames.contains(name);
}

double BytesPerUnit(const std::string& unit) {
  constexpr std::pair<const char*, double> kUnits[] = {
      {"B", 1}, {"MB", 1e6}, {"GB", 1e9}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}};
  for (const auto& [name, bytes] : kUnits) {
    if (unit == name) return bytes;
  }
  return 0;
}

class CsvReader {
 public:
  explicit CsvReader(const SourcePtr& source) {
    log_.source = source;
    log_.format = LogFormat::kCsv;
  }

  TrainingLog Read() {
    ForEachLine(*log_.source, [&](const LogLine& line) {
      const std::string_view text = Trimmed(line.text);
      if (text.empty() || text.front() == '#') return;
      columns_.empty() ? ReadHeader(line) : ReadRow(line);
    });
    FinishLog(kCsvHint, &log_);
    return std::move(log_);
  }

 private:
  void ReadHeader(const LogLine& line) {
    Diagnostics diagnostics;
    bool timed = false;
    for (const std::string_view cell : SplitAt(line.text, ',')) {
      columns_.push_back(ColumnIn(cell));
      const Column& column = columns_.back();
      const int place = line.column + static_cast<int>(cell.data() - line.text.data());
      const bool unit = SecondsPerUnit(column.unit).has_value();
      timed = timed || unit || column.name == "samples/s" || column.name == "tokens/s";
      if (IsStepTime(column.name) && !unit) {
        diagnostics.Error({log_.source, line.number, place},
                          fmt::format("column '{}' has no unit of time", column.name),
                          fmt::format("{} [ms], or s, us, ns, min", column.name));
      }
      if (column.name == "memory" && BytesPerUnit(column.unit) == 0)
        diagnostics.Error({log_.source, line.number, place}, "column 'memory' has no unit",
                          "memory [GiB], or GB, MiB, MB, B");
    }
    if (!timed && diagnostics.ok())
      diagnostics.Error({log_.source, line.number, 1}, "no column is a time or a rate", kCsvHint);
    diagnostics.ThrowIfAny();
  }

  void ReadRow(const LogLine& line) {
    const std::vector<std::string_view> cells = SplitAt(line.text, ',');
    if (cells.size() != columns_.size()) {
      return AddGarbled(
          line.number, line.column,
          fmt::format("{} cells where the header names {}", cells.size(), columns_.size()), &log_);
    }
    StepSample step;
    step.line = line.number;
    rank_ = -1;
    std::vector<TermSample> terms;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (cells[i].empty() || ReadCell(columns_[i], cells[i], &step, &terms)) continue;
      return AddGarbled(
          line.number, line.column + static_cast<int>(cells[i].data() - line.text.data()),
          fmt::format("'{}' is no {}", cells[i].substr(0, 40), columns_[i].name), &log_);
    }
    const bool measured = step.seconds || step.samples_per_s || step.tokens_per_s;
    if (!measured && terms.empty())
      return AddGarbled(line.number, line.column, "a row without a time", &log_);
    if (measured) Add(std::move(step));
    for (TermSample& term : terms) term.rank = rank_;
    std::move(terms.begin(), terms.end(), std::back_inserter(log_.terms));
  }

  void Add(StepSample step) {
    if (rank_ >= 0 && step.allocated.bytes)
      step.allocated.ranks.push_back({rank_, false, -1, *step.allocated.bytes, step.line});
    lines_.Add({-1, rank_}, std::nullopt, std::move(step));
  }

  bool ReadCell(const Column& column, std::string_view cell, StepSample* step,
                std::vector<TermSample>* terms) {
    const std::string& name = column.name;
    const auto unit = SecondsPerUnit(column.unit);
    const auto positive = [&](std::optional<double>* value, double scale) {
      *value = AmountIn(cell);
      if (!*value || **value <= 0) return false;
      **value *= scale;
      return true;
    };
    if (IsStepTime(name)) return (step->seconds = DurationIn(cell, *unit)).has_value();
    if (name == "step") {
      const auto number = WholeIn(cell);
      step->step = number.value_or(-1);
      return number.has_value();
    }
    if (name == "rank") {
      rank_ = WholeIn(cell).value_or(-1);
      return rank_ >= 0;
    }
    if (name == "loss") return (step->loss = AmountIn(cell)).has_value() || cell == "nan";
    if (name == "samples") return positive(&step->samples, 1);
    if (name == "samples/s") return positive(&step->samples_per_s, 1);
    if (name == "tokens/s") return positive(&step->tokens_per_s, 1);
    if (name == "mfu") return positive(&step->mfu, column.unit == "%" ? 0.01 : 1);
    if (name == "memory") {
      step->allocated.line = step->line;
      return positive(&step->allocated.bytes, BytesPerUnit(column.unit));
    }
    if (!unit) return true;  // not a time
    const auto value = AmountIn(cell);
    if (!value || *value < 0 || *value * *unit > kLongestSeconds) return false;
    terms->push_back({name, *value * *unit, -1, step->line});
    return true;
  }

  TrainingLog log_;
  std::vector<Column> columns_;
  int64_t rank_ = -1;  // of the row that is read; -1: not said
  RankLines lines_{&log_, true};
};

}  // namespace

TrainingLog ReadStepCsv(const SourcePtr& source) { return CsvReader(source).Read(); }

}  // namespace orrery::measured
