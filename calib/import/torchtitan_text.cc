// SPDX-License-Identifier: Apache-2.0
// Reads the step lines of torchtitan; tps and tflops are of one GPU. LOG_RANK=0,1 prints a line for each of these ranks.
//
//   ... - root - INFO - step: 10  loss:  7.1234  grad_norm:  1.20  memory: 45.23GiB(57.1%)
//     tps: 7,123  tflops: 380.12  mfu: 38.43%                                      (one line)
#include <fmt/format.h>

#include <algorithm>
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

// The rank in front of a line, as torchrun tells those of a node apart ("[rank2]:"); -1: none is.
int64_t RankOf(std::string_view text) {
  constexpr std::string_view kLabel = "[rank";
  const std::size_t at = text.find(kLabel);
  if (at == std::string_view::npos) return -1;
  const std::string_view rest = text.substr(at + kLabel.size());
  return WholeIn(rest.substr(0, rest.find(']'))).value_or(-1);
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
    const int64_t rank = RankOf(text);
    if (rank >= 0 && step.peak_bytes) step.peaks.push_back({rank, *step.peak_bytes, step.line});
    Add(rank, std::move(step));
  }

 private:
  // Lines of several ranks on one step are one sample. Ranks of several nodes may have one number, and a job that restarts
  // counts from an earlier step again: then this rank's lines are of its next life.
  void Add(int64_t rank, StepSample step) {
    if (rank < 0) return log_->steps.push_back(std::move(step));
    const auto [last, first] = last_.try_emplace(rank, Last{step.step, newest_});
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
  int64_t newest_ = 0;                                          // life of any rank
  std::map<int64_t, Last> last_;                                // by rank
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
