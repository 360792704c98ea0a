// SPDX-License-Identifier: Apache-2.0
// Between ModelSpec and Megatron's arguments.
#include "model/exchange/model_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <iterator>

#include "model/arch/data_root.h"
#include "model/arch/enum_names.h"
#include "model/base/plain_text.h"
#include "model/exchange/bundle.h"
#include "model/exchange/rules.h"
#include "model/exchange/spellings.h"

namespace orrery::exchange {
namespace {

constexpr const char* kBuckets = "relative-attention-num-buckets";
constexpr int64_t kDefaultBuckets = 32;  // Megatron's

constexpr const char* kSeveralShapes = "layers of several shapes are not modelled";
constexpr const char* kExperts = "mixtures of experts are not modelled";
constexpr const char* kFrozen = "a part of the model that is not trained is not modelled";
constexpr const char* kImages = "models of images and text are not modelled";
constexpr const char* kTeacher = "training from another model's answers is not modelled";
constexpr const char* kNoTraining = "this job evaluates, and trains nothing";
// Arguments that change what is computed and that a plan does not know.
constexpr std::pair<const char*, const char*> kRefused[] = {
    {"num-experts", kExperts},
    {"multi-latent-attention", "latent attention is not modelled"},
    {"hybrid-layer-pattern", "state-space layers are not modelled"},
    {"hybrid-override-pattern", "state-space layers are not modelled"},
    {"mtp-num-layers", "multi-token prediction is not modelled"},
    {"experimental-attention-variant", "this kind of attention is not modelled"},
    {"attention-output-gate", "gates on attention's output are not modelled"},
    {"heterogeneous-layers-config-path", kSeveralShapes},
    {"heterogeneous-layers-config-encoded-json", kSeveralShapes},
    {"freeze-LM", kFrozen},
    {"freeze-ViT", kFrozen},
    {"freeze-all-layers", kFrozen},
    {"bitfit", kFrozen},  // biases alone
    {"language-model-type", kImages},
    {"vision-model-type", kImages},
    {"retro-add-retriever", "layers that retrieve are not modelled"},
    {"perform-rl-step", "reinforcement learning is not modelled"},
    {"mos", kTeacher},
    {"kd", kTeacher},
    {"logits-load-dir", kTeacher},
    {"skip-train", kNoTraining},
    {"eval-only", kNoTraining},
    {"inference", kNoTraining},
};

bool Same(const ModelSpec& a, const ModelSpec& b) {
  return a.family == b.family && a.layers == b.layers && a.hidden == b.hidden && a.ffn == b.ffn &&
         a.heads == b.heads && a.kv_heads == b.kv_heads && a.head_dim == b.head_dim &&
         a.norm == b.norm && a.activation == b.activation && a.gated == b.gated &&
         a.positions == b.positions && a.tied_embeddings == b.tied_embeddings &&
         a.linear_bias == b.linear_bias && a.qkv_bias == b.qkv_bias && a.qk_norm == b.qk_norm &&
         a.vocab == b.vocab && a.windows == b.windows;
}

// The first of its names that has these dimensions.
std::optional<LoadedModel> OfCatalogue(const ModelSpec& spec) {
  static const std::vector<LoadedModel> models =
      AllReadable(ModelNames(), [](const std::string& name) { return LoadModel(name); });
  for (const LoadedModel& model : models) {
    if (Same(model.spec, spec)) return model;
  }
  return std::nullopt;
}

// The shortest list that repeats itself to this one.
std::vector<int64_t> Period(const std::vector<int64_t>& list) {
  for (std::size_t length = 1; length < list.size(); ++length) {
    bool repeats = list.size() % length == 0;
    for (std::size_t i = length; repeats && i < list.size(); ++i)
      repeats = list[i] == list[i - length];
    if (repeats) return {list.begin(), list.begin() + static_cast<std::ptrdiff_t>(length)};
  }
  return list;
}

// Megatron-Core: keys before and behind the own one; each so-many-th layer sees all (transformer/utils.py,
// is_layer_window_attention).
void AddWindows(const ModelSpec& model, ModelExport* out) {
  if (model.windows.empty()) return;
  const std::vector<int64_t> windows = Period(model.windows);
  const int64_t window = windows.front();
  const bool last_sees_all = windows.back() == 0;
  const auto windowed = std::ranges::count(windows, window);
  if (window < 1 || windowed + (last_sees_all ? 1 : 0) != std::ssize(windows)) {
    out->missing.emplace_back("sliding windows by layer");
    return;
  }
  out->settings.push_back(Set("window-size", fmt::format("{},0", window - 1)));
  if (last_sees_all)
    out->settings.push_back(Set("window-attn-skip-freq", static_cast<int64_t>(windows.size())));
}

void ReadWindows(const SettingIndex& settings, ModelSpec* spec) {
  const Setting* size = settings.Find("window-size");
  const auto skip = settings.Find("window-attn-skip-freq") != nullptr
                        ? settings.Whole("window-attn-skip-freq", 1)
                        : std::nullopt;
  if (size == nullptr || skip == 1) return;
  std::string text;
  std::ranges::copy_if(size->value, std::back_inserter(text),
                       [](char c) { return c != '(' && c != ')' && c != ' '; });
  int64_t before = 0;
  const std::size_t comma = text.find(',');
  if (ParseInteger(text.substr(0, comma), &before) != NumberFault::kNone || before < -1 ||
      comma == std::string::npos || text.substr(comma + 1) != "0")
    throw InputError({{size->where, fmt::format("window-size '{}' is no window here", size->value),
                       "keys before and behind the own one, such as 4095,0; -1,0 for all"}});
  if (before < 0) return;
  spec->windows.assign(static_cast<std::size_t>(skip.value_or(1)), before + 1);
  if (skip) spec->windows.back() = 0;
}

void AddAttention(const ModelSpec& model, ModelExport* out) {
  Settings& settings = out->settings;
  settings.push_back(Set("num-attention-heads", model.heads));
  if (model.kv_heads != model.heads) {
    settings.push_back(Set("group-query-attention", ""));
    settings.push_back(Set("num-query-groups", model.kv_heads));
  }
  if (model.head_dim * model.heads != model.hidden)
    settings.push_back(Set("kv-channels", model.head_dim));
  if (model.qk_norm == QkNorm::kHead) settings.push_back(Set("qk-layernorm", ""));
  if (model.qk_norm == QkNorm::kWidth)
    out->missing.emplace_back("norm of queries and keys over all heads");
  AddWindows(model, out);
  if (model.attention_cap > 0 || model.logit_cap > 0) out->missing.emplace_back("soft caps");
}

// Megatron-Core's RotaryEmbedding holds Llama 3's figures and takes the factor alone.
constexpr RopeScaling kMegatronScaling{RopeScaling::Kind::kLlama3, 8, 1, 4, 8192};

void AddRopeScaling(const RopeScaling& rope, ModelExport* out) {
  RopeScaling megatron = kMegatronScaling;
  megatron.factor = rope.factor;
  if (rope == megatron) {
    out->settings.push_back(Set("use-rope-scaling", ""));
    out->settings.push_back(Set("rope-scaling-factor", fmt::format("{:g}", rope.factor)));
  } else if (rope.kind == RopeScaling::Kind::kLinear && rope.factor == std::floor(rope.factor)) {
    out->settings.push_back(
        Set("rotary-seq-len-interpolation-factor", static_cast<int64_t>(rope.factor)));
  } else if (rope.kind != RopeScaling::Kind::kNone) {
    out->missing.push_back(fmt::format("rotary positions scaled as {}", Name(rope.kind)));
  }
}

void AddPositions(const ModelSpec& model, ModelExport* out) {
  Settings& settings = out->settings;
  switch (model.positions) {
    case Positions::kRotary:
      settings.push_back(Set("position-embedding-type", "rope"));
      settings.push_back(Set("rotary-base", static_cast<int64_t>(model.rope_base)));
      if (model.rotary_share < 1)
        settings.push_back(Set("rotary-percent", fmt::format("{:g}", model.rotary_share)));
      AddRopeScaling(model.rope_scaling, out);
      break;
    case Positions::kLearned:
      settings.push_back(Set("position-embedding-type", "learned_absolute"));
      break;
    case Positions::kNone:
      settings.push_back(Set("position-embedding-type", "none"));
      break;
    case Positions::kRelativeBias:
      settings.push_back(Set("position-embedding-type", "relative"));
      if (model.relative_buckets != kDefaultBuckets)
        settings.push_back(Set(kBuckets, model.relative_buckets));
      break;
    case Positions::kAlibi:
      out->missing.emplace_back("ALiBi positions");
      break;
  }
}

void AddBlock(const ModelSpec& model, ModelExport* out) {
  Settings& settings = out->settings;
  if (model.norm == Norm::kRmsNorm) settings.push_back(Set("normalization", "RMSNorm"));
  if (model.norm_epsilon != ModelSpec().norm_epsilon)
    settings.push_back(Set("norm-epsilon", fmt::format("{}", model.norm_epsilon)));
  if (model.activation == Activation::kSwiglu) settings.push_back(Set("swiglu", ""));
  if (model.activation == Activation::kRelu2) settings.push_back(Set("squared-relu", ""));
  if (model.activation == Activation::kRelu) out->missing.emplace_back("relu");
  if (model.gated && model.activation != Activation::kSwiglu)
    out->missing.emplace_back("a gate other than SwiGLU's");
  if (!model.linear_bias) settings.push_back(Set("disable-bias-linear", ""));
  if (!model.linear_bias && model.qkv_bias) settings.push_back(Set("add-qkv-bias", ""));
  if (!model.tied_embeddings) settings.push_back(Set("untie-embeddings-and-output-weights", ""));
  if (model.parallel) out->missing.emplace_back("attention and MLP side by side");
  if (model.post_norm && model.family == Family::kDecoder)
    out->missing.emplace_back("norms behind the residual sum");
  if (model.output_norm) out->missing.emplace_back("norms of a block's output");
}

void ReadWidths(const SettingIndex& settings, ModelSpec* spec) {
  spec->ffn =
      settings.Whole("ffn-hidden-size", 1)
          .value_or(
              settings.Has("swiglu")
                  ? static_cast<int64_t>(4.0 * static_cast<double>(spec->hidden) * 2 / 3 / 64) * 64
                  : 4 * spec->hidden);
  spec->kv_heads = spec->heads;
  if (settings.Has("group-query-attention"))
    spec->kv_heads = settings.Whole("num-query-groups", 1).value_or(1);
  settings.Find("num-query-groups");
  spec->head_dim = settings.Whole("kv-channels", 1).value_or(spec->hidden / spec->heads);
}

// BigScience's gates, whose block is as wide as one without (its model/transformer.py).
void ReadGate(const Setting& gate, ModelSpec* spec) {
  constexpr std::pair<std::string_view, Activation> kGates[] = {
      {"swiglu", Activation::kSwiglu}, {"geglu", Activation::kGelu}, {"reglu", Activation::kRelu}};
  const auto row =
      std::ranges::find_if(kGates, [&](const auto& one) { return one.first == gate.value; });
  if (row == std::end(kGates))
    throw InputError({{gate.where, fmt::format("{} '{}' is not modelled", gate.key, gate.value),
                       "known: swiglu, geglu, reglu"}});
  spec->gated = true;
  spec->activation = row->second;
}

void ReadBlock(const SettingIndex& settings, ModelSpec* spec) {
  if (const Setting* norm =
          settings.Find("normalization")) {  // Megatron-DeepSpeed has small letters
    std::string name = norm->value;
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    if (name == "rmsnorm") {
      spec->norm = Norm::kRmsNorm;
    } else if (name != "layernorm") {
      throw InputError(
          {{norm->where, fmt::format("normalization '{}' is not modelled", norm->value),
            "known: LayerNorm, RMSNorm"}});
    }
  }
  spec->norm_epsilon = settings.Number("norm-epsilon").value_or(spec->norm_epsilon);
  if (settings.Has("swiglu")) {
    spec->activation = Activation::kSwiglu;
    spec->gated = true;
  } else if (settings.Has("squared-relu")) {
    spec->activation = Activation::kRelu2;
  } else if (const Setting* gate = settings.Find("glu-activation")) {
    ReadGate(*gate, spec);
  } else {
    spec->gated = settings.Has("quick-geglu");
  }
  spec->linear_bias = !settings.Has("disable-bias-linear");
  spec->qkv_bias = spec->linear_bias || settings.Has("add-qkv-bias");
  settings.Find("add-qkv-bias");
  spec->tied_embeddings = !settings.Has("untie-embeddings-and-output-weights");
  if (settings.Has("qk-layernorm")) spec->qk_norm = QkNorm::kHead;
}

using PositionRow = std::pair<std::string_view, Positions>;
constexpr PositionRow kPositions[] = {
    {"learned_absolute", Positions::kLearned},
    {"absolute", Positions::kLearned},  // of bigscience's Megatron
    {"rotary", Positions::kRotary},
    {"alibi", Positions::kAlibi},
    {"relative", Positions::kRelativeBias},
    {"none", Positions::kNone}};

void ReadPositions(const SettingIndex& settings, ModelSpec* spec) {
  const Setting* type = settings.Find("position-embedding-type");
  const bool rope =
      settings.Has("use-rotary-position-embeddings") || (type != nullptr && type->value == "rope");
  const bool none = settings.Has("no-position-embedding");
  spec->positions = rope ? Positions::kRotary : none ? Positions::kNone : Positions::kLearned;
  if (!rope && type != nullptr) {
    // Dumps have the name of the enumeration in front.
    const std::string name = type->value.substr(type->value.rfind('.') + 1);
    const auto row = std::ranges::find(kPositions, name, &PositionRow::first);
    if (row == std::end(kPositions))
      throw InputError(
          {{type->where, fmt::format("{} '{}' is not modelled", type->key, type->value),
            "known: learned_absolute, rope, alibi, relative, none"}});
    spec->positions = row->second;
  }
  spec->rope_base = settings.Number("rotary-base").value_or(10000);
  spec->rotary_share = settings.Number("rotary-percent").value_or(1);
  if (settings.Has("use-rope-scaling")) {
    spec->rope_scaling = kMegatronScaling;
    spec->rope_scaling.factor =
        settings.Number("rope-scaling-factor").value_or(kMegatronScaling.factor);
  } else if (const auto linear = settings.Whole("rotary-seq-len-interpolation-factor", 1)) {
    spec->rope_scaling = {RopeScaling::Kind::kLinear, static_cast<double>(*linear)};
  }
  spec->max_positions = settings.Whole("max-position-embeddings", 1)
                            .value_or(settings.Whole("seq-length", 1).value_or(1));
  if (spec->rotary_share <= 0 || spec->rotary_share > 1)
    throw InputError(
        {{settings.Find("rotary-percent")->where, "rotary-percent is above 0, up to 1", ""}});
}

// Arguments alone do not say what a program makes of them. Dumps name none, but BERT has its tokenizers, and T5's decoder is a
// stack of its own behind the encoder's, of as many layers unless it is told otherwise (pretrain_t5.py).
void ReadFamily(const SettingIndex& settings, int64_t layers, ModelSpec* spec) {
  const std::string program = settings.Has("PROGRAM") ? settings.Peek("PROGRAM") : "";
  const bool words = settings.Peek("tokenizer-type").starts_with("BertWordPiece");
  const auto decoder = settings.Whole("decoder-num-layers", 1);
  const auto buckets = settings.Whole(kBuckets, 1);
  if (decoder || program == "pretrain_t5.py") {
    spec->family = Family::kEncoderDecoder;
    spec->decoder_layers = decoder.value_or(layers);
    if (spec->positions == Positions::kRelativeBias)
      spec->relative_buckets = buckets.value_or(kDefaultBuckets);
  } else if (program == "pretrain_bert.py" || settings.Has("bert-no-binary-head") ||
             (program.empty() && words)) {
    spec->family = Family::kEncoder;
    spec->pooler = !settings.Has("bert-no-binary-head");
  }
}

}  // namespace

std::string MegatronProgram(const ModelSpec& model) {
  switch (model.family) {
    case Family::kDecoder:
      return "pretrain_gpt.py";
    case Family::kEncoder:
      return "pretrain_bert.py";
    case Family::kEncoderDecoder:
      return "pretrain_t5.py";
    case Family::kMlp:
      break;
  }
  return "";
}

ModelExport MegatronModel(const ModelSpec& model) {
  ModelExport out;
  if (model.family == Family::kMlp) {
    out.missing.emplace_back("a stack of linear layers");
    return out;
  }
  Settings& settings = out.settings;
  if (model.family == Family::kEncoderDecoder) {
    settings.push_back(Set("encoder-num-layers", model.layers));
    settings.push_back(Set("decoder-num-layers", model.decoder_layers));
  } else {
    settings.push_back(Set("num-layers", model.layers));
  }
  settings.push_back(Set("hidden-size", model.hidden));
  settings.push_back(Set("ffn-hidden-size", model.ffn));
  AddAttention(model, &out);
  AddPositions(model, &out);
  AddBlock(model, &out);
  if (model.family == Family::kEncoder && !model.pooler)
    settings.push_back(Set("bert-no-binary-head", ""));
  return out;
}

const Setting* LayersOfMegatron(const SettingIndex& settings) {
  const Setting* layers = settings.Find("num-layers");
  const Setting* encoder = settings.Find("encoder-num-layers");
  if (layers != nullptr && encoder != nullptr && layers->value != encoder->value)
    throw InputError({{encoder->where,
                       fmt::format("encoder-num-layers is {} here, and num-layers {} in {}",
                                   encoder->value, layers->value, Place(layers->where)),
                       "one of them: they are one number to Megatron"}});
  return layers != nullptr ? layers : encoder;
}

std::optional<LoadedModel> ModelOfMegatron(const SettingIndex& settings) {
  for (const auto& [key, why] : kRefused) {
    const Setting* setting = settings.Find(key);
    if (setting != nullptr && !Off(setting->value))
      throw InputError({{setting->where, fmt::format("{}: {}", key, why), ""}});
  }
  if (const Setting* file = settings.Find("yaml-cfg"); file != nullptr)
    throw InputError(
        {{file->where,
          fmt::format("yaml-cfg: the job's arguments stand in {}, which is not read", file->value),
          "the dump of arguments in its log (--from train.log)"}});
  LoadedModel model;
  ModelSpec& spec = model.spec;
  const Setting* first = LayersOfMegatron(settings);
  const auto layers = first == nullptr ? std::nullopt : settings.Whole(first->key, 1);
  const auto hidden = settings.Whole("hidden-size", 1);
  const auto heads = settings.Whole("num-attention-heads", 1);
  if (!layers || !hidden || !heads) return std::nullopt;
  spec.layers = *layers;
  spec.hidden = *hidden;
  spec.heads = *heads;
  if (*hidden % *heads != 0 && !settings.Has("kv-channels"))
    throw InputError({{settings.Find("num-attention-heads")->where,
                       fmt::format("hidden-size {} does not divide by {} heads", *hidden, *heads),
                       "--kv-channels says how wide a head is"}});
  ReadBlock(settings, &spec);
  ReadWidths(settings, &spec);
  ReadPositions(settings, &spec);
  ReadWindows(settings, &spec);
  const auto vocab = settings.Whole("vocab-size", 1);
  const auto padded = settings.Whole("padded-vocab-size", 1);
  ReadFamily(settings, *layers, &spec);
  // BigScience's fork is told the rows of the table.
  const auto rows = settings.Whole("pad-vocab-size-to", 1);
  spec.vocab = rows.value_or(vocab.value_or(padded.value_or(0)));
  if (spec.vocab == 0) {
    spec.vocab = 50257;
    model.notes.emplace_back("vocabulary of 50257 assumed: the file names no --vocab-size");
  }
  if (auto known = OfCatalogue(spec)) {
    // Learned positions are a table of the model, which has as many rows as the file says.
    const int64_t positions = known->spec.max_positions;
    const bool own = spec.positions == Positions::kLearned && positions != spec.max_positions &&
                     (settings.Has("max-position-embeddings") || positions < spec.max_positions);
    known->spec.norm_epsilon = spec.norm_epsilon;
    known->notes = model.notes;
    known->notes.push_back(
        fmt::format("{} has the dimensions of {}{}", Place(first->where), known->spec.name,
                    own ? fmt::format(", but {} positions of its own", spec.max_positions) : ""));
    if (!own) return known;
    model.notes = known->notes;
  }
  // Names of files hold what they like.
  spec.name =
      OneLine(fmt::format("model of {}", first->where.source ? first->where.source->name : "file"));
  model.origin = Place(first->where);
  return model;
}

}  // namespace orrery::exchange
