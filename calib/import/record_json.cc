// SPDX-License-Identifier: Apache-2.0
// Reads what `plan run`, `plan simulate`, `plan predict` and `plan export` write with --json.
#include "calib/import/record_json.h"

#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "calib/import/log_lines.h"
#include "calib/import/training_log.h"
#include "model/base/node.h"

namespace orrery::measured {
namespace {

using Json = nlohmann::json;

const Json& In(const Json& object, const char* key) {
  static const Json kNone;
  if (!object.is_object()) return kNone;
  const auto at = object.find(key);
  return at == object.end() ? kNone : *at;
}

std::optional<double> NumberIn(const Json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<double> DurationOf(const Json& value) {
  const auto seconds = NumberIn(value);
  return seconds && *seconds >= kShortestSeconds && *seconds < kLongestSeconds ? seconds
                                                                               : std::nullopt;
}

int LineOf(const std::vector<Node>& nodes, std::size_t i, int otherwise) {
  return i < nodes.size() ? nodes[i].where().line : otherwise;
}

void ReadRun(const Json& root, const Node& places, TrainingLog* log) {
  log->size = {NumberIn(In(root, "samples_per_step")).value_or(0),
               NumberIn(In(root, "tokens_per_step")).value_or(0),
               NumberIn(In(root, "ranks")).value_or(0)};
  const Json& steps = In(root, "steps");
  const std::vector<Node> nodes = steps.is_array() ? places.Items("steps") : std::vector<Node>();
  for (std::size_t i = 0; steps.is_array() && i < steps.size(); ++i) {
    StepSample step;
    step.line = LineOf(nodes, i, 1);
    step.seconds = DurationOf(In(steps[i], "seconds"));
    step.loss = NumberIn(In(steps[i], "loss"));
    step.disturbed = In(steps[i], "disturbed") == Json(true);
    step.step = AsCount(NumberIn(In(steps[i], "step")).value_or(-1));
    if (!step.seconds) {
      AddGarbled(step.line, 0, "a step without its seconds", log);
      continue;
    }
    const auto samples = NumberIn(In(root, "samples_per_step"));
    const auto tokens = NumberIn(In(root, "tokens_per_step"));
    if (samples) step.samples = samples, step.samples_per_s = *samples / *step.seconds;
    if (tokens) step.tokens_per_s = *tokens / *step.seconds;
    log->steps.push_back(step);
  }
  if (In(root, "breakdown").is_object())
    return TakeTerms(In(root, "breakdown"), -1, places.where("breakdown").line, log);
  const Json& ranks = In(root, "per_rank");
  const std::vector<Node> lines = ranks.is_array() ? places.Items("per_rank") : std::vector<Node>();
  for (std::size_t i = 0; ranks.is_array() && i < ranks.size(); ++i) {
    const auto rank = NumberIn(In(ranks[i], "rank"));
    TakeTerms(ranks[i], rank ? AsCount(*rank) : -1, LineOf(lines, i, 1), log);
  }
}

void ReadPrediction(const Json& root, const Node& places, TrainingLog* log) {
  const Json& body = In(root, "prediction");
  StepSample step;
  step.line = places.where("prediction").line;
  step.seconds = DurationOf(In(body, "step_time_s"));
  step.samples = NumberIn(In(body, "global_batch"));
  step.tokens_per_s = NumberIn(In(body, "tokens_per_s"));
  step.samples_per_s = NumberIn(In(body, "samples_per_s"));
  step.mfu = NumberIn(In(body, "mfu"));
  const PredictedPeaks peaks = PeaksOf(root, body);
  step.peak_share = peaks.share;
  step.allocated.bytes = peaks.allocated;
  step.reserved.bytes = peaks.reserved;
  log->size.samples = step.samples.value_or(0);
  if (step.tokens_per_s && step.seconds) log->size.tokens = *step.tokens_per_s * *step.seconds;
  log->size.gpus = NumberIn(In(body, "gpus")).value_or(0);
  const Json& interval = In(body, "step_time_interval_s");
  if (interval.is_array() && interval.size() == 2) {
    const auto low = DurationOf(interval[0]), high = DurationOf(interval[1]);
    if (low && high) log->interval = {*low, *high};
  }
  if (step.seconds)
    log->steps.push_back(step);
  else
    AddGarbled(step.line, 0, "no step_time_s", log);
  TakeTerms(In(body, "breakdown"), -1, step.line, log);
}

}  // namespace

void TakeTerms(const Json& object, int64_t rank, int line, TrainingLog* log) {
  if (!object.is_object()) return;
  for (const auto& [key, value] : object.items()) {
    const auto seconds = NumberIn(value);
    if (!key.ends_with("_s") || key.starts_with("hidden") || !seconds) continue;
    if (*seconds < 0 || *seconds > kLongestSeconds)
      AddGarbled(line, 0, fmt::format("{} is no duration", key.substr(0, 60)), log);
    else
      log->terms.push_back({key.substr(0, key.size() - 2), *seconds, rank, line});
  }
}

PredictedPeaks PeaksOf(const Json& root, const Json& body) {
  PredictedPeaks peaks;
  if (!In(In(root, "workload"), "fp8").is_string())
    peaks.share = NumberIn(In(body, "mfu_without_masked"));
  const Json& memory = In(body, "memory");
  const auto total = NumberIn(In(memory, "total_bytes"));
  if (total) peaks.reserved = *total - NumberIn(In(memory, "context_bytes")).value_or(0);
  if (const auto tensors = NumberIn(In(memory, "allocated_bytes")))
    peaks.allocated = *tensors + NumberIn(In(memory, "workspaces_bytes")).value_or(0);
  return peaks;
}

TrainingLog ReadRecord(const SourcePtr& source) {
  TrainingLog log;
  log.source = source;
  log.format = LogFormat::kRecord;
  log.own = true;
  Diagnostics diagnostics;
  const Node places = Node::Parse(source, &diagnostics);  // knows lines, and says what is broken
  const Json root = Json::parse(source->text, nullptr, false);
  if (root.is_discarded() && diagnostics.ok())
    diagnostics.Error({source, 1, 1}, "this is no JSON",
                      "plan run, simulate, predict and export write it");
  diagnostics.ThrowIfAny();
  const Json& digest = In(root, "digest");
  if (digest.is_string()) log.digest = digest.get<std::string>();
  for (const auto& [key, text] :
       {std::pair{"precision", &log.precision}, std::pair{"optimizer", &log.optimizer}}) {
    const Json& value = In(In(root, "workload"), key);
    if (value.is_string()) *text = value.get<std::string>();
  }
  const Json& schema = In(root, "schema");
  const std::string name = schema.is_string() ? schema.get<std::string>() : "";
  if (name == "orrery.run/1") {
    log.measured = true;
    ReadRun(root, places, &log);
  } else if (name == "orrery.simulate/1" || name == "orrery.predict/1" ||
             name == "orrery.export/1") {
    ReadPrediction(root, places, &log);
  } else {
    diagnostics.Error(places.where("schema"),
                      fmt::format("a record of schema '{}'", name.substr(0, 60)),
                      "readable are orrery.run/1, orrery.simulate/1, orrery.predict/1 and "
                      "orrery.export/1");
    diagnostics.ThrowIfAny();
  }
  FinishLog("give what plan run, simulate, predict or export writes with --json", &log);
  return log;
}

}  // namespace orrery::measured
