// SPDX-License-Identifier: Apache-2.0
// Reads the step lines of nanotron. Numbers have three digits and K, M, B or T behind them; batches count tokens.
//
//   12/21 01:39:51 [INFO|DP=0|TP=0|node7]: iteration: 20 / 500 | consumed_tokens: 21M |
//     time_per_iteration_ms: 2.96K | tokens_per_sec: 354K | tokens_per_sec_per_gpu: 44.3K |
//     global_batch_size: 1.05M | grad_norm: 1.2 | lm_loss: 7.31 | lr: 0.0001 |
//     model_tflops_per_gpu: 205                                         (one line)
//
// Up to 2024 the time is elapsed_time_per_iteration_ms.
#include <fmt/format.h>

#include "calib/import/log_lines.h"
#include "calib/import/training_log.h"

namespace orrery::measured {
namespace {

// "2.96K" -> 2960
std::optional<double> Human(std::string_view text) {
  double scale = 1;
  if (!text.empty()) {
    switch (text.back()) {
      case 'K':
        scale = 1e3;
        break;
      case 'M':
        scale = 1e6;
        break;
      case 'B':
        scale = 1e9;
        break;
      case 'T':
        scale = 1e12;
        break;
      default:
        break;
    }
  }
  if (scale > 1) text.remove_suffix(1);
  const auto number = AmountIn(text);
  return number ? std::optional(*number * scale) : std::nullopt;
}

bool LooksLikeNanotron(std::string_view text) {
  return Contains(text, "consumed_tokens:") || Contains(text, "time_per_iteration_ms:") ||
         Contains(text, "tokens_per_sec:");
}

void ReadPair(std::string_view key, std::string_view value, StepSample* step) {
  const auto number = Human(value);
  if (!number) return;
  if (key.ends_with("time_per_iteration_ms")) {
    const double seconds = *number * 1e-3;
    if (seconds >= kShortestSeconds && seconds < kLongestSeconds) step->seconds = seconds;
  } else if (key == "tokens_per_sec" && *number > 0) {
    step->tokens_per_s = number;
  } else if (key == "lm_loss") {
    step->loss = number;
  } else if (key == "model_tflops_per_gpu" && *number > 0) {
    step->flops_per_gpu = *number * 1e12;
  }
}

void ReadNanotronLine(const LogLine& line, TrainingLog* log) {
  if (!LooksLikeNanotron(line.text)) return;
  StepSample step;
  step.line = line.number;
  const std::size_t at = FindCounted(line.text, "iteration: ");
  if (at == std::string_view::npos)
    return AddGarbled(line.number, line.column, "a step line without its iteration", log);
  const std::string_view row = line.text.substr(at);
  for (const std::string_view part : SplitAt(row, '|')) {
    const std::size_t colon = part.find(':');
    if (colon == std::string_view::npos) continue;
    const std::string_view key = Trimmed(part.substr(0, colon));
    const std::string_view value = Trimmed(part.substr(colon + 1));
    if (key == "iteration")
      step.step = WholeIn(Trimmed(value.substr(0, value.find('/')))).value_or(-1);
    else
      ReadPair(key, value, &step);
  }
  if (!step.seconds)
    return AddGarbled(line.number, line.column, "a step line without time_per_iteration_ms", log);
  log->steps.push_back(step);
}

}  // namespace

TrainingLog ReadNanotron(const SourcePtr& source) {
  TrainingLog log;
  log.source = source;
  log.format = LogFormat::kNanotron;
  ForEachLine(*source, [&](const LogLine& line) { ReadNanotronLine(line, &log); });
  FinishLog("nanotron prints 'iteration: 20 / 500 | ... | time_per_iteration_ms: 2.96K | ...'",
            &log);
  return log;
}

}  // namespace orrery::measured
