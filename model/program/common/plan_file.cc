// SPDX-License-Identifier: Apache-2.0
// Reads a plan text and refuses what cannot be run.
#include <fmt/format.h>

#include <algorithm>

#include "model/base/text.h"
#include "model/hardware/cluster_file.h"
#include "model/plan/ir/verify.h"
#include "model/program/common/job_flags.h"

namespace orrery::cli {
namespace {

constexpr std::size_t kShownFindings = 5;

void RefuseFlags(const Flag& file, JobFlags job, const LayoutFlags& layout) {
  for (const Flag* flag :
       {&job.model, &job.global_batch, &job.seq_len, &job.precision, &job.fp8, &job.fp8_skip,
        &job.fp8_weights, &job.optimizer, &job.attention, &job.dropout, &job.lora_rank}) {
    if (flag->given) {
      throw InputError({{file.where, fmt::format("a plan and {} are given", flag->name),
                         "keep one of them: a plan says what is trained"}});
    }
  }
  if (layout.any()) {
    throw InputError({{file.where, "a plan has its layout already",
                       "omit layout flags such as --tp, or use --model"}});
  }
}

}  // namespace

void DeclarePlan(Flag* plan, FlagSet* set) {
  set->Value(plan, "--plan", "FILE",
             "a plan that `plan show --ir` printed, in the place of --model and a layout; "
             "the word --plan is optional",
             Words::kFile, {}, "FILE");
}

void VerifyPlan(const std::string& name, const ir::Plan& plan) {
  const std::vector<ir::Finding> findings = ir::Verify(plan);
  std::vector<Diagnostic> list;
  for (std::size_t i = 0; i < std::min(findings.size(), kShownFindings); ++i) {
    const ir::Finding& finding = findings[i];
    list.push_back({{},
                    fmt::format("{}: stage {} {}: {}: {}", name, finding.stage, finding.where,
                                ir::FaultName(finding.fault), finding.message),
                    i == 0 ? "the plan cannot be run; print it anew with plan show --ir" : ""});
  }
  if (!list.empty()) throw InputError(std::move(list));
}

ir::Plan ReadPlanFile(const Flag& file, const JobFlags& job, const LayoutFlags& layout) {
  RefuseFlags(file, job, layout);
  ir::Plan plan;
  AtFlag(file, [&] {
    const SourcePtr source = ReadSource(file.text);
    try {
      plan = ir::ParsePlan(source->text, source->name);
    } catch (const InputError& error) {
      RefuseMachineFile(source, "a plan");
      std::vector<Diagnostic> list = error.diagnostics();
      if (list.front().hint.empty()) list.front().hint = "`plan show --ir` prints a whole plan";
      throw InputError(std::move(list));
    }
  });
  VerifyPlan(file.text, plan);
  return plan;
}

}  // namespace orrery::cli
