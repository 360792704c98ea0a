// SPDX-License-Identifier: Apache-2.0
// Reads this project's model files.
#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "model/arch/description.h"
#include "model/arch/enum_names.h"
#include "model/arch/workload.h"

namespace orrery {
namespace {

constexpr NameRow<const char*> kPrecisionWords[] = {
    {"fp32", "fp32"}, {"tf32", "tf32"}, {"fp16", "fp16"}, {"bf16", "bf16"}};
constexpr NameRow<const char*> kOptimizers[] = {{"sgd", "sgd"},           {"adam", "adam"},
                                                {"adamw", "adamw"},       {"lamb", "lamb"},
                                                {"adam8bit", "adam8bit"}, {"muon", "muon"}};

void ReadMlp(const Node& node, ModelSpec* spec) {
  spec->layers = node.Integer("layers", 1, kMaxLayers);
  spec->in_features = node.Integer("in_features", 1, kMaxWidth);
  spec->out_features = node.Integer("out_features", 1, kMaxWidth);
  if (spec->layers > 1) spec->hidden = node.Integer("hidden", 1, kMaxWidth);
  spec->activation = node.Choice<Activation>("activation", kActivationNames, Activation::kRelu);
  if (spec->activation != Activation::kRelu && spec->activation != Activation::kGelu) {
    node.ErrorAt("activation", "a plain MLP has no gated activation", "use gelu or relu");
  }
  spec->linear_bias = node.Bool("linear_bias", true);
  spec->positions = Positions::kNone;
  spec->tied_embeddings = spec->qkv_bias = false;
}

void ReadMasked(const Node& node, TrainingDefaults* defaults) {
  if (node.Has("masked_positions")) {
    defaults->masked_positions = node.Integer("masked_positions", 1, kMaxPositions);
  }
  const auto lengths = node.Find("masked_positions_at");
  if (!lengths) return;
  for (const std::string& key : lengths->Keys()) {
    int64_t length = 0;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), length);
    if (error != std::errc() || end != key.data() + key.size() || length < 1) {
      lengths->ErrorAt(key, fmt::format("'{}' is not a sequence length", key));
      continue;
    }
    defaults->masked_positions_at.emplace_back(length, lengths->Integer(key, 1, kMaxPositions));
  }
}

TrainingDefaults ReadDefaults(const Node& node, const ModelSpec& spec) {
  TrainingDefaults defaults;
  defaults.source = node.String("source");
  if (node.Has("seq_len")) defaults.seq_len = node.Integer("seq_len", 1, kMaxPositions);
  if (node.Has("global_batch")) {
    defaults.global_batch = node.Integer("global_batch", 1, int64_t{1} << 32);
  }
  if (node.Has("precision"))
    defaults.precision = node.Choice<const char*>("precision", kPrecisionWords);
  if (node.Has("fp8")) defaults.fp8 = NameIn(kFp8Names, node.Choice<Fp8>("fp8", kFp8Names));
  if (node.Has("optimizer"))
    defaults.optimizer = node.Choice<const char*>("optimizer", kOptimizers);
  defaults.topology = node.String("topology", "");
  if (spec.family == Family::kEncoder) ReadMasked(node, &defaults);
  node.RejectUnknownKeys();
  return defaults;
}

// "1557611200" or "1.5B"; false when the text is neither.
bool ParseCount(PublishedParameters* published) {
  const std::string& text = published->text;
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), published->value);
  if (error != std::errc() || !(published->value > 0) || published->value > 1e18) return false;
  const std::string suffix(end, text.data() + text.size());
  if (suffix.empty()) return published->value == std::floor(published->value);
  const double unit = suffix == "M" ? 1e6 : suffix == "B" ? 1e9 : suffix == "T" ? 1e12 : 0;
  if (unit == 0) return false;
  const auto number = text.substr(0, text.size() - suffix.size());
  const auto point = number.find('.');
  const auto decimals = point == std::string::npos ? 0 : number.size() - point - 1;
  published->value *= unit;
  published->tolerance = 0.5 * unit * std::pow(10.0, -static_cast<double>(decimals));
  return true;
}

PublishedParameters ReadPublished(const Node& node) {
  constexpr NameRow<bool> kParts[] = {{"total", false}, {"backbone", true}};
  PublishedParameters published;
  published.text = node.String("published");
  published.source = node.String("source");
  published.backbone = node.Choice<bool>("counts", kParts, false);
  if (node.diagnostics()->ok() && !ParseCount(&published)) {
    node.ErrorAt("published", fmt::format("'{}' is not a parameter count", published.text),
                 "write 124439808 or 1.5B");
  }
  node.RejectUnknownKeys();
  return published;
}

}  // namespace

LoadedModel ReadModelYaml(SourcePtr source) {
  Diagnostics diagnostics;
  const Node node = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  LoadedModel model;
  model.origin = source->name;
  ModelSpec& spec = model.spec;
  spec.family = node.Choice<Family>("family", kFamilyNames);
  diagnostics.ThrowIfAny();  // the family decides which keys are due
  spec.name = node.String("name");
  node.String("description", "");
  if (spec.family == Family::kMlp) {
    ReadMlp(node, &spec);
  } else {
    const Fields fields([&](const std::string& key) { return Place{node, key}; });
    ReadTransformer(fields, diagnostics, &spec);
  }
  if (const auto child = node.Find("training")) model.defaults = ReadDefaults(*child, spec);
  if (const auto child = node.Find("parameters")) model.published = ReadPublished(*child);
  node.RejectUnknownKeys();
  diagnostics.ThrowIfAny();
  return model;
}

}  // namespace orrery
