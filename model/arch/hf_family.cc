// SPDX-License-Identifier: Apache-2.0
// Applies a family's rules to a config.json, and tells the family of one that does not name it.
#include "model/arch/hf_family.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "model/arch/data_root.h"

namespace orrery {
namespace {

namespace fs = std::filesystem;

constexpr const char* kCommon = "_common";
constexpr int kMostFiles = 6;  // of a chain of `extends`

fs::path Folder() { return CatalogueFolder("scenarios/families"); }

Node ParseFile(const std::string& name, Diagnostics* diagnostics) {
  return Node::Parse(ReadSource((Folder() / (name + ".yaml")).string(), std::size_t{1} << 20),
                     diagnostics);
}

// One name or a list of names under `key`.
std::vector<std::string> NamesUnder(const Node& node, const std::string& key) {
  const auto value = node.Find(key);
  if (!value) return {};
  if (!value->IsSequence()) return {value->AsString()};
  std::vector<std::string> names;
  for (const Node& element : value->Elements()) names.push_back(element.AsString());
  return names;
}

// The alternatives of a rule: a list of maps, or one map.
std::vector<Node> Alternatives(const Node& rule) {
  if (rule.IsSequence()) return rule.Elements();
  return {rule};
}

// A key that is there may be null: that is a value of its own, not a missing key.
bool Holds(const Node& map, const std::string& key) {
  const std::vector<std::string> keys = map.Keys();
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

std::optional<Place> NonNull(const Node& map, const std::string& key) {
  return map.Has(key) ? std::optional(Place{map, key}) : std::nullopt;
}

// 1e6 is 1000000.
bool SameText(const std::string& a, const std::string& b) {
  const auto number = [](const std::string& text) -> std::optional<double> {
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  };
  const auto first = number(a), second = number(b);
  return first && second ? *first == *second : a == b;
}

// "did you mean 'x'? " for a key that is spelled nearly as one that means something.
std::string Meant(const std::string& key, const std::set<std::string>& used,
                  const std::map<std::string, std::string>& reasons) {
  std::vector<std::string> known(used.begin(), used.end());
  for (const auto& [name, reason] : reasons) known.push_back(name);
  const std::vector<std::string> near = NearestNames(key, known);
  return near.empty() ? "" : fmt::format("did you mean '{}'? ", near.front());
}

std::string Families() { return fmt::format("{}", fmt::join(HfFamilyNames(), ", ")); }

}  // namespace

std::vector<std::string> HfFamilyNames() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(Folder())) {
    const std::string name = entry.path().stem().string();
    if (entry.path().extension() == ".yaml" && name.front() != '_') names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

HfFamily HfFamily::Load(const std::string& name, Diagnostics* diagnostics) {
  HfFamily family;
  family.name_ = name;
  for (std::string next = name; !next.empty() && family.files_.size() < kMostFiles;) {
    family.files_.push_back(ParseFile(next, diagnostics));
    next = family.files_.back().String("extends", "");
  }
  family.files_.push_back(ParseFile(kCommon, diagnostics));
  return family;
}

std::string HfFamily::Text(const std::string& key) const { return files_.front().String(key, ""); }

std::vector<std::string> HfFamily::Notes() const { return NamesUnder(files_.front(), "notes"); }

// The value that the HuggingFace class would see under one of its keys; nullopt: none.
std::optional<Place> HfFamily::Value(const Node& config, const std::string& name) const {
  if (Holds(config, name)) return NonNull(config, name);
  for (const Node& file : files_) {
    const auto defaults = file.Find("defaults");
    if (defaults && Holds(*defaults, name)) return NonNull(*defaults, name);
  }
  return std::nullopt;
}

// By what the class takes for it.
bool HfFamily::IsFlag(const std::string& name) const {
  return std::ranges::any_of(files_, [&](const Node& file) {
    const auto defaults = file.Find("defaults");
    if (!defaults || !defaults->Has(name)) return false;
    const auto value = defaults->Find(name);
    const std::string text = value && value->IsScalar() ? defaults->String(name) : "";
    return text == "true" || text == "false";
  });
}

std::string HfFamily::ValueText(const Node& config, const std::string& name) const {
  const auto value = Value(config, name);
  if (!value) return "null";
  const auto inside = value->node.Find(value->key);
  if (!inside || inside->IsScalar()) return value->node.String(value->key);
  if (inside->IsMap()) return inside->Keys().empty() ? "{}" : "{...}";
  return inside->Elements().empty() ? "[]" : "[...]";
}

bool HfFamily::Applies(const Node& config, const Node& when) const {
  const std::vector<std::string> keys = when.Keys();
  return std::all_of(keys.begin(), keys.end(), [&](const std::string& key) {
    return ValueText(config, key) == when.String(key);
  });
}

Place HfFamily::Mapped(const Node& rule, const Place& value) const {
  const auto values = rule.Find("values");
  if (!values) return {value.node, value.key, rule.Integer("plus", -1000, 1000, 0)};
  const std::string text = value.node.String(value.key);
  if (values->Has(text)) return {*values, text};
  value.node.ErrorAt(value.key,
                     fmt::format("{} '{}' cannot be planned for {}", value.key, text, name_),
                     fmt::format("one of: {}", fmt::join(values->Keys(), ", ")));
  return {*values, values->Keys().empty() ? text : values->Keys().front()};
}

std::optional<Node> HfFamily::Applying(const Node& config, const Node& rule) const {
  for (const Node& alternative : Alternatives(rule)) {
    const auto when = alternative.Find("when");
    if (!when || Applies(config, *when)) return alternative;
  }
  return std::nullopt;
}

std::map<std::string, Node> HfFamily::Rules() const {
  std::map<std::string, Node> all;
  for (const Node& file : files_) {
    const auto rules = file.Find("model");
    for (const std::string& key : rules ? rules->Keys() : std::vector<std::string>{}) {
      if (const auto rule = rules->Find(key)) all.emplace(key, *rule);
    }
  }
  return all;
}

Place HfFamily::FromRule(const Node& config, const Node& rule) const {
  if (const auto applying = Applying(config, rule)) {
    const Node& alternative = *applying;
    if (alternative.Has("is")) return {alternative, "is"};
    std::vector<std::string> names = NamesUnder(alternative, "key");
    for (const std::string& other : NamesUnder(alternative, "else")) names.push_back(other);
    for (const std::string& name : names) {  // any name of the file before a default of the class
      if (config.Has(name)) return Mapped(alternative, {config, name});
    }
    for (const std::string& name : names) {
      if (const auto value = Value(config, name)) return Mapped(alternative, *value);
      if (Holds(config, name) && IsFlag(name))
        return Mapped(alternative, {files_.back(), "null_flag"});
    }
    return {config, names.empty() ? "" : names.front()};
  }
  return {config, ""};
}

Place HfFamily::Find(const Node& config, const std::string& key) const {
  for (const Node& file : files_) {
    const auto rules = file.Find("model");
    const auto rule = rules ? rules->Find(key) : std::nullopt;
    if (!rule) continue;
    return rule->IsScalar() ? Place{*rules, key} : FromRule(config, *rule);
  }
  return {config, ""};
}

std::set<std::string> HfFamily::UsedKeys() const {
  std::set<std::string> described, used;
  for (const Node& file : files_) {
    if (const auto only = file.Find("only")) {
      for (const std::string& key : only->Keys()) used.insert(key);
    }
    const auto rules = file.Find("model");
    for (const std::string& key : rules ? rules->Keys() : std::vector<std::string>{}) {
      const auto rule = rules->Find(key);
      if (!described.insert(key).second || !rule || rule->IsScalar()) continue;
      for (const Node& alternative : Alternatives(*rule)) {
        for (const char* names : {"key", "else"})
          for (const std::string& name : NamesUnder(alternative, names)) used.insert(name);
        if (const auto when = alternative.Find("when")) {
          for (const std::string& name : when->Keys()) used.insert(name);
        }
      }
    }
  }
  return used;
}

// Keys that may have one value alone.
void HfFamily::CheckOnly(const Node& config) const {
  std::set<std::string> checked;
  for (const Node& file : files_) {
    const auto only = file.Find("only");
    for (const std::string& key : only ? only->Keys() : std::vector<std::string>{}) {
      if (!checked.insert(key).second || !config.Has(key)) continue;
      const std::vector<std::string> allowed = NamesUnder(*only, key);
      const std::string text = ValueText(config, key);
      if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) continue;
      config.ErrorAt(key, fmt::format("{} '{}' cannot be planned for {}", key, text, name_),
                     fmt::format("only: {}", fmt::join(allowed, ", ")));
    }
  }
}

// Whether two values mean the same: equal scalars, numbers by their value; maps whose common keys do.
bool HfFamily::Same(const Place& a, const Place& b) {
  auto first = a.node.Find(a.key), second = b.node.Find(b.key);
  if (!first || !second) return !first == !second;
  if (first->IsScalar() != second->IsScalar()) return false;
  if (first->IsScalar()) return SameText(a.node.String(a.key), b.node.String(b.key));
  if (!first->IsMap() || !second->IsMap()) return first->IsMap() == second->IsMap();
  // Rotary positions, one map for all layers or one for each kind of attention: those of full attention.
  for (auto* map : {&first, &second})
    if (auto full = (*map)->Find("full_attention")) *map = full;
  for (const std::string& key : first->Keys()) {
    const std::string other = key == "type" && !second->Has("type") ? "rope_type" : key;
    if (first->Has(key) && second->Has(other) && !Same({*first, key}, {*second, other}))
      return false;
  }
  return true;
}

// Several names of one thing say the same. What transformers makes of others depends on its version.
void HfFamily::CheckNames(const Node& config) const {
  std::set<std::pair<std::string, std::string>> told;
  for (const auto& [key, rule] : Rules()) {
    if (rule.IsScalar()) continue;
    const auto applying = Applying(config, rule);
    if (!applying) continue;
    std::string first;
    for (const std::string& name : NamesUnder(*applying, "key")) {
      if (!config.Has(name)) continue;
      if (first.empty()) first = name;
      const auto values = applying->Find("values");
      const Place one{config, first}, other{config, name};
      const bool mapped =
          values && values->Has(ValueText(config, first)) && values->Has(ValueText(config, name));
      const bool same =
          mapped ? Same({*values, ValueText(config, first)}, {*values, ValueText(config, name)})
                 : Same(one, other);
      if (same || !told.emplace(first, name).second) continue;
      config.ErrorAt(name,
                     fmt::format("{} {} contradicts {} {} in line {}: both name the same", name,
                                 ValueText(config, name), first, ValueText(config, first),
                                 config.where(first).line),
                     "keep the one that is meant");
    }
  }
}

std::vector<std::pair<std::string, std::string>> HfFamily::Assumed(const Node& config,
                                                                   const std::string& key) const {
  std::vector<std::pair<std::string, std::string>> assumed;
  const auto rules = Rules();
  const auto rule = rules.find(key);
  if (rule == rules.end() || rule->second.IsScalar()) return assumed;
  for (const Node& alternative : Alternatives(rule->second)) {
    const auto when = alternative.Find("when");
    for (const std::string& name : when ? when->Keys() : std::vector<std::string>{}) {
      if (!Holds(config, name) && Value(config, name))
        assumed.emplace_back(name, ValueText(config, name));
    }
    if (when && !Applies(config, *when)) continue;
    if (alternative.Has("is")) return assumed;
    std::vector<std::string> names = NamesUnder(alternative, "key");
    for (const std::string& other : NamesUnder(alternative, "else")) names.push_back(other);
    const auto there = [&](const std::string& name) { return config.Has(name); };
    if (std::ranges::any_of(names, there)) return assumed;
    const auto by_class = std::ranges::find_if(
        names, [&](const std::string& name) { return Value(config, name).has_value(); });
    if (by_class != names.end())
      assumed.emplace_back(*by_class, ValueText(config, *by_class));
    else if (!names.empty())
      assumed.emplace_back(names.front(), "");
    return assumed;
  }
  return assumed;
}

// A mixture of one expert, or of none.
bool HfFamily::IsDense(const Node& config, const std::string& key) const {
  return std::ranges::any_of(files_, [&](const Node& file) {
    const auto dense = file.Find("dense");
    if (!dense || !dense->Has(key)) return false;
    const std::vector<std::string> values = NamesUnder(*dense, key);
    return std::ranges::find(values, ValueText(config, key)) != values.end();
  });
}

std::map<std::string, std::string> HfFamily::Account(const Node& config, bool outer) const {
  const std::set<std::string> used = UsedKeys();
  std::map<std::string, std::string> reasons, excused;
  std::map<std::string, std::string> refused, hints;
  for (const Node& file : files_) {
    if (const auto list = file.Find("no_effect")) {
      for (const std::string& reason : list->Keys())
        for (const std::string& key : NamesUnder(*list, reason)) reasons.emplace(key, reason);
    }
    if (const auto list = file.Find("refused")) {
      for (const std::string& key : list->Keys()) refused.emplace(key, list->String(key));
    }
    if (const auto list = file.Find("hints")) {
      for (const std::string& key : list->Keys()) hints.emplace(key, list->String(key));
    }
  }
  for (const std::string& key : config.Keys()) {
    if ((!outer && used.contains(key)) || (outer && key == Text("inside"))) continue;
    if (const auto reason = reasons.find(key); reason != reasons.end()) {
      excused.emplace(*reason);
    } else if (!config.Has(key)) {
      excused.emplace(key, "null");
    } else if (IsDense(config, key)) {
      excused.emplace(key, fmt::format("{} leaves the model dense", ValueText(config, key)));
    } else if (const auto what = refused.find(key); what != refused.end()) {
      config.ErrorAt(
          key, fmt::format("'{}': this is {}, which cannot be planned yet", key, what->second),
          hints.contains(key) ? hints.at(key) : "supported families: " + Families());
    } else {
      const std::string near = Meant(key, used, reasons);
      config.ErrorAt(key,
                     fmt::format("'{}' is no key of {} that is known here; it may change the model",
                                 key, name_),
                     near + "remove it if it does not change the model's layers");
    }
  }
  if (!outer) CheckOnly(config), CheckNames(config);
  return excused;
}

namespace {

// LlamaForCausalLM, BertModel, GPT2LMHeadModel; not MistralGPT2LMHeadModel as a Mistral.
bool IsClassOf(std::string_view name, std::string_view prefix) {
  if (prefix.empty() || !name.starts_with(prefix)) return false;
  const std::string_view rest = name.substr(prefix.size());
  return rest.empty() || rest.starts_with("For") || rest.starts_with("Model") ||
         rest.starts_with("LMHead") || rest.starts_with("DoubleHeads");
}

std::optional<HfFamily> FindByClass(const Node& config, std::vector<std::string>* notes) {
  if (!config.Has("architectures")) return std::nullopt;
  for (const Node& element : config.Items("architectures")) {
    const std::string name = element.AsString();
    for (const std::string& type : HfFamilyNames()) {
      HfFamily family = HfFamily::Load(type, config.diagnostics());
      if (!IsClassOf(name, family.Text("class"))) continue;
      notes->push_back(fmt::format(
          "the file has no model_type: taken as {} because its architecture is {}", type, name));
      return family;
    }
  }
  return std::nullopt;
}

// transformers loads by model_type, whatever class the file names beside it.
void NoteOtherClass(const Node& config, const HfFamily& family, std::vector<std::string>* notes) {
  if (!config.Has("architectures")) return;
  for (const Node& element : config.Items("architectures")) {
    const std::string name = element.AsString();
    if (IsClassOf(name, family.Text("class"))) return;
    for (const std::string& type : HfFamilyNames()) {
      const HfFamily other = HfFamily::Load(type, config.diagnostics());
      if (other.Text("class") == family.Text("class") || !IsClassOf(name, other.Text("class")))
        continue;
      notes->push_back(fmt::format(
          "model_type {} counts; the architecture that the file names, {}, is one of {}",
          family.name(), name, type));
      return;
    }
  }
}

// What one of the keys says of a family that is not known: that no other family's rules would do either.
std::string OtherKind(const Node& config) {
  const auto refused = ParseFile(kCommon, config.diagnostics()).Find("refused");
  for (const std::string& key : refused ? refused->Keys() : std::vector<std::string>{}) {
    if (config.Has(key))
      return fmt::format(": {}, by '{}', which cannot be planned yet", refused->String(key), key);
  }
  return "";
}

// The first row of the common file whose keys are all there.
std::optional<HfFamily> FindByKeys(const Node& config, std::vector<std::string>* notes) {
  const Node common = ParseFile(kCommon, config.diagnostics());
  for (const Node& row : common.Items("told_by")) {
    const std::vector<std::string> keys = NamesUnder(row, "keys");
    const bool fits = std::all_of(keys.begin(), keys.end(),
                                  [&](const std::string& key) { return config.Has(key); });
    if (!fits) continue;
    const std::string type = row.String("family");
    notes->push_back(fmt::format("the file has no model_type: taken as {} because it has {}", type,
                                 fmt::join(keys, " and ")));
    return HfFamily::Load(type, config.diagnostics());
  }
  return std::nullopt;
}

}  // namespace

std::optional<HfFamily> FindHfFamily(const Node& config, std::vector<std::string>* notes) {
  const Diagnostics& diagnostics = *config.diagnostics();
  if (config.Has("model_type")) {
    const std::string type = config.String("model_type");
    const std::vector<std::string> known = HfFamilyNames();
    if (std::find(known.begin(), known.end(), type) != known.end()) {
      HfFamily family = HfFamily::Load(type, config.diagnostics());
      NoteOtherClass(config, family, notes);
      return family;
    }
    if (diagnostics.ok()) {
      config.ErrorAt("model_type",
                     fmt::format("unknown model family '{}'{}", type, OtherKind(config)),
                     "supported families: " + Families());
    }
    return std::nullopt;
  }
  auto family = FindByClass(config, notes);
  if (!family && diagnostics.ok()) family = FindByKeys(config, notes);
  if (!family && diagnostics.ok() && config.Has("peft_type")) {
    config.ErrorAt("peft_type", "adapters of PEFT, not a model",
                   "--from this file, and --model the model that they adapt "
                   "(base_model_name_or_path)");
  } else if (!family && diagnostics.ok()) {
    config.Error("no model_type, and the keys do not tell the model's family",
                 "add \"model_type\", one of: " + Families());
  }
  return family;
}

}  // namespace orrery
