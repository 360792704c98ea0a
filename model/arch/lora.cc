// SPDX-License-Identifier: Apache-2.0
// Names of the maps that adapters stand beside.
#include "model/arch/lora.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "model/base/diagnostics.h"

namespace orrery {
namespace {

// Modules of a HuggingFace Llama that are one map here.
struct Joined {
  LoraTarget target;
  std::vector<const char*> modules;
};

std::vector<Joined> JoinedModules(bool gated) {
  std::vector<Joined> joined{{kLoraQkv, {"q_proj", "k_proj", "v_proj"}},
                             {kLoraProj, {"o_proj"}},
                             {kLoraFc1, {"up_proj"}},
                             {kLoraFc2, {"down_proj"}}};
  if (gated) joined[2].modules = {"gate_proj", "up_proj"};
  return joined;
}

}  // namespace

uint8_t ReadLoraTargets(std::string_view list, bool gated) {
  unsigned targets = 0;
  std::vector<std::string> rest;
  for (std::size_t begin = 0; begin <= list.size();) {
    const std::size_t end = std::min(list.find_first_of(",;", begin), list.size());
    const std::string word(list.substr(begin, end - begin));
    begin = end + 1;
    const auto* row =
        std::ranges::find_if(kLoraTargetNames, [&](const auto& r) { return r.first == word; });
    if (row != std::end(kLoraTargetNames)) {
      targets |= row->second;
    } else if (word == "all-linear") {
      targets |= kLoraAll;
    } else {
      rest.push_back(word);
    }
  }
  for (const auto& [target, modules] : JoinedModules(gated)) {
    std::size_t found = 0;
    for (const char* module : modules) found += std::erase(rest, module) > 0;
    if (found == 0) continue;
    if (found < modules.size()) {
      throw InputError(
          {{{},
            fmt::format("adapters on only some of {} are not supported", fmt::join(modules, ", ")),
            "name all of them: they are one product"}});
    }
    targets |= target;
  }
  if (!rest.empty()) {
    throw InputError({{{},
                       fmt::format("no map '{}' takes adapters", rest.front()),
                       "linear_qkv, linear_proj, linear_fc1, linear_fc2; q_proj, k_proj, v_proj, "
                       "o_proj, gate_proj, up_proj, down_proj; or all-linear"}});
  }
  if (targets == 0) throw InputError({{{}, "no map takes adapters", "name at least one"}});
  return static_cast<uint8_t>(targets);
}

std::string LoraTargetWords(uint8_t targets) {
  std::string words;
  for (const auto& [name, target] : kLoraTargetNames) {
    if ((targets & target) != 0) words += (words.empty() ? "" : ",") + std::string(name);
  }
  return words;
}

}  // namespace orrery
