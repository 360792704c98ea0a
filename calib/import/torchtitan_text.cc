// SPDX-License-Identifier: Apache-2.0
// Reads the step lines of torchtitan; tps and tflops are of one GPU. LOG_RANK=0,1 prints a line for each of these ranks.
//
//   ... - root - INFO - step: 10  loss:  7.1234  grad_norm:  1.20  memory: 45.23GiB(57.1%)
//     tps: 7,123  tflops: 380.12  mfu: 38.43%                                      (one line)
#include <fmt/format.h>

#include <algorithm>
#include <compare>
#include <map>
#include <utility>

#include "calib/import/log_lines.h"
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

// Who prints a line: "[rank2]:" is torchrun's label of a rank of its node, "1: [rank2]:" that of srun --label's task 1.
struct Printer {
  int64_t task = -1, rank = -1;  // -1: not said
  auto operator<=>(const Printer&) const = default;
};
Printer PrinterOf(std::string_view text) {
  constexpr std::string_view kLabel = "[rank";
  const std::size_t at = text.find(kLabel);
  if (at == std::string_view::npos) return {};
  const std::string_view rest = text.substr(at + kLabel.size());
  const std::size_t colon = text.substr(0, at).find(':');
  Printer printer;
  printer.rank = WholeIn(rest.substr(0, rest.find(']'))).value_or(-1);
  if (colon != std::string_view::npos) {
    const std::size_t digits = text.find_first_not_of(' ');  // srun aligns the numbers
    printer.task = WholeIn(text.substr(digits, colon - digits)).value_or(-1);
  }
  return printer;
}

class TorchtitanReader {
 public:
  explicit TorchtitanReader(TrainingLog* log) : log_(log) {}

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
    if (const auto memory = AmountBehind(text, "memory:"); memory && Contains(text, "GiB"))
      step.peak_bytes = *memory * 1073741824.0;
    step.reserved = true;  // its device_memory_monitor prints reserved_bytes.all.peak
    if (const auto mfu = AmountBehind(text, "mfu:"); mfu && *mfu > 0) step.mfu = *mfu / 100;
    if (const auto tflops = AmountBehind(text, "tflops:"); tflops && *tflops > 0)
      step.flops_per_gpu = *tflops * 1e12;
    const Printer printer = PrinterOf(text);
    if (printer.rank >= 0 && step.peak_bytes)
      step.peaks.push_back({printer.rank, true, printer.task, *step.peak_bytes, step.line});
    Add(printer, std::move(step));
  }

 private:
  // Lines of several ranks on one step are one sample. Ranks of several nodes may have one number, and a job that restarts
  // counts from an earlier step again: then this rank's lines are of its next life.
  void Add(const Printer& printer, StepSample step) {
    if (printer.rank < 0) return log_->steps.push_back(std::move(step));
    const auto [last, first] = last_.try_emplace(printer, Last{step.step, newest_});
    if (!first && step.step < last->second.step) newest_ = std::max(newest_, ++last->second.life);
    last->second.step = step.step;
    const auto [known, added] =
        samples_.try_emplace({last->second.life, step.step}, log_->steps.size());
    if (added)
      log_->steps.push_back(std::move(step));
    else
      Join(std::move(step), &log_->steps[known->second]);
  }

  static void Join(StepSample step, StepSample* all) {
    if (step.peak_bytes && (!all->peak_bytes || *step.peak_bytes > *all->peak_bytes)) {
      all->peak_bytes = step.peak_bytes;
      all->peak_line = step.line;
    } else if (all->peak_bytes && all->peak_line == 0) {
      all->peak_line = all->line;
    }
    all->peaks.insert(all->peaks.end(), step.peaks.begin(), step.peaks.end());
    if (*step.tokens_per_s_of_gpu >= *all->tokens_per_s_of_gpu) return;
    all->tokens_per_s_of_gpu = step.tokens_per_s_of_gpu;
    all->mfu = step.mfu;
    all->flops_per_gpu = step.flops_per_gpu;
    all->line = step.line;
  }

  struct Last {
    int64_t step = 0, life = 0;
  };
  TrainingLog* log_;
  int64_t newest_ = 0;  // life of any rank
  std::map<Printer, Last> last_;
  std::map<std::pair<int64_t, int64_t>, std::size_t> samples_;  // by life and step
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
