// SPDX-License-Identifier: Apache-2.0
// Reads the step lines of this project's programs. Those of `plan run`, as rank 0 prints them:
//
//   step   12/50  loss 9.87654     grad norm 3.332        4.75 s      108 tokens/s  MFU 69.8 %  mem 1022 MiB  ETA 23.8 s
//
// Its memory is that of the process, which no prediction is of. And those of train.py, which plan export --to fsdp and ddp write:
//
//   step 12 loss 8.1234 step_time 0.3227 s tokens/s 800000 peak 20.00 GiB
#include <fmt/format.h>

#include "calib/import/log_lines.h"
#include "calib/import/training_log.h"

namespace orrery::measured {
namespace {

// "108", "94.5 k", "1.2 M", in front of what is counted.
std::optional<double> Scaled(LineCursor* cursor) {
  auto number = cursor->Number();
  for (const auto& [letter, scale] :
       {std::pair{"k ", 1e3}, std::pair{"M ", 1e6}, std::pair{"G ", 1e9}}) {
    if (number && cursor->Literal(letter)) return *number * scale;
  }
  return number;
}

// "4.75 s"
std::optional<double> Duration(LineCursor* cursor) {
  const auto number = cursor->Number();
  if (!number) return std::nullopt;
  for (const char* unit : {"ns ", "us ", "ms ", "s ", "min ", "h "}) {
    if (!cursor->Literal(unit)) continue;
    const std::string_view name = Trimmed(unit);
    const auto scale = name == "h" ? std::optional(3600.0) : SecondsPerUnit(name);
    const double seconds = *number * scale.value_or(0);
    if (seconds >= kShortestSeconds && seconds < kLongestSeconds) return seconds;
  }
  return std::nullopt;
}

bool IsTrainLine(std::string_view line) {
  return FindCounted(line, "step ") != std::string_view::npos && Contains(line, " step_time ");
}

void ReadTrainLine(const LogLine& line, TrainingLog* log) {
  StepSample step;
  step.line = line.number;
  LineCursor cursor(line.text.substr(FindCounted(line.text, "step ")));
  if (cursor.Behind("step ")) step.step = cursor.Whole().value_or(-1);
  if (cursor.Behind("loss ")) step.loss = cursor.Number();
  if (cursor.Behind("step_time ")) step.seconds = Duration(&cursor);
  if (!step.seconds || step.step < 0)
    return AddGarbled(line.number, line.column, "a step line without its step and time", log);
  if (cursor.Behind("tokens/s ")) step.tokens_per_s = cursor.Number();
  if (step.tokens_per_s && *step.tokens_per_s <= 0) step.tokens_per_s.reset();
  if (cursor.Behind("peak ")) {
    const auto peak = cursor.Number();
    if (peak && *peak > 0 && cursor.Literal("GiB"))
      step.allocated.Say(*peak * static_cast<double>(1 << 30), line.number);
  }
  log->steps.push_back(step);
}

void ReadRunLine(const LogLine& line, TrainingLog* log) {
  if (IsTrainLine(line.text)) return ReadTrainLine(line, log);
  if (!Contains(line.text, "grad norm ") && !Contains(line.text, "  ETA ")) return;
  StepSample step;
  step.line = line.number;
  LineCursor cursor(line.text);
  cursor.Behind("step ");
  step.step = cursor.Whole().value_or(-1);
  if (cursor.Behind("loss")) step.loss = cursor.Number();
  if (cursor.Behind("grad norm")) {
    const bool norm =
        cursor.Number() || cursor.Literal("nan") || cursor.Literal("-nan") || cursor.Literal("inf");
    if (norm) step.seconds = Duration(&cursor);
  }
  if (!step.seconds || step.step < 0)
    return AddGarbled(line.number, line.column, "a step line without its step and time", log);
  const auto speed = Scaled(&cursor);
  if (speed && *speed > 0) {
    if (cursor.Literal("tokens/s"))
      step.tokens_per_s = speed;
    else if (cursor.Literal("samples/s"))
      step.samples_per_s = speed;
  }
  log->steps.push_back(step);
}

}  // namespace

bool IsRunLine(std::string_view line) {
  return (Contains(line, "step ") && Contains(line, "grad norm ") && Contains(line, "  ETA ")) ||
         (IsTrainLine(line) && Contains(line, " tokens/s "));
}

TrainingLog ReadRunText(const SourcePtr& source) {
  TrainingLog log;
  log.source = source;
  log.format = LogFormat::kRunText;
  ForEachLine(*source, [&](const LogLine& line) { ReadRunLine(line, &log); });
  FinishLog("plan run prints 'step 1/10  loss ...  grad norm ...  4.75 s  108 tokens/s ...'", &log);
  return log;
}

}  // namespace orrery::measured
