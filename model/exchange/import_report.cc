// SPDX-License-Identifier: Apache-2.0
// Names the settings of an import that nobody asked for, and what Megatron's states are that plans have otherwise.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "model/exchange/import_steps.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

void NameKeys(const char* what, std::vector<std::string> keys, std::vector<std::string>* notes) {
  if (keys.empty()) return;
  constexpr std::size_t kShown = 60;
  const std::size_t more = keys.size() > kShown ? keys.size() - kShown : 0;
  keys.resize(std::min(keys.size(), kShown));
  notes->push_back(fmt::format("{}: {}{}", what, fmt::join(keys, ", "),
                               more > 0 ? fmt::format(" and {} more", more) : ""));
}

// "exp-avg-dtype bf16, exp-avg-sq-dtype bf16", of types that are not fp32; the first of them.
std::pair<std::string, const Setting*> OtherTypes(const SettingIndex& index, bool bridge) {
  std::string types;
  const Setting* first = nullptr;
  for (const char* name :
       {"main-params-dtype", "main-grads-dtype", "exp-avg-dtype", "exp-avg-sq-dtype"}) {
    std::string key = name;
    if (bridge) std::ranges::replace(key, '-', '_');
    const Setting* type = index.Find((bridge ? "optimizer." : "") + key);
    if (type == nullptr) continue;
    std::string value = type->value;
    if (value.starts_with("torch.")) value.erase(0, 6);
    if (value == "fp32" || value == "float32") continue;
    types += fmt::format("{}{} {}", types.empty() ? "" : ", ", key, value);
    if (first == nullptr) first = type;
  }
  return {types, first};
}

}  // namespace

// megatron/core/optimizer/optimizer_config.py: store_param_remainders is on, with TransformerEngine 2.1 or newer.
std::string StatesNote(bool bridge, const SettingIndex& index, const Values& values,
                       const Values& given) {
  const Setting* aware = index.Find(bridge ? "optimizer.use_precision_aware_optimizer"
                                           : "use-precision-aware-optimizer");
  if (aware != nullptr && Off(aware->value)) aware = nullptr;
  const auto [types, first] = OtherTypes(index, bridge);
  const auto is = [&](const char* field, const char* text) {
    const auto at = values.find(field);
    return at != values.end() && at->second.text == text;
  };
  if (aware == nullptr) {
    if (types.empty()) return "";
    throw InputError({{first->where, fmt::format("{} without use-precision-aware-optimizer", types),
                       "add it, as Megatron asserts, or leave the types as they are"}});
  }
  if (is("zero", "0") && !given.contains("zero"))
    throw InputError(
        {{aware->where, fmt::format("{} without use-distributed-optimizer", aware->key),
          "add it, as Megatron asserts"}});
  if (!types.empty())
    return fmt::format(
        "{}: not modelled: states of the optimizer in other types ({}); the "
        "prediction is without",
        Place(first->where), types);
  if (!is("precision", "bf16") || is("fp8_weights", "on") || values.contains("offload")) return "";
  return fmt::format(
      "{}: {} alone keeps all types, but of fp32 weights the 16 bits that the bf16 weights do not "
      "have: the job holds 2 bytes less per parameter of a shard than predicted",
      Place(aware->where), aware->key);
}

std::string ReductionNote(const SettingIndex& index, const Values& values) {
  const auto is = [&](const char* field, const char* text) {
    const auto at = values.find(field);
    return at != values.end() && at->second.text == text;
  };
  for (const char* key : {"communication_data_type", "fp32_allreduce"}) {
    const Setting* type = index.Find(key);
    if (type == nullptr || Off(type->value)) continue;
    const std::string said = type->value == "true"    ? "fp32"
                             : type->value == "bfp16" ? "bf16"
                                                      : type->value;
    const bool wide = is("fp32_grads", "on") || is("precision", "fp32");
    if (wide ? said == "fp32" : is("precision", said.c_str())) continue;
    return fmt::format("{}: not modelled: gradients reduced in {}; the prediction is without",
                       Place(type->where), said);
  }
  return "";
}

std::vector<std::string> UnusedNotes(Target target, const SettingIndex& index,
                                     const Settings& files) {
  constexpr std::string_view kZero = "zero_optimization.";
  std::vector<std::string> notes, unused, unknown, refused;
  const bool deepspeed = target == kDeepSpeed;
  std::vector<std::pair<std::string, std::string>> missing;  // what is not modelled, and where
  for (const Setting* setting : index.Unused()) {
    if (setting->key == "args.deepspeed" ||
        std::ranges::find(files, setting->key, &Setting::key) != files.end())
      continue;
    const std::string& said = setting->said.empty() ? setting->key : setting->said;
    if (const char* what = NotModelled(target, *setting); what != nullptr) {
      const auto row =
          std::ranges::find_if(missing, [&](const auto& one) { return one.first == what; });
      if (row == missing.end())
        missing.emplace_back(what, Place(setting->where));
      else
        row->second += ", " + Place(setting->where);
      continue;
    }
    const bool foreign = deepspeed
                             ? !setting->flag && !IsKeyOfDeepSpeed(said)
                             : !IsHarmless(target, setting->key) && !IsAsModelled(target, *setting);
    const bool typo = deepspeed && said.starts_with(kZero) &&
                      !IsKeyOfZero(std::string_view(said).substr(kZero.size()));
    (typo ? refused : foreign ? unknown : unused).push_back(said);
    if (const std::string meant = MeantBy(setting->key, index.Asked()); !meant.empty())
      notes.push_back(fmt::format("{}: {} is unknown here: did you mean '{}'?",
                                  Place(setting->where), said, meant));
  }
  for (const auto& [what, where] : missing)
    notes.push_back(fmt::format("{}: not modelled: {}; the prediction is without", where, what));
  NameKeys(deepspeed ? "unknown to DeepSpeed, which ignores them" : "not known here", unknown,
           &notes);
  NameKeys("unknown to DeepSpeed, which does not start with them", refused, &notes);
  NameKeys(deepspeed ? "without effect here" : "without effect on time and memory", unused, &notes);
  return notes;
}

}  // namespace orrery::exchange
