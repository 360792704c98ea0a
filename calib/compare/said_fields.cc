// SPDX-License-Identifier: Apache-2.0
// Asks the table which settings a field is read from.
#include "calib/compare/said_fields.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "calib/import/log_lines.h"
#include "model/exchange/import_steps.h"

namespace orrery::compare {
namespace {

// What no record and no import says: the field is off.
constexpr std::pair<const char*, const char*> kOffText[] = {
    {"layout", "even"},   {"offload", "none"}, {"fp8", "off"},
    {"fp8_skip", "none"}, {"lora", "0"},       {"vpp", "1"}};

// Megatron's arguments that argparse keeps under another name (megatron/training/arguments.py: dest, and validate_args for
// virtual stages).
constexpr std::pair<std::string_view, const char*> kKeptAs[] = {
    {"fp8-format", "fp8"},
    {"fp4-format", "fp4"},
    {"num-virtual-stages-per-pipeline-rank", "virtual_pipeline_model_parallel_size"}};

std::string ArgumentOf(const std::string& key) {
  for (const auto& [flag, kept] : kKeptAs)
    if (key == flag) return kept;
  std::string name = key;
  std::ranges::replace(name, '-', '_');
  return name;
}

// Settings of Megatron that a field is read from.
std::vector<std::string> KeysOf(const exchange::Field& field, const exchange::Values& values) {
  const exchange::Cell* cell = field.Of(exchange::kMegatron);
  if (cell == nullptr) return {};
  if (cell->kind == exchange::Cell::Kind::kKey) return {cell->key};
  std::vector<std::string> keys;
  for (const exchange::Choice& choice : cell->choices)
    for (const auto& [key, text] : choice.settings) keys.push_back(key);
  if (cell->kind != exchange::Cell::Kind::kRule || !cell->read) return keys;
  const exchange::Settings none;
  const exchange::SettingIndex asked(none);
  try {
    (void)cell->read(asked, values);
  } catch (const InputError&) {
    // It asks for all that it needs before it complains.
  }
  return asked.Asked();
}

// The line where one of them is printed as off; 0: none is.
int OffLine(const std::vector<std::string>& keys, const measured::LogFacts& facts) {
  for (const std::string& key : keys) {
    const std::string name = ArgumentOf(key);
    const auto at = facts.arguments.find(name);
    const auto line = facts.lines.find(name);
    if (at != facts.arguments.end() && line != facts.lines.end() &&
        (at->second == "False" || at->second == "None"))
      return line->second;
  }
  return 0;
}

std::string OffText(const std::string& field) {
  for (const auto& [name, text] : kOffText)
    if (field == name) return text;
  return "";
}

std::vector<std::string> LayersOf(const std::string& text) {
  std::vector<std::string> layers;
  for (const std::string_view part : measured::SplitAt(text, ',')) {
    const std::size_t times = part.find('x');
    const auto count =
        times == part.npos ? std::optional<int64_t>(1) : measured::WholeIn(part.substr(0, times));
    constexpr int64_t kMostStages = 100'000;
    for (int64_t i = 0; i < std::min(count.value_or(1), kMostStages); ++i)
      layers.emplace_back(times == part.npos ? part : part.substr(times + 1));
  }
  return layers;
}

}  // namespace

exchange::Values PlannedFields(const nlohmann::json& record, exchange::Values values) {
  if (!values.contains("tp")) return values;
  values.try_emplace("cp", exchange::Value{"1", {}, ""});
  // A record of a plan's text does not know the layout behind it.
  if (values.contains("sequence_parallel")) {
    for (const auto& [field, off] : kOffText)
      values.try_emplace(field, exchange::Value{off, {}, ""});
  }
  const auto facts = record.find("facts");
  if (facts == record.end() || !facts->is_array()) return values;
  for (const nlohmann::json& fact : *facts) {
    if (!fact.is_object()) continue;
    const std::string key = fact.value("key", ""), what = fact.value("what", "");
    if (key.empty() || !what.starts_with(key + " ")) continue;  // told in a sentence
    for (const exchange::Field& field : exchange::Fields()) {
      if (field.flag == "fact " + key)
        values.try_emplace(field.name, exchange::Value{what.substr(key.size() + 1), {}, ""});
    }
  }
  return values;
}

exchange::Values SaidFields(const SourcePtr& log, const measured::LogFacts& facts,
                            const exchange::Values& values) {
  exchange::Values said;
  for (const exchange::Field& field : exchange::Fields()) {
    const auto at = values.find(field.name);
    if (at != values.end() && at->second.where.line > 0) {
      said.insert(*at);
      continue;
    }
    const int line = facts.has_dump ? OffLine(KeysOf(field, values), facts) : 0;
    const std::string text = at != values.end() ? at->second.text : OffText(field.name);
    if (line > 0 && !text.empty())
      said.emplace(field.name, exchange::Value{text, {log, line, 1}, ""});
  }
  return said;
}

bool SameField(const std::string& field, const std::string& a, const std::string& b) {
  return field == "layout" ? LayersOf(a) == LayersOf(b) : exchange::SameValue(a, b);
}

}  // namespace orrery::compare
