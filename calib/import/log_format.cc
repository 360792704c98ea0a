// SPDX-License-Identifier: Apache-2.0
// Tells logs apart by what stands in them.
#include <fmt/format.h>

#include <array>

#include "calib/import/log_lines.h"
#include "calib/import/training_log.h"
#include "model/hardware/cluster_file.h"

namespace orrery::measured {
namespace {

constexpr std::size_t kLookedAt = std::size_t{1} << 20;  // bytes of a JSON text

LogFormat FormatOfJson(const SourcePtr& source) {
  const std::string_view text = std::string_view(source->text).substr(0, kLookedAt);
  if (Contains(text, "\"orrery.")) return LogFormat::kRecord;
  if (Contains(text, "\"traceEvents\"") || Contains(text, "\"ph\"")) return LogFormat::kTrace;
  if (Contains(text, "\"out_of_place\"") || Contains(text, "\"in_place\"")) return LogFormat::kNccl;
  if (Contains(text, "\"log_history\""))
    RefuseLog(source, "the state of HuggingFace's Trainer, which holds no times of steps",
              "give the log that it printed, with its progress bar or 'train_steps_per_second'");
  RefuseMachineFile(source, "a log of training");
  RefuseLog(
      source, "JSON, but neither a Chrome trace nor a record of this program",
      "readable are traces with 'traceEvents' and what plan run, simulate, predict and export "
      "write with --json");
}

// A line of HuggingFace's Trainer: its dictionaries, or tqdm's bar of steps. Other programs draw bars, too.
bool IsTrainerLine(std::string_view line) {
  return Contains(line, "'train_runtime':") || Contains(line, "\"train_runtime\":") ||
         (Contains(line, "{'loss':") && Contains(line, "'learning_rate':")) ||
         (Contains(line, "%|") && (Contains(line, "s/it]") || Contains(line, "it/s]")));
}

// What one line speaks for; false: nothing.
bool FormatOfLine(std::string_view line, LogFormat* format) {
  const auto is = [&](LogFormat found) { return *format = found, true; };
  if (IsRunLine(line)) return is(LogFormat::kRunText);
  if (Contains(line, "elapsed time per iteration")) return is(LogFormat::kMegatron);
  if (Contains(line, "algbw") && Contains(line, "busbw")) return is(LogFormat::kNccl);
  if (Contains(line, "step:") && Contains(line, "tps:") && Contains(line, "memory:"))
    return is(LogFormat::kTorchtitan);
  if (Contains(line, "iteration:") && Contains(line, "time_per_iteration_ms:"))
    return is(LogFormat::kNanotron);
  if (Contains(line, "SamplesPerSec=") || Contains(line, "iter time (s)") ||
      (Contains(line, "time (ms)") && Contains(line, "microstep")))
    return is(LogFormat::kDeepSpeed);
  if (FindCounted(line, "iter ") != std::string_view::npos && Contains(line, "loss") &&
      Contains(line, "time "))
    return is(LogFormat::kNanoGpt);
  if (FindCounted(line, "step ") != std::string_view::npos && Contains(line, "loss") &&
      Contains(line, " ms"))
    return is(LogFormat::kLlmC);
  return false;
}

// The first line with something in it names columns, one with a unit.
bool StartsAsCsv(const Source& source) {
  bool decided = false, csv = false;
  ForEachLine(source, [&](const LogLine& line) {
    const std::string_view text = Trimmed(line.text);
    if (decided || text.empty() || text.front() == '#') return;
    decided = true;
    csv = Contains(text, ",") && !Contains(text, "|") && !Contains(text, ":") &&
          (Contains(text, "[") || Contains(text, "time") || Contains(text, "step"));
  });
  return csv;
}

}  // namespace

LogFormat FormatOf(const SourcePtr& source) {
  const std::size_t first = source->text.find_first_not_of(" \t\r\n");
  if (first == std::string::npos) RefuseLog(source, "the file is empty: no measurement in it", "");
  const std::string_view rest = std::string_view(source->text).substr(first);
  const bool dictionary = rest.starts_with("{'");  // of Python: no JSON
  if ((rest.front() == '{' && !dictionary) || rest.starts_with("[{") || rest.starts_with("[\n"))
    return FormatOfJson(source);
  std::array<int, static_cast<std::size_t>(LogFormat::kNccl) + 1> votes{};
  bool trainer = false;
  ForEachLine(*source, [&](const LogLine& line) {
    LogFormat format{};
    if (FormatOfLine(line.text, &format)) ++votes[static_cast<std::size_t>(format)];
    trainer = trainer || IsTrainerLine(line.text);
  });
  std::size_t most = 0;
  for (std::size_t i = 1; i < votes.size(); ++i) {
    if (votes[i] > votes[most]) most = i;
  }
  if (votes[most] > 0) return static_cast<LogFormat>(most);
  if (trainer) return LogFormat::kTrainer;
  if (StartsAsCsv(*source)) return LogFormat::kCsv;
  if (Contains(source->text, "---- arguments ----"))
    RefuseLog(source, "Megatron's arguments, and no line behind them is a measurement of a step",
              "a run that got to its first 'elapsed time per iteration'; --log-interval says how "
              "often that is printed");
  RefuseMachineFile(source, "a log of training");
  RefuseLog(source, "no line of this file is a measurement in a format that is known",
            "known are the logs of Megatron-LM, DeepSpeed, torchtitan, nanotron, HuggingFace's "
            "Trainer, llm.c, nanoGPT, plan run and nccl-tests, CSV with units in its header, "
            "Chrome traces and this program's own records");
}

}  // namespace orrery::measured
