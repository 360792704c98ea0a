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

#include "calib/compare/said_fields.h"
#include "model/arch/catalogue.h"
#include "model/arch/parameters.h"
#include "model/exchange/document.h"
#include "model/exchange/import.h"
#include "model/exchange/import_steps.h"
#include "model/exchange/mapping.h"

namespace orrery::compare {
namespace {

// Of these, another value is another plan: other ranks hold other parts, or a step does other work.
constexpr std::string_view kLayout[] = {"tp",          "pp",      "cp",   "dp",  "vpp",
                                        "micro_batch", "seq_len", "lora", "zero"};
// Written differently by every program, or held against the log elsewhere.
constexpr std::string_view kElsewhere[] = {"placement", "nodes",        "gpus_per_node",
                                           "model",     "global_batch", "lora_alpha"};
// Programs pad vocabularies and count tied weights in different ways: more than that is another model.
constexpr double kMostOtherParameters = 0.05;
// Tokens of a step follow from two figures of three digits each: more is another batch.
constexpr double kMostOtherTokens = 0.1;

template <std::size_t n>
bool Has(const std::string_view (&names)[n], const std::string& name) {
  return std::ranges::find(names, name) != std::end(names);
}

// "micro-batch": a field by the name of its flag, else by its own.
std::string WordOf(const std::string& field) {
  const auto fields = exchange::Fields();
  const auto at = std::ranges::find(fields, field, &exchange::Field::name);
  const std::string_view flag = at == fields.end() ? "" : at->flag;
  if (flag.starts_with("--")) return std::string(flag.substr(2));
  std::string word = field;
  std::ranges::replace(word, '_', ' ');
  return word;
}

bool HoldsArguments(const std::string& text) {
  return exchange::HasArgumentDump(text) || exchange::HasLoggedSettings(text);
}

std::string RunsText(const std::vector<int>& lines) {
  constexpr std::size_t kMost = 8;
  const std::size_t shown = std::min(lines.size(), kMost);
  return fmt::format(
      "another run begins at line{} {}{}: {} runs are taken as one", lines.size() > 1 ? "s" : "",
      fmt::join(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(shown), ", "),
      shown < lines.size() ? fmt::format(" and {} more", lines.size() - shown) : "",
      lines.size() + 1);
}

// This project's programs and nanotron print no batch of sequences, but the tokens of their steps by rate and time.
bool SaysTokens(const measured::TrainingLog& log, const measured::StepSample& step) {
  const bool prints =
      log.format == measured::LogFormat::kRunText || log.format == measured::LogFormat::kNanotron;
  return prints && step.seconds && step.tokens_per_s;
}

// "64", "32 to 64".
std::string BatchText(const std::map<double, std::size_t>& batches) {
  if (batches.empty()) return "";
  const double least = batches.begin()->first, most = batches.rbegin()->first;
  return least == most ? fmt::format("{:.0f}", most) : fmt::format("{:.0f} to {:.0f}", least, most);
}

// ": 10 of 32, 10 of 64", where there are several.
std::string StepsOfBatches(const std::map<double, std::size_t>& batches) {
  constexpr std::size_t kMost = 6;
  std::string text;
  if (batches.size() < 2 || batches.size() > kMost) return text;
  for (const auto& [batch, steps] : batches)
    text += fmt::format("{} {} of {:.0f}", text.empty() ? ":" : ",", steps, batch);
  return text;
}

// Of keys that a query sees, by layer.
std::string WindowText(const ModelSpec& model) {
  std::vector<int64_t> windows = model.windows;
  if (std::ranges::all_of(windows, [](int64_t one) { return one == 0; })) return "none";
  if (std::ranges::all_of(windows, [&](int64_t one) { return one == windows[0]; }))
    windows.resize(1);
  return fmt::format("{}", fmt::join(windows, ","));
}

// Why arguments tell nothing. Two lines of the log may say two things: such an error names the place of the other.
std::string UnreadText(const InputError& error, const SourcePtr& log) {
  const char* const silent = "the log's own arguments are not compared";
  if (error.diagnostics().empty()) return fmt::format("{}: {}", silent, error.what());
  const Diagnostic& first = error.diagnostics()[0];
  if (first.where.line <= 0) return fmt::format("{}: {}", silent, first.message);
  const bool both = first.message.find(fmt::format(" in {}:", log->name)) != std::string::npos;
  return fmt::format("{} (line {}): {}", both ? "the log contradicts itself" : silent,
                     first.where.line, first.message);
}

std::string PredictIt(const SourcePtr& log) {
  return fmt::format("plan predict --from {} --json plan.json predicts this one", log->name);
}

std::string WordsOf(const Difference& one) {
  return fmt::format("the log says {} {} (line {}), the plan {}", WordOf(one.field), one.logged,
                     one.where.line, one.planned);
}

}  // namespace

std::string WordsOf(const std::vector<std::string>& fields) {
  std::vector<std::string> words;
  for (const std::string& field : fields) words.push_back(WordOf(field));
  return fmt::format("{}", fmt::join(words, ", "));
}

std::vector<std::string> Words(const ToldJob& told) {
  std::vector<std::string> words;
  for (const Difference& one : told.other) words.push_back(WordsOf(one));
  if (!told.unread.empty()) words.push_back(told.unread);
  if (told.other_batch > 0)
    words.push_back(fmt::format("{} step{} not counted: the global batch is {} there{}",
                                told.other_batch, told.other_batch == 1 ? " is" : "s are",
                                BatchText(told.batches), StepsOfBatches(told.batches)));
  if (told.loss) words.push_back(measured::WordsOf(*told.loss));
  if (!told.runs.empty()) words.push_back(RunsText(told.runs));
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
    const exchange::Imported read = exchange::Import({prediction}, std::nullopt);
    values_ = PlannedFields(root, read.values);
    if (IsModel(read.model_name)) model_ = LoadModel(read.model_name).spec;
  } catch (const InputError&) {
    // A record may hold a step time alone. Nothing is compared then.
  }
}

// What of a run is not as planned, and what is.
struct PlannedJob::Found {
  std::vector<Difference> layout, other;
  std::vector<std::string> words;   // of what is no field: GPUs, the model, the batch
  std::vector<std::string> same;    // names of what was compared and is alike
  std::vector<Diagnostic> errors;   // each refuses the log
  std::optional<Diagnostic> model;  // likewise
};

void PlannedJob::FindGpus(const measured::LogFacts& facts, Found* found) const {
  const auto world = static_cast<double>(facts.world_size.value_or(0));
  if (world <= 0 || size_.gpus <= 0) return;
  if (world == size_.gpus) return found->same.emplace_back("GPUs"), void();
  found->words.push_back(fmt::format("the log is of {:.0f} GPUs (line {}), the plan of {:.0f}",
                                     world, facts.world_line, size_.gpus));
  found->errors.push_back(
      {{nullptr, facts.world_line, 1},
       fmt::format("the log is of {:.0f} GPUs, the plan of {:.0f}", world, size_.gpus),
       "a prediction of this job: --nodes N, and --gpus-per-node N"});
}

void PlannedJob::FindArguments(const measured::LoggedRun& run, Found* found, ToldJob* told) const {
  const SourcePtr& text = run.text;
  if (values_.empty() || !HoldsArguments(text->text)) return;
  exchange::Imported read;
  try {
    read = exchange::Import({text}, std::nullopt);
  } catch (const InputError& error) {
    if (told->unread.empty()) told->unread = UnreadText(error, text);
    return;
  }
  const exchange::Values said = SaidFields(text, run.facts, read.values);
  const auto is = [](const exchange::Values& values, const char* field, const char* value) {
    const auto at = values.find(field);
    return at != values.end() && at->second.text == value;
  };
  for (const auto& [field, value] : said) {
    const auto planned = values_.find(field);
    if (planned == values_.end() || Has(kElsewhere, field)) continue;
    // Where nothing is shared out every replica is a copy.
    if (field == "dp_outer" && (is(said, "zero", "0") || is(values_, "zero", "0"))) continue;
    if (SameField(field, value.text, planned->second.text)) {
      if (Has(kLayout, field)) found->same.push_back(field);
      continue;
    }
    (Has(kLayout, field) ? found->layout : found->other)
        .push_back({field, planned->second.text, value.text, value.where});
  }
  // Releases without context parallelism do not print that they have none.
  const auto tp = said.find("tp"), cp = values_.find("cp");
  if (tp != said.end() && !said.contains("cp") && cp != values_.end() && cp->second.text != "1")
    found->layout.push_back({"cp", cp->second.text, "1", tp->second.where});
  if (read.model) FindModel(run, read.model->spec, found);
}

void PlannedJob::FindModel(const measured::LoggedRun& run, const ModelSpec& model,
                           Found* found) const {
  const auto window = run.facts.lines.find("window_size");
  if (model_ && window != run.facts.lines.end() && WindowText(model) != WindowText(*model_))
    found->other.push_back(
        {"window", WindowText(*model_), WindowText(model), {run.text, window->second, 1}});
  if (parameters_ <= 0) return;
  const double count = static_cast<double>(CountParameters(model).total);
  if (std::abs(count / parameters_ - 1) <= kMostOtherParameters)
    return found->same.emplace_back("model"), void();
  found->words.push_back(
      fmt::format("another model: the log's has {:.3g} parameters, that of {} {:.3g}", count, name_,
                  parameters_));
  found->model = Diagnostic{{nullptr, 1, 1}, found->words.back(), PredictIt(run.text)};
}

// Of lines that stand without the arguments, too.
void PlannedJob::FindLayout(const measured::LoggedRun& run, Found* found) const {
  for (const auto& [field, said] : run.facts.layout) {
    const auto planned = values_.find(field);
    const bool known =
        std::ranges::find(found->same, field) != found->same.end() ||
        std::ranges::find(found->layout, field, &Difference::field) != found->layout.end();
    if (planned == values_.end() || known) continue;
    const std::string logged = std::to_string(said.first);
    if (exchange::SameValue(logged, planned->second.text))
      found->same.push_back(field);
    else
      found->layout.push_back({field, planned->second.text, logged, {run.text, said.second, 1}});
  }
  if (found->layout.empty()) return;
  // The number of replicas follows from the others: its line is the last to look at.
  std::stable_partition(found->layout.begin(), found->layout.end(),
                        [](const Difference& one) { return one.field != "dp"; });
  std::string logged, planned, flags;
  for (const Difference& one : found->layout) {
    const char* comma = logged.empty() ? "" : ", ";
    logged += fmt::format("{}{} {}", comma, WordOf(one.field), one.logged);
    planned += fmt::format("{}{} {}", comma, WordOf(one.field), one.planned);
    if (one.field != "dp") flags += fmt::format(" --{} {}", WordOf(one.field), one.logged);
  }
  found->errors.push_back(
      {found->layout[0].where,
       fmt::format("another job: the log has {}, {} {}", logged, name_, planned),
       HoldsArguments(run.text->text) ? PredictIt(run.text)
                                      : "a prediction of this layout:" + flags});
}

std::optional<double> PlannedJob::OtherBatch(const measured::TrainingLog& log,
                                             const measured::StepSample& step,
                                             const measured::LogFacts& facts) const {
  auto samples = step.samples ? step.samples : facts.global_batch;
  const double error = step.samples ? 0 : facts.batch_error;
  if (!samples && SaysTokens(log, step) && size_.tokens > 0) {
    const double batches = *step.seconds * *step.tokens_per_s / size_.tokens;
    if (std::abs(batches - 1) > kMostOtherTokens) samples = std::round(size_.samples * batches);
  }
  const bool other = size_.samples > 0 && samples && std::abs(*samples - size_.samples) > error;
  return other ? samples : std::nullopt;
}

void PlannedJob::FindBatch(const measured::TrainingLog& log, const measured::LoggedRun& run,
                           Found* found) const {
  for (std::size_t i = run.first; i < run.end; ++i) {
    const measured::StepSample& step = log.steps[i];
    const bool own_line = step.samples || run.facts.batch_line == 0;
    if (const auto other = OtherBatch(log, step, run.facts))
      return found->words.push_back(
                 fmt::format("the log's global batch is {:.0f} (line {}), that of the plan {:.0f}",
                             *other, own_line ? step.line : run.facts.batch_line, size_.samples)),
             void();
  }
  const bool said = run.first < run.end && size_.samples > 0 &&
                    (log.steps[run.first].samples || run.facts.global_batch ||
                     (SaysTokens(log, log.steps[run.first]) && size_.tokens > 0));
  if (said) found->same.emplace_back("global batch");
}

void PlannedJob::CheckDigests(const SourcePtr& text, const measured::LogFacts& facts,
                              const Found& found, const std::string& others) const {
  for (const auto& [digest, line] : facts.plans) {
    if (digest_.empty() || digest == digest_) continue;
    std::vector<std::string> words = found.words;
    for (const auto* list : {&found.layout, &found.other})
      for (const Difference& one : *list) words.push_back(WordsOf(one));
    const std::string more =
        !words.empty() ? fmt::format("{}", fmt::join(words, "; "))
        : found.same.empty()
            ? "the log shows nothing else of its job"
            : fmt::format("nothing else that the log shows differs ({})", WordsOf(found.same));
    throw InputError(
        {{{text, line, 1},
          fmt::format("another plan: the log is of plan {}, {} of plan {}; {}", digest, name_,
                      digest_, more),
          others.empty() ? "give the prediction of this job; for an exported script the plan.json "
                           "in its folder"
                         : others}});
  }
}

void PlannedJob::CheckRun(const measured::TrainingLog& log, const measured::LoggedRun& run,
                          const std::string& others, ToldJob* told) const {
  Found found;
  FindGpus(run.facts, &found);
  FindArguments(run, &found, told);
  FindLayout(run, &found);
  if (found.model) found.errors.push_back(*found.model);
  FindBatch(log, run, &found);
  CheckDigests(run.text, run.facts, found, others);
  if (!found.errors.empty()) {
    Diagnostic& first = found.errors[0];
    first.where.source = run.text;
    if (!others.empty()) first.hint = others;
    throw InputError({first});
  }
  if (told->digest.empty() && !run.facts.plans.empty())
    told->digest = run.facts.plans.front().first;
  for (const std::string& field : found.same)
    if (Has(kLayout, field) && std::ranges::find(told->same, field) == told->same.end())
      told->same.push_back(field);
  for (Difference& one : found.other) {
    const bool known = std::ranges::any_of(told->other, [&](const Difference& other) {
      return other.field == one.field && other.logged == one.logged;
    });
    if (!known) told->other.push_back(std::move(one));
  }
}

ToldJob PlannedJob::Check(const measured::TrainingLog& log,
                          std::vector<measured::StepSample>* steps) const {
  const bool text = log.source && log.format != measured::LogFormat::kTrace &&
                    log.format != measured::LogFormat::kRecord;
  const std::vector<measured::LoggedRun> runs =
      text ? measured::RunsOf(log)
           : std::vector<measured::LoggedRun>{{0, log.steps.size(), log.source, {}}};
  ToldJob told;
  told.loss = measured::LossFaultOf(log);
  int line = 0;  // that says another batch
  for (std::size_t r = 0; r < runs.size(); ++r) {
    const measured::LoggedRun& run = runs[r];
    const std::string others =
        runs.size() == 1
            ? ""
            : fmt::format(
                  "run {} of the {} in this log: give the lines of those that are of one "
                  "plan, and its prediction",
                  r + 1, runs.size());
    if (!log.own && run.text) CheckRun(log, run, others, &told);
    if (r > 0) told.runs.push_back(log.steps[run.first].FirstLine());
    for (std::size_t i = run.first + (r > 0 ? 1 : 0); i < run.end; ++i) {
      const measured::StepSample& step = log.steps[i];
      const auto other = OtherBatch(log, step, run.facts);
      if (!other) {
        steps->push_back(step);
        continue;
      }
      if (told.other_batch++ == 0)
        line = step.samples || run.facts.batch_line == 0 ? step.line : run.facts.batch_line;
      ++told.batches[*other];
    }
  }
  if (steps->empty() && told.other_batch > 0)
    throw InputError({{{log.source, line, 1},
                       fmt::format("the log's global batch is {}, that of the plan {:.0f}",
                                   BatchText(told.batches), size_.samples),
                       fmt::format("a prediction of this batch: --global-batch {:.0f}",
                                   told.batches.rbegin()->first)}});
  return told;
}

}  // namespace orrery::compare
