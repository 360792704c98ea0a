// SPDX-License-Identifier: Apache-2.0
// Reads both sides as `--from` does and compares what both say.
#include "calib/compare/same_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "model/arch/parameters.h"
#include "model/exchange/document.h"
#include "model/exchange/import.h"
#include "model/exchange/import_steps.h"

namespace orrery::compare {
namespace {

// Of these, another value is another plan: other ranks hold other parts, or a step does other work.
constexpr std::string_view kLayout[] = {"tp",          "pp",      "cp",   "dp",  "vpp",
                                        "micro_batch", "seq_len", "lora", "zero"};
// Written differently by every program, or held against the log elsewhere.
constexpr std::string_view kElsewhere[] = {"layout", "placement",    "nodes",      "gpus_per_node",
                                           "model",  "global_batch", "lora_alpha", "dp_outer"};
// Programs pad vocabularies and count tied weights in different ways: more than that is another model.
constexpr double kMostOtherParameters = 0.05;
// Tokens of a step follow from two figures of three digits each: more is another batch.
constexpr double kMostOtherTokens = 0.1;

template <std::size_t n>
bool Has(const std::string_view (&names)[n], const std::string& name) {
  return std::ranges::find(names, name) != std::end(names);
}

bool HoldsArguments(const std::string& text) {
  return exchange::HasArgumentDump(text) || exchange::HasLoggedJson(text);
}

}  // namespace

std::vector<std::string> Words(const ToldJob& told) {
  std::vector<std::string> words;
  for (const Difference& one : told.other)
    words.push_back(fmt::format("the log says {} {} (line {}), the plan {}", one.field, one.logged,
                                one.where.line, one.planned));
  if (!told.unread.empty())
    words.push_back(fmt::format("the log's own arguments are not compared: {}", told.unread));
  if (told.other_batch > 0)
    words.push_back(fmt::format("{} step{} not counted: the global batch is {:.0f} there",
                                told.other_batch, told.other_batch == 1 ? " is" : "s are",
                                told.batch));
  if (!told.runs.empty())
    words.push_back(fmt::format("another run begins at line {}: {} runs are taken as one",
                                fmt::join(told.runs, ", "), told.runs.size() + 1));
  return words;
}

PlannedJob::PlannedJob(const SourcePtr& prediction, std::string digest,
                       const measured::StepSize& size)
    : name_(prediction->name), digest_(std::move(digest)), size_(size) {
  const nlohmann::json root = nlohmann::json::parse(prediction->text, nullptr, false);
  if (!root.is_object() || !root.contains("schema")) return;  // a trace names no layout
  const auto model = root.find("model");
  if (model != root.end() && model->is_object() && model->contains("parameters") &&
      (*model)["parameters"].is_number())
    parameters_ = (*model)["parameters"].get<double>();
  try {
    values_ = exchange::Import({prediction}, std::nullopt).values;
  } catch (const InputError&) {
    // A record may hold a step time alone. Nothing is compared then.
  }
}

void PlannedJob::CheckDigests(const SourcePtr& log, const measured::LogFacts& facts) const {
  for (const auto& [digest, line] : facts.plans) {
    if (digest_.empty() || digest == digest_) continue;
    throw InputError(
        {{{log, line, 1},
          fmt::format("another plan: the log is of plan {}, {} of plan {}", digest, name_, digest_),
          "give the prediction of this job; for an exported script it is the plan.json beside "
          "it"}});
  }
}

void PlannedJob::CheckArguments(const SourcePtr& log, ToldJob* told) const {
  if (values_.empty() || !HoldsArguments(log->text)) return;
  exchange::Imported said;
  try {
    said = exchange::Import({log}, std::nullopt);
  } catch (const InputError& error) {
    told->unread = error.diagnostics().empty() ? error.what() : error.diagnostics()[0].message;
    return;
  }
  std::vector<Difference> layout;
  for (const auto& [field, value] : said.values) {
    const auto planned = values_.find(field);
    if (planned == values_.end() || value.where.line <= 0 || Has(kElsewhere, field)) continue;
    Difference difference{field, planned->second.text, value.text, value.where};
    const bool same = exchange::SameValue(value.text, planned->second.text);
    if (same && Has(kLayout, field)) told->same.push_back(field);
    if (same) continue;
    (Has(kLayout, field) ? layout : told->other).push_back(std::move(difference));
  }
  if (!layout.empty()) {
    // The number of replicas follows from the others: its line is the last to look at.
    std::stable_partition(layout.begin(), layout.end(),
                          [](const Difference& one) { return one.field != "dp"; });
    std::string logged, planned;
    for (const Difference& one : layout) {
      const char* comma = logged.empty() ? "" : ", ";
      logged += fmt::format("{}{} {}", comma, one.field, one.logged);
      planned += fmt::format("{}{} {}", comma, one.field, one.planned);
    }
    throw InputError(
        {{layout[0].where,
          fmt::format("another job: the log has {}, {} {}", logged, name_, planned),
          fmt::format("plan predict --from {} --json plan.json predicts this one", log->name)}});
  }
  if (!said.model || parameters_ <= 0) return;
  const double own = static_cast<double>(CountParameters(said.model->spec).total);
  if (std::abs(own / parameters_ - 1) <= kMostOtherParameters) return;
  throw InputError(
      {{{log, 1, 1},
        fmt::format("another model: the log's has {:.3g} parameters, that of {} {:.3g}", own, name_,
                    parameters_),
        fmt::format("plan predict --from {} --json plan.json predicts this one", log->name)}});
}

ToldJob PlannedJob::Check(const measured::TrainingLog& log, const measured::LogFacts& facts) const {
  const auto world = static_cast<double>(facts.world_size.value_or(0));
  if (world > 0 && size_.gpus > 0 && world != size_.gpus)
    throw InputError(
        {{{log.source, facts.world_line, 1},
          fmt::format("the log is of {:.0f} GPUs, the plan of {:.0f}", world, size_.gpus),
          "a prediction of this job: --nodes N, and --gpus-per-node N"}});
  CheckDigests(log.source, facts);
  ToldJob told;
  if (!facts.plans.empty()) told.digest = facts.plans.front().first;
  CheckArguments(log.source, &told);
  int64_t last = -1;
  auto start = facts.starts.begin();
  for (const measured::StepSample& step : log.steps) {
    const auto begun = start;
    while (start != facts.starts.end() && *start < step.line) ++start;
    const bool anew = start != begun || (step.step >= 0 && step.step < last);
    if (anew && last >= 0) told.runs.push_back(step.line);
    last = std::max<int64_t>(step.step, 0);
  }
  return told;
}

std::vector<measured::StepSample> PlannedJob::StepsOfBatch(const measured::TrainingLog& log,
                                                           const measured::LogFacts& facts,
                                                           ToldJob* told) const {
  std::vector<measured::StepSample> own;
  int line = 0;  // that says another batch
  for (const measured::StepSample& step : log.steps) {
    if (std::ranges::find(told->runs, step.line) != told->runs.end()) continue;
    auto samples = step.samples ? step.samples : facts.global_batch;
    // This project's programs print no batch, but the tokens of their steps by rate and time.
    if (log.format == measured::LogFormat::kRunText && !samples && step.seconds &&
        step.tokens_per_s && size_.tokens > 0) {
      const double batches = *step.seconds * *step.tokens_per_s / size_.tokens;
      if (std::abs(batches - 1) > kMostOtherTokens) samples = std::round(size_.samples * batches);
    }
    if (size_.samples <= 0 || !samples || *samples == size_.samples) {
      own.push_back(step);
      continue;
    }
    if (told->other_batch++ == 0)
      line = step.samples || facts.batch_line == 0 ? step.line : facts.batch_line;
    told->batch = *samples;
  }
  if (own.empty() && told->other_batch > 0)
    throw InputError(
        {{{log.source, line, 1},
          fmt::format("the log's global batch is {:.0f}, that of the plan {:.0f}", told->batch,
                      size_.samples),
          fmt::format("a prediction of this batch: --global-batch {:.0f}", told->batch)}});
  return own;
}

}  // namespace orrery::compare
