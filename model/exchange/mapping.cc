// SPDX-License-Identifier: Apache-2.0
// Applies the rows of the mapping in both directions.
#include "model/exchange/mapping.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "model/base/check.h"
#include "model/base/plain_text.h"
#include "model/exchange/spellings.h"
#include "model/plan/lower/balance.h"
#include "model/plan/lower/names.h"

namespace orrery::exchange {
namespace {

// How many of a choice's settings are there with its values; 0: its first is not.
std::size_t Matched(const Choice& choice, const SettingIndex& settings) {
  std::size_t matched = 0;
  for (const auto& [key, value] : choice.settings) {
    const Setting* setting = settings.Find(key);
    const bool same = setting != nullptr && setting->value == value;
    if (!same && matched == 0) return 0;
    matched += same ? 1 : 0;
  }
  return matched;
}

bool Within(const Choice& inner, const Choice& outer) {
  return std::ranges::all_of(inner.settings, [&](const auto& setting) {
    return std::ranges::find(outer.settings, setting) != outer.settings.end();
  });
}

std::string SettingsText(const Choice& choice) {
  std::vector<std::string> parts;
  for (const auto& [key, value] : choice.settings)
    parts.push_back(value.empty() ? key : fmt::format("{} {}", key, value));
  return fmt::format("{}", fmt::join(parts, ", "));
}

// A key of the choices stands there with a value that none of them has.
[[noreturn]] void RefuseValue(const Field& field, const Cell& cell, const Setting& setting) {
  std::vector<std::string> offered;
  for (const Choice& choice : cell.choices) {
    for (const auto& [key, value] : choice.settings) {
      if (key == setting.key && std::ranges::find(offered, value) == offered.end())
        offered.push_back(value);
    }
  }
  if (offered == std::vector<std::string>{"true"}) offered.push_back("false");
  const char* other = setting.key == "args.optim" ? OptimizerNotModelled(setting.value) : nullptr;
  if (other != nullptr)
    throw InputError(
        {{setting.where, fmt::format("optim {}: {}: not modelled", setting.value, other),
          fmt::format("{}, or --optimizer NAME for one that is near", fmt::join(offered, ", "))}});
  throw InputError(
      {{setting.where,
        fmt::format("{} '{}' is no known choice of {}", setting.key, setting.value, field.name),
        fmt::format("known: {}", fmt::join(offered, ", "))}});
}

// A switch that can only be set, and is not: as if it were not there.
bool IsOff(const Cell& cell, const Setting& setting) {
  return Off(setting.value) && std::ranges::all_of(cell.choices, [&](const Choice& choice) {
           return choice.settings.empty() || choice.settings.front().first != setting.key ||
                  choice.settings.front().second == "true";
         });
}

std::optional<Value> ReadChoices(const Field& field, const Cell& cell,
                                 const SettingIndex& settings) {
  const Choice* best = nullptr;
  std::size_t most = 0;
  for (const Choice& choice : cell.choices) {
    const std::size_t matched = Matched(choice, settings);
    if (matched == 0) continue;
    if (best != nullptr && !Within(*best, choice) && !Within(choice, *best) &&
        best->value != choice.value) {
      const Setting* here = settings.Find(choice.settings.front().first);
      const Setting* there = settings.Find(best->settings.front().first);
      throw InputError({{here->where,
                         fmt::format("{} here contradicts {} in {}", SettingsText(choice),
                                     SettingsText(*best), Place(there->where)),
                         fmt::format("{} has one value", field.name)}});
    }
    if (matched > most) {
      most = matched;
      best = &choice;
    }
  }
  if (best != nullptr) {
    const Setting* first = settings.Find(best->settings.front().first);
    return Value{best->value, first->where, first->key};
  }
  for (const Choice& choice : cell.choices) {
    if (choice.settings.empty()) continue;
    const Setting* other = settings.Find(choice.settings.front().first);
    if (other != nullptr && other->value == kAuto) return Value{kAuto, other->where, other->key};
    if (other != nullptr && !IsOff(cell, *other)) RefuseValue(field, cell, *other);
  }
  // What no setting says is the choice without one; where several are, the program decides and the files say nothing.
  const auto silent = [](const Choice& choice) { return choice.settings.empty(); };
  const auto only = std::ranges::find_if(cell.choices, silent);
  if (only == cell.choices.end() || std::ranges::count_if(cell.choices, silent) > 1)
    return std::nullopt;
  return Value{only->value, {}, ""};
}

std::optional<Value> ReadKey(const Cell& cell, const SettingIndex& settings) {
  const Setting* setting = settings.Find(cell.key);
  if (setting != nullptr) return Value{setting->value, setting->where, setting->key};
  if (cell.neutral.empty()) return std::nullopt;
  return Value{cell.neutral, {}, ""};
}

std::optional<Value> ReadCell(const Field& field, const Cell& cell, const SettingIndex& settings,
                              const Values& values) {
  switch (cell.kind) {
    case Cell::Kind::kKey:
      return ReadKey(cell, settings);
    case Cell::Kind::kChoices:
      return ReadChoices(field, cell, settings);
    case Cell::Kind::kRule:
      return cell.read ? cell.read(settings, values) : std::nullopt;
    case Cell::Kind::kFollows:
    case Cell::Kind::kOwn:
      break;
  }
  return std::nullopt;
}

// Fields whose values are counts. Programs take digits there ("1e1" is no number to argparse's int), flags of this project
// are not asked.
constexpr std::string_view kCounts[] = {
    "tp",       "pp",           "cp",          "ep",    "dp",
    "dp_outer", "vpp",          "micro_batch", "nodes", "gpus_per_node",
    "seq_len",  "global_batch", "lora",        "zero"};

void CheckCount(const Field& field, const Value& value) {
  if (!value.where.source || value.text.empty() || value.text == kAuto || value.text == "null" ||
      value.text == "None" || std::ranges::find(kCounts, field.name) == std::end(kCounts))
    return;
  int64_t number = 0;
  if (ParseInteger(value.text, &number) == NumberFault::kNone && number >= 0) return;
  throw InputError({{value.where, fmt::format("{}: '{}' is no whole number", value.key, value.text),
                     "digits alone, such as 8"}});
}

Written WriteChoice(const Cell& cell, const std::string& value) {
  for (const Choice& choice : cell.choices) {
    if (choice.value != value) continue;
    Written written;
    for (const auto& [key, text] : choice.settings) written.settings.push_back({key, text, {}, ""});
    if (!choice.near.empty()) return {Status::kNear, written.settings, choice.near};
    if (written.settings.empty()) return {Status::kFixed, {}, cell.why};
    return written;
  }
  return {Status::kNotExpressed, {}, cell.why};
}

Written WriteCell(const Cell& cell, const Case& c, const std::string& value) {
  switch (cell.kind) {
    case Cell::Kind::kKey:
      if (value == cell.neutral) return {Status::kFixed, {}, "default"};
      return {Status::kWritten, {{cell.key, value, {}, ""}}, ""};
    case Cell::Kind::kChoices:
      if (cell.write) {
        Written written = cell.write(c);
        if (written.status != Status::kOwn) return written;
      }
      return WriteChoice(cell, value);
    case Cell::Kind::kFollows:
      return {Status::kFollows, {}, cell.why};
    case Cell::Kind::kOwn:
      break;
    case Cell::Kind::kRule:
      return cell.write(c);
  }
  return {Status::kOwn, {}, "a buffer of Orrery's own runtime"};
}

std::string HowText(const Written& written) {
  std::vector<std::string> parts;
  for (const Setting& setting : written.settings)
    parts.push_back(setting.value.empty() ? setting.key
                                          : fmt::format("{} {}", setting.key, setting.value));
  const std::string text = fmt::format("{}", fmt::join(parts, ", "));
  if (written.why.empty()) return text;
  return text.empty() ? written.why : fmt::format("{}: {}", text, written.why);
}

}  // namespace

int64_t Case::micro_batches() const {
  const int64_t sequences = strategy.data_parallel() * strategy.micro_batch;
  return sequences > 0 && work.global_batch % sequences == 0 ? work.global_batch / sequences : 0;
}

const char* NameOf(Status status) {
  switch (status) {
    case Status::kWritten:
      return "written";
    case Status::kFollows:
      return "follows";
    case Status::kFixed:
      return "default";
    case Status::kNoEffect:
      return "no effect";
    case Status::kOwn:
      return "own";
    case Status::kNear:
      return "near";
    case Status::kNotExpressed:
      return "not expressed";
  }
  return "?";
}

Cell Key(std::string key, std::string neutral) {
  Cell cell;
  cell.kind = Cell::Kind::kKey;
  cell.key = std::move(key);
  cell.neutral = std::move(neutral);
  return cell;
}
Cell Choices(std::vector<Choice> choices, std::string why) {
  Cell cell;
  cell.kind = Cell::Kind::kChoices;
  cell.choices = std::move(choices);
  cell.why = std::move(why);
  return cell;
}
Cell Fixed(std::string value, std::string why) {
  return Choices({{std::move(value), {}}}, std::move(why));
}
Cell Follows(std::string from) {
  Cell cell;
  cell.kind = Cell::Kind::kFollows;
  cell.why = std::move(from);
  return cell;
}
Cell Own() { return {}; }
Cell Rule(WriteRule write, ReadRule read) {
  Cell cell;
  cell.kind = Cell::Kind::kRule;
  cell.write = std::move(write);
  cell.read = std::move(read);
  return cell;
}

const Cell* Field::Of(Target target) const {
  const auto at =
      std::ranges::find_if(cells, [&](const auto& cell) { return (cell.first & target) != 0; });
  return at == cells.end() ? nullptr : &at->second;
}

std::span<const Field> Fields() {
  static const std::vector<Field> all = [] {
    std::vector<Field> fields = LayoutFields();
    for (const auto& part : {ComputeFields(), WorkFields(), FactFields()})
      fields.insert(fields.end(), part.begin(), part.end());
    return fields;
  }();
  return all;
}

Export ToSettings(const Case& c, Target target) {
  Export out;
  for (const Field& field : Fields()) {
    const std::string value = field.text(c);
    const Cell* cell = field.Of(target);
    ORRERY_CHECK(cell != nullptr, "{} has no cell for {}", field.name, InfoOf(target).name);
    Written written = value.empty() && cell->kind != Cell::Kind::kOwn
                          ? Written{Status::kNoEffect, {}, "means nothing in this layout"}
                          : WriteCell(*cell, c, value);
    out.fields.push_back({field.name, value, written.status, HowText(written)});
    for (Setting& setting : written.settings) {
      const auto known = std::ranges::find(out.settings, setting.key, &Setting::key);
      if (known == out.settings.end()) out.settings.push_back(std::move(setting));
    }
  }
  return out;
}

Values FromSettings(const SettingIndex& settings, Target target, const Values& given,
                    Values* known) {
  Values values, all;
  std::vector<Diagnostic> wrong;
  for (const auto& [field, flag] : given) {  // rows in front of a flag's follow from it, too
    if (!flag.key.empty()) all.emplace(field, flag);
  }
  for (const Field& field : Fields()) {
    const Cell* cell = field.Of(target);
    ORRERY_CHECK(cell != nullptr, "{} has no cell for {}", field.name, InfoOf(target).name);
    const auto flag = given.find(field.name);
    try {
      if (auto value = ReadCell(field, *cell, settings, all)) {
        CheckCount(field, *value);
        all.insert_or_assign(field.name, *value);
        values.emplace(field.name, std::move(*value));
      }
    } catch (const InputError& error) {
      for (const Diagnostic& one : error.diagnostics()) {  // two fields may follow from one setting
        if (flag == given.end() &&
            std::ranges::find(wrong, one.message, &Diagnostic::message) == wrong.end())
          wrong.push_back(one);
      }
    }
    if (flag == given.end()) continue;
    // What no flag says but the cluster (it has no name of a flag) goes behind what the files say.
    if (flag->second.key.empty())
      all.emplace(field.name, flag->second);
    else
      all.insert_or_assign(field.name, flag->second);
  }
  if (!wrong.empty()) throw InputError(std::move(wrong));
  if (known != nullptr) *known = std::move(all);
  return values;
}

std::vector<PipelineSchedule> SchedulesOf(Target target) {
  const auto row = std::ranges::find(Fields(), std::string_view("schedule"), &Field::name);
  std::vector<PipelineSchedule> schedules;
  for (const auto& [name, schedule] : kScheduleNames) {
    Case c;
    c.strategy.pp = 2;
    c.strategy.schedule = schedule;
    if (!Differs(WriteCell(*row->Of(target), c, name).status)) schedules.push_back(schedule);
  }
  return schedules;
}

std::vector<int> LayersByChunk(const Case& c) {
  std::vector<int> layers;
  for (const LayerRange& range : BalanceLayers(c.model.layers, c.strategy))
    layers.push_back(static_cast<int>(range.count));
  return layers;
}

std::string LayoutText(const Case& c) {
  if (c.strategy.pp == 1) return "";
  const std::vector<int> layers = LayersByChunk(c);
  if (std::ranges::all_of(layers, [&](int count) { return count == layers.front(); }))
    return "even";
  std::string text;
  for (std::size_t i = 0; i < layers.size();) {
    std::size_t end = i;
    while (end < layers.size() && layers[end] == layers[i]) ++end;
    text += text.empty() ? "" : ",";
    text += end - i == 1 ? std::to_string(layers[i]) : fmt::format("{}x{}", end - i, layers[i]);
    i = end;
  }
  return text;
}

}  // namespace orrery::exchange
