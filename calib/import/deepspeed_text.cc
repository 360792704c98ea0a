// SPDX-License-Identifier: Apache-2.0
// Reads what DeepSpeed prints of its timers, among progress bars and other output.
//
//   [timer.py:191:stop] 0/10, SamplesPerSec=6195.9, MemAllocated=10.43GB, MaxMemAllocated=10.43GB
//   [timer.py:215:stop] epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=17.5,
//     CurrSamplesPerSec=17.6, MemAllocated=..., MaxMemAllocated=...           (newer; one line)
//   [engine.py] steps: 10 loss: 7.3 iter time (s): 1.234 samples/sec: 51.8    (its pipelines)
//   rank=0 time (ms) | forward_microstep: 12.30 | backward_microstep: 24.10 (wall_clock_breakdown)
#include <fmt/format.h>

#include "calib/import/log_lines.h"
#include "calib/import/training_log.h"

namespace orrery::measured {
namespace {

constexpr std::string_view kTimers = "time (ms)";
constexpr double kGib = 1073741824.0;  // DeepSpeed's "GB" are bytes >> 30

class DeepSpeedReader {
 public:
  explicit DeepSpeedReader(const SourcePtr& source) {
    log_.source = source;
    log_.format = LogFormat::kDeepSpeed;
  }

  TrainingLog Read() {
    ForEachLine(*log_.source, [&](const LogLine& line) { ReadLine(line); });
    FinishLog(
        "DeepSpeed prints 'SamplesPerSec=' every steps_per_print steps, and its timers with "
        "wall_clock_breakdown: true",
        &log_);
    return std::move(log_);
  }

 private:
  // Several ranks may have written into one line: each record begins with its source, "[timer.py:".
  void ReadLine(const LogLine& line) {
    constexpr std::string_view kRecord = "[timer.py:";
    std::size_t begin = 0;
    while (begin < line.text.size()) {
      const std::size_t next =
          std::min(line.text.find(kRecord, begin + kRecord.size()), line.text.size());
      ReadPiece({line.text.substr(begin, next - begin), line.number,
                 line.column + static_cast<int>(begin)});
      begin = next;
    }
  }

  void ReadPiece(const LogLine& line) {
    if (Contains(line.text, "SamplesPerSec=") || Contains(line.text, "MemAllocated=")) {
      ReadThroughput(line);
    } else if (Contains(line.text, "iter time (s)") || Contains(line.text, "samples/sec:")) {
      ReadPipeline(line);
    } else if (Contains(line.text, kTimers) || Contains(line.text, "_microstep:")) {
      ReadTimers(line);
    }
  }

  void Garbled(const LogLine& line, const std::string& why) {
    AddGarbled(line.number, line.column, why, &log_);
  }

  static std::optional<double> Behind(std::string_view text, std::string_view key) {
    LineCursor cursor(text);
    if (!cursor.Behind(key)) return std::nullopt;
    const std::optional<double> value = cursor.Number();
    return value && *value >= 0 ? value : std::nullopt;
  }

  void ReadThroughput(const LogLine& line) {
    StepSample step;
    step.line = line.number;
    step.samples_per_s = Behind(line.text, "CurrSamplesPerSec=");
    step.running_mean = !step.samples_per_s;
    if (!step.samples_per_s) step.samples_per_s = Behind(line.text, "SamplesPerSec=");
    if (!step.samples_per_s || *step.samples_per_s <= 0)
      return Garbled(line, "a throughput line without a 'SamplesPerSec=' above zero");
    const auto peak = Behind(line.text, "MaxMemAllocated=");
    if (peak) step.allocated.Say(*peak * kGib, line.number);
    const auto global = Behind(line.text, "global_step=");
    step.step = global ? AsCount(*global) : OldStep(line.text);
    log_.steps.push_back(step);
  }

  // "0/10, SamplesPerSec=": epoch and step.
  static int64_t OldStep(std::string_view text) {
    const std::size_t comma = text.rfind(',', text.find("SamplesPerSec="));
    const std::size_t slash = text.rfind('/', comma);
    if (comma == std::string_view::npos || slash == std::string_view::npos) return -1;
    return WholeIn(text.substr(slash + 1, comma - slash - 1)).value_or(-1);
  }

  void ReadPipeline(const LogLine& line) {
    StepSample step;
    step.line = line.number;
    const auto count = Behind(line.text, "steps:");
    step.seconds = Behind(line.text, "iter time (s):");
    step.samples_per_s = Behind(line.text, "samples/sec:");
    step.loss = Behind(line.text, "loss:");
    if (!count || !step.seconds || *step.seconds < kShortestSeconds ||
        *step.seconds > kLongestSeconds)
      return Garbled(line, "a line of the pipeline engine without steps and 'iter time (s):'");
    step.step = AsCount(*count);
    log_.steps.push_back(step);
  }

  void ReadTimers(const LogLine& line) {
    const std::size_t title = line.text.find(kTimers);
    if (title == std::string_view::npos) return Garbled(line, "timers without 'time (ms)'");
    const auto rank = Behind(line.text.substr(0, title), "rank=");
    bool any = false;
    for (const std::string_view text : SplitAt(line.text.substr(title + kTimers.size()), '|')) {
      if (text.empty()) continue;
      const std::size_t colon = text.rfind(':');
      const std::optional<double> ms =
          colon == std::string_view::npos ? std::nullopt : AmountIn(text.substr(colon + 1));
      if (!ms || *ms < 0 || *ms > kLongestSeconds * 1e3)
        return Garbled(line, fmt::format("'{}' is no timer", text.substr(0, 60)));
      log_.terms.push_back({std::string(Trimmed(text.substr(0, colon))), *ms * 1e-3,
                            rank ? AsCount(*rank) : -1, line.number});
      any = true;
    }
    if (!any) Garbled(line, "a line of timers without one");
  }

  TrainingLog log_;
};

}  // namespace

TrainingLog ReadDeepSpeed(const SourcePtr& source) { return DeepSpeedReader(source).Read(); }

}  // namespace orrery::measured
