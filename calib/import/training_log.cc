// SPDX-License-Identifier: Apache-2.0
// What all readers of training logs share, names, and the choice of the reader.
#include "calib/import/training_log.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <filesystem>

#include "calib/import/log_lines.h"
#include "model/base/input_files.h"
#include "model/base/median.h"

namespace orrery::measured {
namespace {

constexpr std::size_t kMostNamed = 100;  // garbled lines that are kept; all are counted
constexpr std::size_t kMostLogBytes = std::size_t{1} << 30;

constexpr std::pair<const char*, Work> kWorkNames[kWorks] = {
    {"product", Work::kProduct},
    {"attention", Work::kAttention},
    {"element-wise", Work::kElementwise},
    {"optimizer", Work::kOptimizer},
    {"collective", Work::kCollective},
    {"send and receive", Work::kPointToPoint},
    {"copy", Work::kCopy},
    {"other", Work::kOther}};

constexpr std::pair<const char*, LogFormat> kFormatNames[] = {
    {"Megatron-LM", LogFormat::kMegatron},
    {"DeepSpeed", LogFormat::kDeepSpeed},
    {"llm.c", LogFormat::kLlmC},
    {"nanoGPT", LogFormat::kNanoGpt},
    {"CSV", LogFormat::kCsv},
    {"trace", LogFormat::kTrace},
    {"record", LogFormat::kRecord},
    {"torchtitan", LogFormat::kTorchtitan},
    {"HuggingFace Trainer", LogFormat::kTrainer},
    {"nanotron", LogFormat::kNanotron},
    {"plan run", LogFormat::kRunText},
    {"nccl-tests", LogFormat::kNccl}};

}  // namespace

std::span<const std::pair<const char*, Work>> WorkNames() { return kWorkNames; }
const char* Name(Work work) { return kWorkNames[static_cast<int>(work)].first; }
std::span<const std::pair<const char*, LogFormat>> LogFormatNames() { return kFormatNames; }
const char* Name(LogFormat format) { return kFormatNames[static_cast<int>(format)].first; }

SourcePtr ReadLogSource(const std::string& path) {
  std::error_code ignored;
  // A pipe is read once: what zlib looks at would be gone.
  if (!std::filesystem::is_regular_file(path, ignored)) return ReadSource(path, kMostLogBytes);
  const gzFile file = gzopen(path.c_str(), "rb");  // reads plain files as they are
  if (file == nullptr || gzdirect(file) != 0) {
    if (file != nullptr) gzclose(file);
    return ReadSource(path, kMostLogBytes);
  }
  NoteInput(path);
  Source source{path, ""};
  std::string chunk(std::size_t{1} << 20, '\0');
  int count = 0;
  while ((count = gzread(file, chunk.data(), static_cast<unsigned>(chunk.size()))) > 0 &&
         source.text.size() <= kMostLogBytes)
    source.text.append(chunk, 0, static_cast<std::size_t>(count));
  const bool whole = gzclose(file) == Z_OK && count == 0;
  if (source.text.size() > kMostLogBytes)
    throw InputError(fmt::format("{} holds more than 1 GiB", path));
  if (!whole) throw InputError(fmt::format("{} is cut off or damaged: gzip cannot read it", path));
  return std::make_shared<Source>(std::move(source));
}

namespace {

// Lines of these programs are means over the steps since the one before: as many everywhere, fewer behind a restart. Lines
// that are missing are no longer means.
void CountMeans(TrainingLog* log) {
  if (log->format != LogFormat::kMegatron && log->format != LogFormat::kDeepSpeed) return;
  std::vector<double> between;
  for (std::size_t i = 1; i < log->steps.size(); ++i) {
    const int64_t before = log->steps[i - 1].step, step = log->steps[i].step;
    log->steps[i].steps = before >= 0 && step > before ? step - before : 1;
    between.push_back(static_cast<double>(log->steps[i].steps));
  }
  if (between.empty()) return;
  const auto usual = static_cast<int64_t>(Median(std::move(between)));
  for (StepSample& step : log->steps)
    step.steps = std::clamp<int64_t>(step.steps, 1, std::max<int64_t>(usual, 1));
}

TrainingLog ReadAny(const SourcePtr& source) {
  switch (FormatOf(source)) {
    case LogFormat::kMegatron:
      return ReadMegatron(source);
    case LogFormat::kDeepSpeed:
      return ReadDeepSpeed(source);
    case LogFormat::kLlmC:
      return ReadLlmC(source);
    case LogFormat::kNanoGpt:
      return ReadNanoGpt(source);
    case LogFormat::kCsv:
      return ReadStepCsv(source);
    case LogFormat::kTrace:
      return ReadTrace(source);
    case LogFormat::kRecord:
      return ReadRecord(source);
    case LogFormat::kTorchtitan:
      return ReadTorchtitan(source);
    case LogFormat::kTrainer:
      return ReadTrainer(source);
    case LogFormat::kNanotron:
      return ReadNanotron(source);
    case LogFormat::kRunText:
      return ReadRunText(source);
    case LogFormat::kNccl:
      break;
  }
  RefuseLog(source, "these are times of collectives, by nccl-tests, not of training steps",
            "plan bench compares them");
}

}  // namespace

TrainingLog ReadTrainingLog(const SourcePtr& source) {
  TrainingLog log = ReadAny(source);
  CountMeans(&log);
  return log;
}

void PeakMemory::Join(const PeakMemory& other) {
  if (other.bytes && *other.bytes > bytes.value_or(0)) Say(*other.bytes, other.line);
  ranks.insert(ranks.end(), other.ranks.begin(), other.ranks.end());
}

std::optional<double> SecondsOf(const StepSample& step, const StepSize& size) {
  if (step.seconds) return step.seconds;
  if (step.tokens_per_s_of_gpu && size.tokens > 0 && size.gpus > 0)
    return size.tokens / (*step.tokens_per_s_of_gpu * size.gpus);
  if (step.tokens_per_s && *step.tokens_per_s > 0 && size.tokens > 0)
    return size.tokens / *step.tokens_per_s;
  const double samples = step.samples.value_or(size.samples);
  if (step.samples_per_s && *step.samples_per_s > 0 && samples > 0)
    return samples / *step.samples_per_s;
  return std::nullopt;
}

std::optional<double> MedianStep(const TrainingLog& log, const StepSize& size) {
  std::vector<double> seconds, calm;
  bool first = true;
  for (const StepSample& step : log.steps) {
    const auto one = step.running_mean ? step.seconds : SecondsOf(step, size);
    if (!one) continue;
    seconds.push_back(*one);
    if (!first && !step.disturbed) calm.push_back(*one);
    first = false;
  }
  if (seconds.empty()) return std::nullopt;
  if (seconds.size() > 1) seconds.erase(seconds.begin());
  if (!calm.empty()) seconds = std::move(calm);
  return Median(std::move(seconds));
}

void RefuseLog(const SourcePtr& source, const std::string& why, const std::string& hint) {
  std::vector<Diagnostic> one(1);
  one[0].where.source = source;
  one[0].message = why;
  one[0].hint = hint;
  throw InputError(std::move(one));
}

void AddGarbled(int line, int column, const std::string& why, TrainingLog* log) {
  ++log->garbled_lines;
  if (log->garbled.size() < kMostNamed)
    log->garbled.push_back({{log->source, line, column}, why, ""});
}

void FinishLog(const std::string& hint, TrainingLog* log) {
  if (!log->steps.empty() || !log->terms.empty() || !log->spans.empty()) return;
  const int64_t garbled = log->garbled_lines;
  Diagnostics diagnostics;
  diagnostics.Error({log->source, 0, 0},
                    garbled == 0 ? std::string("there is no measurement in this file")
                                 : fmt::format("no measurement could be read, {} line{} garbled",
                                               garbled, garbled == 1 ? " is" : "s are"),
                    hint);
  for (const Diagnostic& one : log->garbled) diagnostics.Error(one.where, one.message, one.hint);
  diagnostics.ThrowIfAny();
}

}  // namespace orrery::measured
