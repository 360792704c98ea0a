// SPDX-License-Identifier: Apache-2.0
// Reads the step lines of llm.c and of nanoGPT.
//
//   step   12/18865 | loss 7.312345 (+nanz)| norm 2.1000 (+0.1z)| lr 5.14e-06 | 178.61 ms |
//     57.9% bf16 MFU | 2935 tok/s                                       (one line)
//   step    1/74: train loss 4.367631 (80.639749 ms, 50769 tok/s)       (its fp32 program)
//   step 3: train loss 4.123456 (took 2311.302000 ms)                   (its CPU program)
//   iter 100: loss 4.1234, time 245.30ms, mfu 33.20%                    (nanoGPT)
#include <fmt/format.h>

#include "calib/import/log_lines.h"
#include "calib/import/training_log.h"

namespace orrery::measured {
namespace {

// The figure that stands before `unit` in a piece of text such as " 178.61 ms ".
std::optional<double> Before(std::string_view text, std::string_view unit) {
  LineCursor cursor(text);
  const std::optional<double> value = cursor.Number();
  if (!value || !cursor.Literal(unit)) return std::nullopt;
  return value;
}

void ReadPart(std::string_view part, StepSample* step) {
  const auto ms = Before(part, "ms");
  if (ms && *ms >= kShortestSeconds * 1e3 && *ms < kLongestSeconds * 1e3)
    step->seconds = *ms * 1e-3;
  const auto rate = Before(part, "tok/s");
  if (rate && *rate > 0) step->tokens_per_s = rate;
  LineCursor cursor(part);
  const auto share = cursor.Number();
  if (share && cursor.Literal("%") && Contains(cursor.Rest(), "MFU") && *share > 0)
    step->mfu = *share / 100;
}

// Lines that are rows for certain but not whole: what one wrong character leaves of them.
bool LooksLikeLlmC(std::string_view text) {
  const bool titled = FindCounted(text, "step ") != std::string_view::npos;
  const bool timed = Contains(text, " ms") || Contains(text, "tok/s");
  return (titled && (timed || Contains(text, "| loss") || Contains(text, "(took"))) ||
         (Contains(text, "loss ") && timed);
}

TrainingLog NewLog(const SourcePtr& source, LogFormat format) {
  TrainingLog log;
  log.source = source;
  log.format = format;
  return log;
}

void ReadLlmCLine(const LogLine& line, TrainingLog* log) {
  if (!LooksLikeLlmC(line.text)) return;
  StepSample step;
  step.line = line.number;
  const std::size_t at = FindCounted(line.text, "step ");
  if (at == std::string_view::npos)
    return AddGarbled(line.number, line.column, "a step line without its number", log);
  LineCursor cursor(line.text.substr(at + 5));
  step.step = cursor.Whole().value_or(-1);
  if (cursor.Literal("/")) (void)cursor.Whole();
  if (cursor.Literal("|")) {
    for (const std::string_view part : SplitAt(cursor.Rest(), '|')) {
      LineCursor loss(part);
      if (loss.Literal("loss")) step.loss = loss.Number();
      ReadPart(part, &step);
    }
  } else if (cursor.Literal(":")) {
    LineCursor loss(cursor.Rest());
    if (loss.Literal("train") && loss.Literal("loss")) step.loss = loss.Number();
    if (cursor.Behind("(")) {
      (void)cursor.Literal("took");
      for (const std::string_view part : SplitAt(cursor.Rest(), ',')) ReadPart(part, &step);
    }
  }
  if (!step.seconds)
    return AddGarbled(line.number, line.column, "a step line without a time in ms", log);
  log->steps.push_back(step);
}

bool LooksLikeNanoGpt(std::string_view text) {
  const bool titled = FindCounted(text, "iter ") != std::string_view::npos;
  const bool timed = Contains(text, ", time ") || Contains(text, ", mfu ");
  return (titled && (timed || Contains(text, "loss"))) || (timed && Contains(text, "loss "));
}

void ReadNanoGptLine(const LogLine& line, TrainingLog* log) {
  if (!LooksLikeNanoGpt(line.text)) return;
  StepSample step;
  step.line = line.number;
  const std::size_t at = FindCounted(line.text, "iter ");
  if (at == std::string_view::npos)
    return AddGarbled(line.number, line.column, "an iteration without its number", log);
  LineCursor cursor(line.text.substr(at + 5));
  step.step = cursor.Whole().value_or(-1);
  if (cursor.Literal(":")) {
    for (const std::string_view part : SplitAt(cursor.Rest(), ',')) {
      LineCursor words(part);
      if (words.Literal("loss")) step.loss = words.Number();
      if (words.Literal("time")) ReadPart(words.Rest(), &step);
      if (words.Literal("mfu")) {
        const auto share = Before(words.Rest(), "%");
        if (share && *share > 0) step.mfu = *share / 100;  // -100 %: not known yet
      }
    }
  }
  if (!step.seconds)
    return AddGarbled(line.number, line.column, "an iteration without 'time ...ms'", log);
  log->steps.push_back(step);
}

}  // namespace

TrainingLog ReadLlmC(const SourcePtr& source) {
  TrainingLog log = NewLog(source, LogFormat::kLlmC);
  ForEachLine(*source, [&](const LogLine& line) { ReadLlmCLine(line, &log); });
  FinishLog("llm.c prints 'step 12/18865 | loss ... | 178.61 ms | ...'", &log);
  return log;
}

TrainingLog ReadNanoGpt(const SourcePtr& source) {
  TrainingLog log = NewLog(source, LogFormat::kNanoGpt);
  ForEachLine(*source, [&](const LogLine& line) { ReadNanoGptLine(line, &log); });
  FinishLog("nanoGPT prints 'iter 100: loss 4.1, time 245.30ms, mfu 33.20%'", &log);
  return log;
}

}  // namespace orrery::measured
