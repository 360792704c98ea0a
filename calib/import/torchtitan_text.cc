// SPDX-License-Identifier: Apache-2.0
// Reads the step lines of torchtitan; tps and tflops are of one GPU. LOG_RANK=0,1 prints a line for each of these ranks.
//
//   ... - root - INFO - step: 10  loss:  7.1234  grad_norm:  1.20  memory: 45.23GiB(57.1%)
//     tps: 7,123  tflops: 380.12  mfu: 38.43%                                      (one line)
#include <fmt/format.h>

#include <optional>
#include <utility>

#include "calib/import/log_lines.h"
#include "calib/import/rank_lines.h"
#include "calib/import/training_log.h"

namespace orrery::measured {
namespace {

// "7,123" with its separators left out.
std::optional<double> AmountBehind(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == std::string_view::npos) return std::nullopt;
  std::string digits;
  bool started = false;
  for (const char c : text.substr(at + key.size())) {
    if (c == ' ' && !started) continue;
    if (c == ',') continue;
    if ((c < '0' || c > '9') && c != '.' && c != 'e' && c != '-' && c != '+') break;
    started = true;
    digits += c;
  }
  return AmountIn(digits);
}

// Colours of terminals: torchtitan prints them when it may.
std::string WithoutColours(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\x1b') {
      plain += text[i];
      continue;
    }
    while (i < text.size() && text[i] != 'm') ++i;
  }
  return plain;
}

class TorchtitanReader {
 public:
  explicit TorchtitanReader(TrainingLog* log) : log_(log), lines_(log, false) {}

  void Read(const LogLine& line) {
    const std::string text = WithoutColours(line.text);
    if (!Contains(text, "step:") || !Contains(text, "tps:")) return;
    StepSample step;
    step.line = line.number;
    const auto number = AmountBehind(text, "step:");
    const auto tps = AmountBehind(text, "tps:");
    if (!number || *number < 0 || !tps || *tps <= 0)
      return AddGarbled(line.number, line.column, "a step line without its step or tps", log_);
    step.step = AsCount(*number);
    step.tokens_per_s_of_gpu = tps;
    step.loss = AmountBehind(text, "loss:");
    // Its device_memory_monitor prints reserved_bytes.all.peak.
    if (const auto memory = AmountBehind(text, "memory:"); memory && Contains(text, "GiB"))
      step.reserved.Say(*memory * 1073741824.0, step.line);
    if (const auto mfu = AmountBehind(text, "mfu:"); mfu && *mfu > 0) step.mfu = *mfu / 100;
    if (const auto tflops = AmountBehind(text, "tflops:"); tflops && *tflops > 0)
      step.flops_per_gpu = *tflops * 1e12;
    const Printer printer = PrinterOf(text);
    if (printer.rank >= 0 && step.reserved.bytes)
      step.reserved.ranks.push_back(
          {printer.rank, true, printer.task, *step.reserved.bytes, step.line});
    lines_.Add(printer, TimeIn(text), std::move(step));
  }

 private:
  TrainingLog* log_;
  RankLines lines_;
};

}  // namespace

TrainingLog ReadTorchtitan(const SourcePtr& source) {
  TrainingLog log;
  log.source = source;
  log.format = LogFormat::kTorchtitan;
  TorchtitanReader reader(&log);
  ForEachLine(*source, [&](const LogLine& line) { reader.Read(line); });
  FinishLog("torchtitan prints 'step: 10  loss: ...  tps: ...'", &log);
  return log;
}

}  // namespace orrery::measured
