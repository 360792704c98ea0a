// SPDX-License-Identifier: Apache-2.0
// Names the settings of an import that nobody asked for.
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

}  // namespace

std::vector<std::string> UnusedNotes(Target target, const SettingIndex& index,
                                     const Settings& files) {
  std::vector<std::string> notes, unused, unknown;
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
    const bool foreign = target == kDeepSpeed && !setting->flag && !IsKeyOfDeepSpeed(said);
    (foreign ? unknown : unused).push_back(said);
    if (const std::string meant = MeantBy(setting->key, index.Asked()); !meant.empty())
      notes.push_back(fmt::format("{}: {} is unknown here: did you mean '{}'?",
                                  Place(setting->where), said, meant));
  }
  for (const auto& [what, where] : missing)
    notes.push_back(fmt::format("{}: not modelled: {}; the prediction is without", where, what));
  NameKeys("unknown to DeepSpeed, which ignores them", unknown, &notes);
  NameKeys(target == kDeepSpeed ? "without effect here" : "without effect here, or unknown", unused,
           &notes);
  return notes;
}

}  // namespace orrery::exchange
