// SPDX-License-Identifier: Apache-2.0
// Names of the maps that adapters stand beside.
#include "model/arch/lora.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery {
namespace {

// What a name means where the model's class is not known, which its family's table says (scenarios/families): modules of
// HuggingFace's models (transformers modeling_*.py), and of torchtune and torchtitan, whose Llamas have the names of Meta's.
// A name that two modules end with means both, as PEFT matches it (tuners_utils.py, check_target_module_exists).
constexpr std::pair<const char*, unsigned> kModules[] = {{"q_proj", kLoraQ},
                                                         {"k_proj", kLoraK},
                                                         {"v_proj", kLoraV},
                                                         {"query", kLoraQ},
                                                         {"key", kLoraK},
                                                         {"value", kLoraV},
                                                         {"wq", kLoraQ},
                                                         {"wk", kLoraK},
                                                         {"wv", kLoraV},
                                                         {"qkv_proj", kLoraQkv},
                                                         {"query_key_value", kLoraQkv},
                                                         {"c_attn", kLoraQkv},
                                                         {"Wqkv", kLoraQkv},
                                                         {"o_proj", kLoraProj},
                                                         {"out_proj", kLoraProj},
                                                         {"output_proj", kLoraProj},
                                                         {"wo", kLoraProj},
                                                         {"dense", kLoraProj},
                                                         {"c_proj", kLoraProj | kLoraFc2},
                                                         {"gate_proj", kLoraGate},
                                                         {"up_proj", kLoraUp},
                                                         {"w1", kLoraGate},
                                                         {"w3", kLoraUp},
                                                         {"gate_up_proj", kLoraFc1},
                                                         {"dense_h_to_4h", kLoraFc1},
                                                         {"c_fc", kLoraFc1},
                                                         {"fc_in", kLoraFc1},
                                                         {"fc1", kLoraFc1},
                                                         {"down_proj", kLoraFc2},
                                                         {"dense_4h_to_h", kLoraFc2},
                                                         {"fc_out", kLoraFc2},
                                                         {"fc2", kLoraFc2},
                                                         {"w2", kLoraFc2}};

template <class Rows>
unsigned Find(const Rows& rows, std::string_view word) {
  const auto* row = std::ranges::find_if(rows, [&](const auto& r) { return r.first == word; });
  return row == std::end(rows) ? 0 : unsigned{row->second};
}

// Of Meta's Llamas, which have none of HuggingFace's.
bool IsMetas(std::string_view word) {
  return word == "output_proj" || (word.size() == 2 && word.front() == 'w');
}

unsigned AllLinear(bool gated, const LoraModules& modules) {
  unsigned all = 0;
  for (const auto& [name, targets] : modules.targets) all |= targets;
  if (all != 0) return all;
  return gated ? kLoraPartsOfQkv | kLoraProj | kLoraPartsOfFc1 | kLoraFc2 : unsigned{kLoraAll};
}

unsigned TargetsOf(std::string_view word, bool gated, const LoraModules& modules) {
  if (word == "all-linear") return AllLinear(gated, modules);
  if (const auto own = modules.targets.find(word); own != modules.targets.end()) return own->second;
  const bool others = modules.type.empty() || IsMetas(word);
  unsigned found = Find(kLoraTargetNames, word) | (others ? Find(kModules, word) : 0);
  if (gated) return found;
  if (word == "up_proj") return kLoraFc1;
  return (found & kLoraPartsOfFc1) != 0 ? 0 : found;
}

void RefuseBoth(unsigned targets, LoraTarget whole, LoraTarget parts) {
  if ((targets & whole) == 0 || (targets & parts) == 0) return;
  const auto words = [&](unsigned of) { return LoraTargetWords(static_cast<LoraTargets>(of)); };
  throw InputError(
      {{{},
        fmt::format("adapters on {} and on its parts {}", words(whole), words(targets & parts)),
        "name the whole map or parts of it"}});
}

}  // namespace

LoraTargets ReadLoraTargets(std::string_view list, bool gated, const LoraModules& modules) {
  unsigned targets = 0;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find_first_of(",;", begin), list.size());
    const std::string_view word = list.substr(begin, end - begin);
    begin = end + 1;
    const unsigned found = TargetsOf(word, gated, modules);
    if (found == 0 && !modules.type.empty()) {
      std::vector<std::string_view> names;
      for (const auto& [name, target] : modules.targets) names.push_back(name);
      throw InputError(
          {{{},
            fmt::format("models of type {} have no module '{}'", modules.type, word),
            fmt::format("{}; linear_qkv, linear_proj, linear_fc1, linear_fc2; or all-linear",
                        fmt::join(names, ", "))}});
    }
    if (found == 0) {
      throw InputError(
          {{{},
            fmt::format("no map '{}' takes adapters", word),
            "linear_qkv, linear_proj, linear_fc1, linear_fc2; q_proj, k_proj, v_proj, "
            "o_proj, gate_proj (of a gated model), up_proj, down_proj; or all-linear"}});
    }
    targets |= found;
  }
  RefuseBoth(targets, kLoraQkv, kLoraPartsOfQkv);
  RefuseBoth(targets, kLoraFc1, kLoraPartsOfFc1);
  return static_cast<LoraTargets>(targets);
}

std::string LoraTargetWords(LoraTargets targets) {
  std::string words;
  for (const auto& [name, target] : kLoraTargetNames) {
    if ((targets & target) != 0) words += (words.empty() ? "" : ",") + std::string(name);
  }
  return words;
}

}  // namespace orrery
