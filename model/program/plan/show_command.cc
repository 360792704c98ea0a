// SPDX-License-Identifier: Apache-2.0
// `plan show`: the executable plan of one layout, or a model as it was read.
#include <nlohmann/json.hpp>

#include "model/plan/lower/lower.h"
#include "model/program/common/answer.h"
#include "model/program/common/job_flags.h"
#include "model/program/plan/commands.h"
#include "model/program/plan/model_report.h"
#include "model/program/plan/plan_report.h"

namespace orrery::cli {
namespace {

struct ShowFlags {
  JobFlags job;
  LayoutFlags layout;
  Flag plan, ir, json;
  FlagSet set{
      "show --model NAME [flags]",
      "Prints the executable plan of one layout: its programs, communication groups, "
      "streams, schedule and "
      "digest. With --ir every op, in the text form that reads back. With --model alone: the "
      "model's layers, parameters and assumptions, and what became of each key of its file (JSON: "
      "schema orrery.model/1).",
      {"plan show --model ./config.json",
       "plan show --model bert-1.5b --nodes 1 --zero 1 --micro-batch 8",
       "plan show --model gpt2-small --nodes 2 --pp 2 --micro-batch 4 --ir | less"}};

  ShowFlags() {
    job.Declare(&set, false);
    layout.Declare(&set, "The layout (defaults: 1, none, off)");
    DeclarePlan(&plan, &set);
    DeclareFrom(&job, &set);
    set.Group("The output");
    set.Switch(&ir, "--ir", "the whole plan as text");
    DeclareJson(&json, &set, "show");
  }
};

// Nothing that makes it a plan.
bool ModelAlone(ShowFlags& flags) {
  if (!flags.job.model.given || flags.layout.any() || flags.ir.given) return false;
  for (const Flag* flag : flags.job.All()) {
    if (flag->given && flag != &flags.job.model) return false;
  }
  return true;
}

Answer Show(const ShowFlags& flags, const std::string& header, const ir::Plan& plan) {
  if (flags.ir.given) return {ExitCode::kOk, ir::ToText(plan), "", true};
  return Deliver(ExitCode::kOk, header + report::PlanSummary(plan), report::PlanJson(plan),
                 flags.json);
}

}  // namespace

Description DescribeShow() { return ShowFlags().set.Describe(); }

Answer RunShow(const CommandLine& line, std::size_t first) {
  ShowFlags flags;
  if (flags.set.Parse(line, first)) return {ExitCode::kOk, DescribeShow().help};
  TakeImports(&flags.job, &flags.layout);
  if (flags.plan.given) return Show(flags, "", ReadPlanFile(flags.plan, flags.job, flags.layout));
  if (ModelAlone(flags)) {
    const LoadedModel model = LoadModelOf(flags.job.model);
    return Deliver(ExitCode::kOk, report::ModelText(model), report::ModelJson(model), flags.json);
  }
  const report::Job job = flags.job.Resolve();
  const Strategy strategy = OneStrategy(flags.layout, job);
  LowerResult lowered = Lower(job.request.model, job.request.work, strategy);
  if (const auto* refusal = std::get_if<Refusal>(&lowered))
    RefuseLayout(*refusal, flags.job, flags.layout, job, strategy);
  auto& plan = std::get<ir::Plan>(lowered);
  plan.framework = job.request.framework;
  return Show(flags, report::JobHeader(job) + "\n", plan);
}

}  // namespace orrery::cli
