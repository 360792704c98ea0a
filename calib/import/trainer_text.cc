// SPDX-License-Identifier: Apache-2.0
// Reads what HuggingFace's Trainer prints: tqdm's bar of the training, and the rates of the whole run at its end.
//
//     2%|▏         | 10/500 [00:31<25:40,  3.14s/it]
//   {'train_runtime': 1565.2, 'train_samples_per_second': 20.44, 'train_steps_per_second': 0.319, ...}
//
// Bars count steps, at a rate that tqdm smooths. Bars behind words (loading of shards, tokenising) and bars with another total
// than the first (evaluation) are not the training's. The rates of the run hold its start, evaluations and
// checkpoints: they count where there is no bar.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>

#include "calib/import/log_lines.h"
#include "calib/import/rank_lines.h"
#include "calib/import/training_log.h"

namespace orrery::measured {
namespace {

constexpr double kCoarse = 0.05;  // steps per second, printed with three decimals

// "3.14s/it" or "1.20it/s" in seconds; absent: another unit, or "?it/s".
std::optional<double> SecondsOfRate(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() &&
         (std::isdigit(static_cast<unsigned char>(text[end])) != 0 || text[end] == '.'))
    ++end;
  const std::string_view unit = text.substr(end);
  const auto seconds = DurationIn(text.substr(0, end), 1);
  if (unit.starts_with("s/it")) return seconds;
  const auto rate_s = AmountIn(text.substr(0, end));
  if (!unit.starts_with("it/s") || !rate_s || *rate_s <= 0) return std::nullopt;
  const double each = 1 / *rate_s;
  return each >= kShortestSeconds && each <= kLongestSeconds ? std::optional(each) : std::nullopt;
}

struct Bar {
  int64_t step = 0, total = 0;
  std::optional<double> seconds;
};

// "  2%|..| 10/500 [00:31<25:40,  3.14s/it]" without words before it.
std::optional<Bar> BarIn(std::string_view line) {
  LineCursor cursor(line);
  if (!cursor.Whole() || !cursor.Literal("%|") || !cursor.Behind("| ")) return std::nullopt;
  const auto step = cursor.Whole();
  if (!step || *step < 0 || !cursor.Literal("/")) return std::nullopt;
  const auto total = cursor.Whole();
  if (!total || *total < 1 || *step > *total || !cursor.Behind("[") || !cursor.Behind(","))
    return std::nullopt;
  return Bar{*step, *total, SecondsOfRate(Trimmed(cursor.Rest()))};
}

// The number behind 'key': or "key":, which newer releases put in quotes, too.
std::optional<double> ValueOf(std::string_view line, std::string_view key) {
  LineCursor cursor(line);
  if (!cursor.Behind(key) || !(cursor.Literal("':") || cursor.Literal("\":"))) return std::nullopt;
  (void)(cursor.Literal("'") || cursor.Literal("\""));
  return cursor.Number();
}

class Reader {
 public:
  explicit Reader(TrainingLog* log) : log_(log) {}

  void Read(const LogLine& line) {
    if (const auto bar = BarIn(WithoutLabels(line.text))) TakeBar(*bar, line);
    if (!Contains(line.text, "train_steps_per_second")) return;
    StepSample run;
    run.line = line.number;
    const auto steps = ValueOf(line.text, "train_steps_per_second");
    run.samples_per_s = ValueOf(line.text, "train_samples_per_second");
    if (steps && *steps > kCoarse && 1 / *steps >= kShortestSeconds) run.seconds = 1 / *steps;
    if (run.samples_per_s && *run.samples_per_s <= 0) run.samples_per_s.reset();
    const auto took = ValueOf(line.text, "train_runtime");
    if (took && steps && *took * *steps > 1)
      run.steps = std::llround(std::min(*took * *steps, 1e12));
    if (run.seconds || run.samples_per_s)
      run_ = run;
    else
      AddGarbled(line.number, line.column, "train_steps_per_second without a rate", log_);
  }

  void Finish() {
    if (log_->steps.empty() && run_) log_->steps.push_back(*run_);
  }

 private:
  void TakeBar(const Bar& bar, const LogLine& line) {
    if (total_ == 0) total_ = bar.total;
    if (bar.total != total_ || !bar.seconds || bar.step <= last_) return;  // bars are drawn again
    last_ = bar.step;
    StepSample step;
    step.line = line.number;
    step.step = bar.step;
    step.seconds = bar.seconds;
    log_->steps.push_back(step);
  }

  TrainingLog* log_;
  std::optional<StepSample> run_;
  int64_t total_ = 0, last_ = 0;
};

}  // namespace

TrainingLog ReadTrainer(const SourcePtr& source) {
  TrainingLog log;
  log.source = source;
  log.format = LogFormat::kTrainer;
  Reader reader(&log);
  ForEachLine(*source, [&](const LogLine& line) { reader.Read(line); });
  reader.Finish();
  FinishLog(
      "HuggingFace's Trainer prints losses without times: keep its progress bar (stderr, without "
      "--disable_tqdm) or the line with 'train_steps_per_second' at its end",
      &log);
  return log;
}

}  // namespace orrery::measured
