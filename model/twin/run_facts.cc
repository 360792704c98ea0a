// SPDX-License-Identifier: Apache-2.0
// The facts of one layout, both ways: that a run was without something is known as well as that it had it.
#include "model/twin/run_facts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "model/plan/lower/names.h"

namespace orrery {
namespace {

const char* OnOff(bool on) { return on ? "on" : "off"; }

// Kernels of one chip.
void AddKernels(const CostSetting& setting, const Workload& work, const Strategy& strategy,
                RunFacts* facts) {
  const FrameworkPreset& preset = *setting.framework->preset;
  const auto kernel = strategy.flash_attention ? preset.FusedAttention(*setting.gpu) : std::nullopt;
  (*facts)[kAttentionFact] = "standard";
  for (const auto& [name, known] : kAttentionKernelNames) {
    // The same kernel in a fixed order of sums is next of kin, not another.
    const std::string_view word = name;
    if (kernel == known) (*facts)[kAttentionFact] = word.substr(0, word.find("-deterministic"));
  }
  (*facts)[kProductsFact] = work.fp8 != Fp8::kOff ? NameIn(kProductNames, FormOf(work.fp8).product)
                            : InHalf(work.precision) ? "16-bit"
                                                     : NameIn(kPrecisionNames, work.precision);
}

// What a framework does in one way or the other, where the layout has an occasion for it.
void AddHabits(const FrameworkPreset& preset, const Workload& work, const Strategy& s,
               RunFacts* facts) {
  const bool sequence = s.tp > 1 && s.sequence_parallel, half = InHalf(work.precision);
  const bool replicas = s.data_parallel() > 1, low = work.fp8 != Fp8::kOff;
  const auto has = [&](const std::vector<Fp8>& recipes) {
    return std::ranges::find(recipes, work.fp8) != recipes.end();
  };
  const struct {
    const char* key;
    bool applies, on;
  } habits[] = {
      {"fp32_grads", half, s.fp32_grads},
      {"master_weights", half, work.master_weights},
      {"autocast", half, preset.autocast},
      {"compile", true, preset.compile},
      {"fused_norm", !preset.compile && !preset.fused_norm, preset.fused_norm},
      {"compile_loss", true, preset.compile_loss},
      {"padded_vocab", true, preset.padded_vocab},
      {"split_products", true, s.split_products},
      {"tp_overlap", sequence, preset.tp_overlap},
      {"sequence_copies", sequence, preset.sequence_copies},
      {"gathers_kept", sequence, s.gathers_kept},
      {"reduces_apart", s.tp > 1, s.reduces_apart},
      {"tp_async", s.tp > 1, s.tp_async},
      {"overlap_grad_reduce", replicas, s.overlap_grad_reduce},
      {"overlap_param_gather", replicas && s.zero > 0, s.overlap_param_gather},
      {"reduce_in_backward", replicas && s.zero < 2, s.reduce_in_backward},
      {"reduce_once", replicas && s.zero >= 2, s.reduce_once},
      {"free_head", replicas && s.zero == 3, s.free_head},
      {"recompute_unread", s.recompute == Recompute::kFull, s.recompute_unread},
      {"fp8_weights", low, s.fp8_weights},
      {"fp8_fused_casts", low, has(preset.fused_casts)},
  };
  for (const auto& habit : habits) {
    if (habit.applies) (*facts)[habit.key] = OnOff(habit.on);
  }
  if (work.lora.on() && s.tp > 1)
    (*facts)["adapter_split"] = NameIn(kAdapterSplitNames, s.adapter_split);
}

// What a plain run does not have.
void AddChoices(const Workload& work, const Strategy& strategy, RunFacts* facts) {
  // Adam and AdamW are one kernel.
  if (work.optimizer != Optimizer::kAdam && work.optimizer != Optimizer::kAdamW)
    (*facts)["optimizer"] = NameIn(kOptimizerNames, work.optimizer);
  if (strategy.cp > 1) (*facts)["cp method"] = NameIn(kCpMethodNames, strategy.context.method);
  if (strategy.pp > 1 && strategy.schedule != PipelineSchedule::k1F1B &&
      strategy.schedule != PipelineSchedule::kInterleaved)
    (*facts)["schedule"] = NameIn(kScheduleNames, strategy.schedule);
  if (work.lora.on()) (*facts)["trained"] = "adapters";
  if (strategy.offload.on()) (*facts)["offload"] = OffloadText(strategy.offload);
  if (work.lora.packed()) (*facts)["frozen weights"] = NameIn(kLoraBaseNames, work.lora.base);
}

}  // namespace

RunFacts FactsOf(const CostSetting& setting, const Workload& work, const Strategy& strategy) {
  RunFacts facts;
  AddKernels(setting, work, strategy, &facts);
  AddHabits(*setting.framework->preset, work, strategy, &facts);
  AddChoices(work, strategy, &facts);
  return facts;
}

std::string FactsText(const RunFacts& facts) {
  std::string text;
  for (const auto& [key, value] : facts)
    text += fmt::format("{}{}={}", text.empty() ? "" : ";", key, value);
  return text;
}

RunFacts ReadFacts(std::string_view text) {
  RunFacts facts;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find(';', begin), text.size());
    const std::string_view fact = text.substr(begin, end - begin);
    const std::size_t at = fact.find('=');
    if (at != fact.npos) facts[std::string(fact.substr(0, at))] = fact.substr(at + 1);
    begin = end + 1;
  }
  return facts;
}

}  // namespace orrery
