// SPDX-License-Identifier: Apache-2.0
// What a framework, or every plan, refuses of a layout, at the flag or the line of a file that asks for it.
#include <fmt/format.h>

#include <algorithm>

#include "model/exchange/setting.h"
#include "model/plan/lower/lower.h"
#include "model/plan/lower/names.h"
#include "model/program/common/job_flags.h"

namespace orrery::cli {
namespace {

// A layout without what one flag asks for.
struct AxisFlag {
  const Flag LayoutFlags::*flag;
  void (*take)(const FrameworkPreset&, Strategy*);
};

constexpr AxisFlag kAxes[] = {
    {&LayoutFlags::zero,
     [](const FrameworkPreset& preset, Strategy* s) { s->zero = preset.zero.front(); }},
    {&LayoutFlags::dp_outer, [](const FrameworkPreset&, Strategy* s) { s->dp_outer = 1; }},
    {&LayoutFlags::sequence_parallel,
     [](const FrameworkPreset&, Strategy* s) { s->sequence_parallel = false; }},
    {&LayoutFlags::schedule,
     [](const FrameworkPreset&, Strategy* s) { s->schedule = PipelineSchedule::k1F1B; }},
    {&LayoutFlags::layout, [](const FrameworkPreset&, Strategy* s) { s->layout = nullptr; }},
    {&LayoutFlags::cp_method,
     [](const FrameworkPreset& preset, Strategy* s) { s->context = preset.DefaultContext(); }},
    {&LayoutFlags::recompute,
     [](const FrameworkPreset&, Strategy* s) { s->recompute = Recompute::kNone; }},
    {&LayoutFlags::offload, [](const FrameworkPreset&, Strategy* s) { s->offload = Offload{}; }},
    {&LayoutFlags::cp, [](const FrameworkPreset&, Strategy* s) { s->cp = 1; }},
    {&LayoutFlags::pp, [](const FrameworkPreset&, Strategy* s) { s->pp = 1; }},
    {&LayoutFlags::tp, [](const FrameworkPreset&, Strategy* s) { s->tp = 1; }},
};

// The flag without which the framework refuses something else, or nothing; null: it was not given.
const Flag* Culprit(const LayoutFlags& flags, const FrameworkPreset& preset, const Strategy& s,
                    const std::string& refusal) {
  for (const AxisFlag& axis : kAxes) {
    const Flag& flag = flags.*axis.flag;
    Strategy other = s;
    axis.take(preset, &other);
    if (flag.given && preset.Refuses(other) != refusal) return &flag;
  }
  return nullptr;
}

// A flag, and a job and a layout without what it asks for.
struct DroppedFlag {
  const Flag* flag;
  void (*drop)(Workload*, Strategy*);
};

void DropPipeline(Workload*, Strategy* s) {
  s->pp = s->vpp = 1;
  s->schedule = PipelineSchedule::k1F1B;
  s->layout = nullptr;
}

// What is asked for most closely first.
std::vector<DroppedFlag> DroppedFlags(const JobFlags& job, const LayoutFlags& layout) {
  return {{&layout.cp_inner, [](Workload*, Strategy* s) { s->context.inner = 1; }},
          {&layout.zigzag, [](Workload*, Strategy* s) { s->context.zigzag = false; }},
          {&layout.cp_method, [](Workload*, Strategy* s) { s->context = ContextLayout{}; }},
          {&layout.cp, [](Workload*, Strategy* s) { s->cp = 1; }},
          {&layout.recompute, [](Workload*, Strategy* s) { s->recompute = Recompute::kNone; }},
          {&layout.offload, [](Workload*, Strategy* s) { s->offload = Offload{}; }},
          {&layout.sequence_parallel, [](Workload*, Strategy* s) { s->sequence_parallel = false; }},
          {&layout.zero, [](Workload*, Strategy* s) { s->zero = 0; }},
          {&layout.layout, [](Workload*, Strategy* s) { s->layout = nullptr; }},
          {&layout.schedule, [](Workload*, Strategy* s) { s->schedule = PipelineSchedule::k1F1B; }},
          {&layout.vpp,
           [](Workload*, Strategy* s) {
             s->vpp = 1;
             s->schedule = PipelineSchedule::k1F1B;
           }},
          {&layout.pp, DropPipeline},
          {&layout.tp, [](Workload*, Strategy* s) { s->tp = 1; }},
          {&job.dropout, [](Workload* work, Strategy*) { work->dropout = 0; }},
          {&job.attention, [](Workload*, Strategy* s) { s->flash_attention = true; }},
          {&job.lora_rank, [](Workload* work, Strategy*) { work->lora = Lora{}; }},
          {&job.fp8, [](Workload* work, Strategy*) { work->fp8 = Fp8::kOff; }}};
}

// "megatron has none, selective, mlp, full, any of core_attn+layernorm+mlp, full:N of the first layers of each chunk"
std::string RecomputeOnOffer(const FrameworkPreset& preset) {
  std::string words = SplitReference(preset.name).name + " has ";
  const char* join = "";
  for (const Recompute& one : preset.recompute) {
    words += fmt::format("{}{}", join, RecomputeText(one));
    join = ", ";
  }
  Recompute any;
  for (const RecomputeModule module : preset.recompute_modules) any.modules |= module;
  if (any.modules != 0) {
    words += ", any of ";
    join = "";
    for (const auto& [name, module] : kRecomputeModuleNames) {
      if ((any.modules & module) == 0) continue;
      words += fmt::format("{}{}", join, name);
      join = "+";
    }
  }
  if (preset.recompute_first) words += ", full:N of the first layers of each chunk";
  if (preset.recompute_every) words += ", full/N of each N-th layer";
  return words;
}

std::string BaseOf(const std::string& name) { return name.substr(0, name.find('@')); }

}  // namespace

std::string ReleaseThatOffers(const FrameworkPreset& preset, const Strategy& s) {
  const std::string own = SplitReference(preset.name).name;
  for (const std::string& name : FrameworkNames()) {
    if (name != own && BaseOf(name) == BaseOf(own) && FindFramework(name).Refuses(s).empty())
      return name;
  }
  return "";
}

void TakeRelease(JobFlags* job, LayoutFlags layout) {
  layout.placement = {};  // no axis, and its hosts are not known yet
  const FrameworkPreset& preset = FindFramework(job->framework.text);
  const Strategy least = LeastStrategy(layout.Read(), preset);
  const std::string refusal = preset.Refuses(least);
  const std::string release = refusal.empty() ? "" : ReleaseThatOffers(preset, least);
  if (release.empty()) return;
  job->framework.text = release;
  job->notes.push_back(fmt::format("predicted as {}: {}", release, refusal));
}

std::vector<const Flag*> CulpritsOf(const Refusal& refusal, const JobFlags& flags,
                                    const LayoutFlags& layout, const report::Job& job,
                                    const Strategy& s) {
  std::vector<const Flag*> culprits;
  const auto refused = CheckStrategy(job.request.model, job.request.work, s);
  if (!refused || refused->reason != refusal.reason) return culprits;
  for (const auto& [flag, drop] : DroppedFlags(flags, layout)) {
    if (!flag->given) continue;
    Workload work = job.request.work;
    Strategy other = s;
    drop(&work, &other);
    if (!CheckStrategy(job.request.model, work, other)) culprits.push_back(flag);
  }
  return culprits;
}

void RefuseLayout(const Refusal& refusal, const JobFlags& flags, const LayoutFlags& layout,
                  const report::Job& job, const Strategy& s) {
  const std::vector<const Flag*> culprits = CulpritsOf(refusal, flags, layout, job, s);
  if (culprits.empty()) throw InputError(refusal.reason, refusal.hint);
  std::string hint = refusal.hint;
  for (std::size_t i = 1; i < culprits.size(); ++i) {
    const Flag& other = *culprits[i];
    if (other.where.source && other.where.source->name == kCommandLine) continue;
    hint += fmt::format("{}{} {} stands in {}", hint.empty() ? "" : "; ", other.name, other.text,
                        exchange::Place(other.where));
  }
  throw InputError({{culprits.front()->where, refusal.reason, hint}});
}

void CheckFramework(const LayoutFlags& flags, const FrameworkPreset& preset, const Strategy& s) {
  const std::string refusal = preset.Refuses(s);
  if (refusal.empty()) return;
  const std::string release = ReleaseThatOffers(preset, s);
  std::string hint = release.empty()
                         ? "--framework orrery offers every combination that can be lowered"
                         : fmt::format(
                               "--framework {} has it; orrery offers every combination that "
                               "can be lowered",
                               release);
  const Flag* flag = Culprit(flags, preset, s, refusal);
  if (flag == &flags.recompute && !preset.Offers(s.recompute))
    hint = fmt::format("{}; {}", RecomputeOnOffer(preset), hint);
  if (flag == nullptr) throw InputError(refusal, hint);
  throw InputError({{flag->where, refusal, hint}});
}

}  // namespace orrery::cli
