// SPDX-License-Identifier: Apache-2.0
// Reads the flags of adapters.
#include "model/program/common/adapter_flags.h"

#include <fmt/format.h>

#include "model/arch/hf_tensors.h"
#include "model/base/plain_text.h"
#include "model/base/text.h"
#include "model/program/common/names.h"

namespace orrery::cli {

Lora ReadLora(const JobFlags& flags, Diagnostics* diagnostics) {
  Lora lora;
  for (const Flag* flag : {&flags.lora_rank, &flags.lora_alpha, &flags.lora_targets}) {
    if (!flag->given || !flag->text.ends_with(".json")) continue;
    diagnostics->Error(flag->where, fmt::format("{} takes no file", flag->name),
                       fmt::format("--from {} reads rank, alpha and targets of an "
                                   "adapter_config.json",
                                   flag->text));
    return lora;
  }
  lora.rank = static_cast<int>(ReadInteger(flags.lora_rank, 1, 65536, diagnostics).value_or(0));
  for (const Flag* flag : {&flags.lora_alpha, &flags.lora_targets, &flags.lora_base}) {
    if (flag->given && !flags.lora_rank.given)
      diagnostics->Error(flag->where, fmt::format("{} without adapters", flag->name),
                         "--lora-rank N fine-tunes adapters");
  }
  if (flags.lora_alpha.given &&
      (ParseNumber(flags.lora_alpha.text, &lora.alpha) != NumberFault::kNone || lora.alpha <= 0))
    diagnostics->Error(
        flags.lora_alpha.where,
        fmt::format("--lora-alpha: '{}' is no positive number", flags.lora_alpha.text));
  return lora;
}

namespace {

LoraBase ReadBase(const Flag& flag, const Workload& work) {
  const char* const kept = report::Name(work.precision);
  if (flag.text == kept) return LoraBase::kPlain;
  for (const auto& [name, base] : kLoraBaseNames) {
    if (base != LoraBase::kPlain && flag.text == name) return base;
  }
  throw InputError({{flag.where, fmt::format("frozen weights in {} are not supported", flag.text),
                     fmt::format("int8, nf4, fp8, or {}, which --precision says", kept)}});
}

std::string FamilyOf(const LoadedModel& model) {
  return model.hf_family.empty() ? HfFamilyLike(model.spec) : model.hf_family;
}

LoraModules ModulesOf(const LoadedModel& model) {
  const std::string family = FamilyOf(model);
  LoraModules modules = family.empty() ? LoraModules{} : AdapterModules(family, model.spec.gated);
  if (!modules.targets.empty()) modules.type = model.hf_family;
  return modules;
}

std::string TargetsOfPeft(const LoadedModel& model) {
  const std::string family = FamilyOf(model);
  const std::string targets = family.empty() ? "" : PeftTargets(family);
  if (targets.empty())
    throw InputError({{{},
                       fmt::format("which maps PEFT adapts by itself is not known for {}",
                                   family.empty() ? model.spec.name : "models of type " + family),
                       "--lora-targets q_proj,v_proj, or those that the program names"}});
  return targets;
}

}  // namespace

bool SetTargets(const JobFlags& flags, const LoadedModel& model, const SearchRequest& request,
                Lora* lora) {
  if (flags.lora_targets.given) {
    AtFlag(flags.lora_targets, [&] {
      const std::string& said = flags.lora_targets.text;
      lora->targets = ReadLoraTargets(said == "peft" ? TargetsOfPeft(model) : said,
                                      request.model.gated, ModulesOf(model));
    });
  }
  if (flags.lora_base.given) lora->base = ReadBase(flags.lora_base, request.work);
  return flags.lora_targets.given;
}

}  // namespace orrery::cli
