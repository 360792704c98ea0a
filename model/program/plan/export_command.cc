// SPDX-License-Identifier: Apache-2.0
// `plan export`: the best layout as files for a framework and a launcher.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "model/base/plain_text.h"
#include "model/exchange/mapping.h"
#include "model/program/common/answer.h"
#include "model/program/common/candidate_report.h"
#include "model/program/common/export_case.h"
#include "model/program/common/memory_report.h"
#include "model/program/plan/commands.h"
#include "model/program/plan/export_flags.h"
#include "model/program/plan/search_report.h"
#include "model/program/plan/search_run.h"
#include "model/twin/predict.h"

namespace orrery::cli {
namespace {

struct ExportCommandFlags {
  JobFlags job;
  LayoutFlags layout;
  ExportFlags exporting;
  Flag json;
  FlagSet set{
      "export --to TARGET --model NAME [flags]",
      "Writes the best layout of a job as files that a training framework and a cluster's "
      "scheduler "
      "read. Fix every axis to export one given layout. Each file names the release it is written "
      "for, the predicted step time and the plan's digest; what the target cannot be told is named "
      "in a comment and in plan.json.",
      {"plan export --to megatron --launcher slurm --model llama3-8b --nodes 4 --out job",
       "plan export --to torchtitan --model llama3-8b --nodes 1 --zero 3 --micro-batch 1",
       "plan export --to deepspeed --launcher aws-batch --model gpt2-xl --topology aws-p4d "
       "--nodes 2 --strict --out job"}};

  ExportCommandFlags() {
    set.Group("The files");
    exporting.Declare(&set, "--to");
    DeclareJson(&json, &set, "export");
    job.Declare(&set, false);
    layout.Declare(&set, "Axes to fix (all others are searched)");
    DeclareFrom(&job, &set);
  }
};

// "recompute full:6 (else none)", of axes with a flag.
void AddChoice(const exchange::Field& field, const exchange::Case& theirs,
               const exchange::Case& ours, std::string* chosen) {
  const std::string mine = field.text(ours), other = field.text(theirs);
  if (mine == other || mine.empty() || field.flag[0] != '-') return;
  *chosen += fmt::format("{}{} {}{}", chosen->empty() ? "" : ", ", field.name, mine,
                         other.empty() ? "" : " (else " + other + ")");
}

// A file without a layout by chunk has equal stages: the search is not to choose others.
void KeepEvenStages(ExportCommandFlags* flags) {
  Flag& layout = flags->layout.layout;
  const Flag &pp = flags->layout.pp, &vpp = flags->layout.vpp;
  if (flags->job.from.empty() || layout.given || !pp.given) return;
  int64_t layers = flags->job.own_model ? flags->job.own_model->spec.layers : 0;
  if (flags->job.model.given) layers = LoadModel(flags->job.model.text).spec.layers;
  int64_t stages = 1, chunks = 1;
  ParseInteger(pp.text, &stages);
  if (vpp.given) ParseInteger(vpp.text, &chunks);
  if (stages <= 1 || chunks < 1 || layers < 1 || stages > layers || chunks > layers ||
      layers % (stages * chunks) != 0 || !FindFramework(flags->job.framework.text).uneven_chunks)
    return;
  layout.given = true;
  layout.text = fmt::format("{}x{}", stages * chunks, layers / stages / chunks);
  layout.where = pp.where;
}

// Axes that files leave open are the search's choice: which, and whether the layout would fit without it.
std::string ChosenBySearch(const ExportCommandFlags& flags, const report::Job& job,
                           const Candidate& candidate) {
  if (flags.job.from.empty()) return "";
  try {
    const Strategy given = OneStrategy(flags.layout, job);
    const auto predicted = Predict(JobOf(job.request, job.profiles), given, Engine::kClosed);
    const auto* own = std::get_if<Prediction>(&predicted);
    if (own == nullptr) return "";
    const auto case_of = [&](const Strategy& strategy) {
      return CaseOf(job, strategy, candidate.nodes, candidate.global_batch);
    };
    const exchange::Case theirs = case_of(given), ours = case_of(candidate.strategy);
    std::string chosen;
    for (const exchange::Field& field : exchange::LayoutFields())
      AddChoice(field, theirs, ours, &chosen);
    for (const exchange::Field& field : exchange::ComputeFields())
      AddChoice(field, theirs, ours, &chosen);
    if (chosen.empty()) return "";
    std::string text = "Chosen by the search, as the files leave it open: " + chosen;
    if (own->memory && !own->memory->fits)
      text += fmt::format("; without that the layout does not fit ({} per GPU)",
                          report::MemoryOfCapacity(*own->memory));
    return text;
  } catch (const InputError&) {  // the files alone make no layout
    return "";
  }
}

}  // namespace

Description DescribeExport() { return ExportCommandFlags().set.Describe(); }

Answer RunExport(const CommandLine& line, std::size_t first) {
  ExportCommandFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeExport().help};
  if (flags.exporting.Target() == nullptr) {
    throw InputError({{flags.exporting.target.where, "export to which framework?",
                       "--to megatron, or another target of `plan export --help`"}});
  }
  const bool translate = !flags.job.framework.given;
  flags.exporting.SetFramework(&flags.job);
  const auto settle = [&] { flags.exporting.TakeFramework(&flags.job, flags.layout); };
  TakeImports(&flags.job, &flags.layout, translate ? std::function<void()>(settle) : nullptr);
  if (translate) settle();
  KeepEvenStages(&flags);
  SearchSettings settings;
  settings.top = 1;
  settings.schedules = flags.exporting.Schedules(flags.job);
  const auto [job, result, placed] = RunSearchOf(flags.job, flags.layout, settings);
  if (!result.feasible()) return {ExitCode::kInfeasible, report::SearchText(job, result)};
  const Candidate candidate = PlacedCandidate(job, result, placed, 1);
  const ExportResult files =
      MakeExport(flags.exporting, job, candidate, ChosenBySearch(flags, job, candidate));
  const bool whole = files.Complete() || !flags.exporting.strict.given;
  const Flag& out = flags.exporting.out;
  Answer answer = Deliver(whole ? ExitCode::kOk : ExitCode::kCheckFailed,
                          WriteExport(flags.exporting, files, out.given ? out.text : ""),
                          files.Json(), flags.json);
  answer.brief =
      report::Brief(DescribeLayout(candidate.strategy, candidate.micro_batches), candidate);
  if (out.given) answer.brief += fmt::format("; {} files in {}", files.files.size(), out.text);
  return answer;
}

}  // namespace orrery::cli
