// SPDX-License-Identifier: Apache-2.0
// Reads HuggingFace config.json files by the rules of their family.
#include <fmt/format.h>

#include "model/arch/enum_names.h"
#include "model/arch/hf_family.h"
#include "model/arch/readers.h"

namespace orrery {
namespace {

// Sizes that the file leaves to the defaults of the HuggingFace class.
void NoteDefaults(const HfFamily& family, const Node& config, std::vector<std::string>* notes) {
  std::string text;
  for (const char* size : {"layers", "hidden", "ffn", "heads", "vocab"}) {
    const Place place = family.Find(config, size);
    if (!place.node.Has(place.key) || place.node.where(place.key).source == config.where().source)
      continue;
    text +=
        fmt::format("{}{} {}", text.empty() ? "" : ", ", place.key, place.node.String(place.key));
  }
  if (text.empty()) return;
  notes->push_back(fmt::format("not in the file, so the defaults of {} in transformers: {}",
                               family.Text("class"), text));
}

constexpr const char* kDropouts[] = {
    "attention_dropout", "attn_pdrop",     "resid_pdrop",         "resid_dropout",
    "embd_pdrop",        "hidden_dropout", "hidden_dropout_prob", "attention_probs_dropout_prob",
    "dropout",           "dropout_rate",   "embedding_dropout",   "residual_dropout"};

// One rate for all places, as --dropout; nullopt: none, or rates that differ, which a note says.
std::optional<double> ReadDropout(const Node& config, std::vector<std::string>* notes) {
  std::optional<double> rate;
  std::string text;
  bool differ = false;
  for (const char* key : kDropouts) {
    if (!config.Has(key)) continue;
    const double value = config.Number(key, 0, 0.99);
    differ |= rate && *rate != value;
    rate = value;
    text += fmt::format("{}{} {:g}", text.empty() ? "" : ", ", key, value);
  }
  if (!differ) return rate;
  notes->push_back(fmt::format("{}: plans have one rate, --dropout", text));
  return std::nullopt;
}

// The class of transformers refuses a null here, too: no model is meant by it.
void RequireActivation(const HfFamily& family, const Node& config) {
  const Place place = family.Find(config, "activation");
  if (!place.key.empty()) (void)place.node.String(place.key);  // required
}

// What is trained is the language model: heads of other tasks are not.
void NoteHead(const Node& file, std::vector<std::string>* notes) {
  if (!file.Has("architectures")) return;
  for (const Node& element : file.Items("architectures")) {
    const std::string name = element.AsString();
    for (const char* task : {"ForSequenceClassification", "ForTokenClassification",
                             "ForQuestionAnswering", "ForMultipleChoice"}) {
      if (name.ends_with(task))
        notes->push_back(fmt::format(
            "{}: planned with the head of its language model, not with that of the task", name));
    }
  }
}

}  // namespace

LoadedModel ReadHfConfig(SourcePtr source, const std::string& name) {
  Diagnostics diagnostics;
  const Node file = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  LoadedModel model;
  model.origin = source->name;
  model.spec.name = name;
  const auto family = FindHfFamily(file, &model.notes);
  diagnostics.ThrowIfAny();
  model.hf_family = family->name();
  model.hf_config = source;
  for (const std::string& note : family->Notes()) model.notes.push_back(note);
  const std::string inside = family->Text("inside");
  const Node config = inside.empty() ? file : file.Child(inside);
  diagnostics.ThrowIfAny();
  model.without_effect = family->Account(config, false);
  if (!inside.empty()) model.without_effect.merge(family->Account(file, true));
  NoteDefaults(*family, config, &model.notes);
  NoteHead(file, &model.notes);
  model.defaults.dropout = ReadDropout(config, &model.notes);
  const Fields fields([&](const std::string& key) { return family->Find(config, key); });
  model.spec.family = fields.Choice<Family>("family", kFamilyNames, Family::kDecoder);
  if (fields.Has("longest")) model.defaults.seq_len = fields.Integer("longest", 1, kMaxPositions);
  ReadTransformer(fields, diagnostics, &model.spec);
  diagnostics.ThrowIfAny();
  RequireActivation(*family, config);
  diagnostics.ThrowIfAny();
  return model;
}

}  // namespace orrery
