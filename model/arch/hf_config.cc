// SPDX-License-Identifier: Apache-2.0
// Reads HuggingFace config.json files by the rules of their family.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <sstream>
#include <utility>

#include "model/arch/enum_names.h"
#include "model/arch/hf_family.h"
#include "model/arch/readers.h"

namespace orrery {
namespace {

// Keys of the description that move parameters, or what attention sees.
constexpr const char* kMoving[] = {"layers",        "decoder_layers",
                                   "hidden",        "ffn",
                                   "heads",         "kv_heads",
                                   "head_dim",      "vocab",
                                   "positions",     "max_positions",
                                   "gated",         "qkv_bias",
                                   "out_bias",      "linear_bias",
                                   "head_bias",     "parallel",
                                   "shared_norm",   "post_norm",
                                   "token_types",   "tied_embeddings",
                                   "windowed",      "window",
                                   "full_every",    "first_windowed",
                                   "rope_base",     "rope_base_of_windows",
                                   "rotary_share",  "rotary_width",
                                   "attention_cap", "logit_cap"};

// What a map of rotary positions says, for all layers or for a kind of attention.
bool InRopeMap(const HfFamily& family, const Node& config, const char* attention,
               const std::string& key) {
  const Place place = family.Find(config, "rope_scaling");
  const auto map = place.node.Find(place.key);
  if (!map || !map->IsMap()) return false;
  const auto of_kind = map->Find(attention);
  return map->Has(key) || (of_kind && of_kind->IsMap() && of_kind->Has(key));
}

// Whether the model has what the key is about, and no other key says it.
bool Concerns(const HfFamily& family, const Node& config, const ModelSpec& spec,
              const std::string& key) {
  if (key == "rope_base") return !InRopeMap(family, config, "full_attention", "rope_theta");
  if (key == "rotary_share")
    return !InRopeMap(family, config, "full_attention", "partial_rotary_factor");
  if (key == "rope_base_of_windows" && InRopeMap(family, config, "sliding_attention", "rope_theta"))
    return false;
  const bool of_windows = key == "window" || key == "full_every" || key == "first_windowed" ||
                          key == "rope_base_of_windows";
  return !of_windows || !spec.windows.empty();
}

// Of keys that the class has no value for: what follows from others without a convention that everybody knows.
std::string Followed(const ModelSpec& spec, const std::string& key) {
  if (key == "kv_heads") return fmt::format("{}", spec.kv_heads);
  if (key == "rope_base" && spec.positions == Positions::kRotary)
    return fmt::format("{}", spec.rope_base);
  return "";
}

// What the file leaves to the defaults of the HuggingFace class.
void NoteDefaults(const HfFamily& family, const Node& config, const ModelSpec& spec,
                  std::vector<std::string>* notes) {
  std::string text;
  std::set<std::string> told;
  for (const char* key : kMoving) {
    if (!Concerns(family, config, spec, key)) continue;
    for (const auto& [name, value] : family.Assumed(config, key)) {
      const std::string taken = value.empty() ? Followed(spec, key) : value;
      if (taken.empty() || taken == "null" || !told.insert(name).second) continue;
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, taken);
    }
  }
  if (text.empty()) return;
  notes->push_back(fmt::format("not in the file, so the defaults of {} in transformers: {}",
                               family.Text("class"), text));
}

// Rates by what they drop: the first that the file has, else that the class has; those of T5 are one.
constexpr const char* kHiddenDropouts[] = {"resid_pdrop",    "resid_dropout", "residual_dropout",
                                           "hidden_dropout", "dropout",       "hidden_dropout_prob",
                                           "dropout_rate"};
constexpr const char* kAttentionDropouts[] = {"attention_dropout", "attn_pdrop", "attn_dropout",
                                              "attention_probs_dropout_prob", "dropout_rate"};
constexpr const char* kEmbeddingDropouts[] = {"embd_pdrop", "embedding_dropout"};

struct RateOfFile {
  const char* key;
  double rate;
};

template <std::size_t N>
std::optional<RateOfFile> FirstRate(const HfFamily& family, const Node& config,
                                    const char* const (&keys)[N]) {
  for (const bool of_file : {true, false}) {
    for (const char* key : keys) {
      if (of_file && !config.Has(key)) continue;
      if (const auto place = family.Value(config, key))
        return RateOfFile{key, place->node.Number(place->key, 0, 0.99)};
    }
  }
  return std::nullopt;
}

// What the class of transformers drops, where it says anything. Sublayers and embeddings have one rate in plans.
void ReadDropout(const HfFamily& family, const Node& config, LoadedModel* model) {
  const auto hidden = FirstRate(family, config, kHiddenDropouts);
  const auto attention = FirstRate(family, config, kAttentionDropouts);
  if (!hidden && !attention) return;
  TrainingDefaults& defaults = model->defaults;
  defaults.dropout = hidden ? hidden->rate : 0;
  const double of_attention = attention ? attention->rate : 0;
  if (of_attention != *defaults.dropout) defaults.attention_dropout = of_attention;
  const auto embedding = FirstRate(family, config, kEmbeddingDropouts);
  if (hidden && embedding && embedding->rate != hidden->rate)
    model->notes.push_back(
        fmt::format("{} {:g} is planned as {} {:g}: embeddings and sublayers have one rate",
                    embedding->key, embedding->rate, hidden->key, hidden->rate));
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

// What a file says of itself: where it was loaded from, else its class.
std::string OwnName(const Node& file) {
  if (const auto from = file.Find("_name_or_path"); from && from->IsScalar()) {
    const std::string name = (std::filesystem::path(from->AsString()) / "")
                                 .lexically_normal()
                                 .parent_path()
                                 .filename()
                                 .string();
    if (!name.empty() && name != "." && name != "..") return name;
  }
  if (const auto classes = file.Find("architectures"); classes && classes->IsSequence()) {
    for (const Node& name : classes->Elements())
      if (name.IsScalar()) return name.AsString();
  }
  return "config.json";
}

// The key and the value of a family's file where a diagnostic points: "rotary_dim", "64".
std::pair<std::string, std::string> EntryAt(const Location& where) {
  std::istringstream lines(where.source->text);
  std::string line;
  for (int i = 0; i < where.line; ++i) std::getline(lines, line);
  const auto at = std::min<std::size_t>(std::max(where.column - 1, 0), line.size());
  const std::string before = line.substr(0, at);
  const auto colon = before.rfind(':');
  const auto start = before.find_last_of(" {,", colon);
  if (colon == std::string::npos) return {};
  const auto first = start == std::string::npos ? 0 : start + 1;
  const auto end = line.find_first_of(",}", at);
  return {before.substr(first, colon - first), line.substr(at, end - at)};
}

// What is wrong with a value that the family's file has for the user's: said at the user's file, which has no place for it.
std::vector<Diagnostic> AtTheConfig(std::vector<Diagnostic> found, const SourcePtr& source,
                                    const Location& place, const std::string& of_class) {
  for (Diagnostic& one : found) {
    if (!one.where.source || one.where.source == source) continue;
    if (const auto [key, value] = EntryAt(one.where); !key.empty() && key != "is") {
      one.message += fmt::format(" ({} {}, which {} of transformers takes: the file does not say)",
                                 key, value, of_class);
      if (one.hint.empty()) one.hint = fmt::format("give {} in the file", key);
    }
    one.where = place;
  }
  return found;
}

void ReadDescription(const Node& file, const HfFamily& family, Diagnostics* diagnostics,
                     LoadedModel* model) {
  const std::string inside = family.Text("inside");
  const Node config = inside.empty() ? file : file.Child(inside);
  diagnostics->ThrowIfAny();
  model->without_effect = family.Account(config, false);
  if (!inside.empty()) model->without_effect.merge(family.Account(file, true));
  const Fields fields([&](const std::string& key) { return family.Find(config, key); });
  model->spec.family = fields.Choice<Family>("family", kFamilyNames, Family::kDecoder);
  if (fields.Has("longest")) model->defaults.seq_len = fields.Integer("longest", 1, kMaxPositions);
  ReadTransformer(fields, *diagnostics, &model->spec);
  diagnostics->ThrowIfAny();
  RequireActivation(family, config);
  diagnostics->ThrowIfAny();
  NoteDefaults(family, config, model->spec, &model->notes);
  NoteHead(file, &model->notes);
  ReadDropout(family, config, model);
  diagnostics->ThrowIfAny();
}

}  // namespace

LoadedModel ReadHfConfig(SourcePtr source, const std::string& name) {
  Diagnostics diagnostics;
  const Node file = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  LoadedModel model;
  model.origin = source->name;
  model.spec.name = name.empty() ? OwnName(file) : name;
  const auto family = FindHfFamily(file, &model.notes);
  diagnostics.ThrowIfAny();
  model.hf_family = family->name();
  model.hf_config = source;
  for (const std::string& note : family->Notes()) model.notes.push_back(note);
  try {
    ReadDescription(file, *family, &diagnostics, &model);
  } catch (const InputError& error) {
    const Location place = file.Has("model_type") ? file.where("model_type") : file.where();
    throw InputError(AtTheConfig(error.diagnostics(), source, place, family->Text("class")));
  }
  return model;
}

}  // namespace orrery
