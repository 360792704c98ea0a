// SPDX-License-Identifier: Apache-2.0
// Reads HuggingFace config.json files; optional keys default as in that family's HuggingFace class.
#include <fmt/format.h>

#include <initializer_list>

#include "model/arch/enum_names.h"
#include "model/arch/hf_family.h"
#include "model/arch/readers.h"

namespace orrery {
namespace {

using Notes = std::vector<std::string>;

constexpr NameRow<Activation> kHfActivations[] = {
    {"gelu", Activation::kGelu},        {"gelu_new", Activation::kGelu},
    {"gelu_fast", Activation::kGelu},   {"gelu_pytorch_tanh", Activation::kGelu},
    {"gelu_python", Activation::kGelu}, {"relu", Activation::kRelu},
};
constexpr NameRow<Activation> kHfGatedActivations[] = {{"silu", Activation::kSwiglu}};

// The first of several names for one thing that the file uses; the first one when it uses none.
std::string Alias(const Node& node, std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (node.Has(key)) return key;
  }
  return *keys.begin();
}

// The keys that BERT, llama and many others share.
const SpecKeys kCommonKeys{"hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim"};

void ReadCommon(const Node& node, ModelSpec* spec) {
  spec->layers = node.Integer("num_hidden_layers", 1, kMaxLayers);
  spec->hidden = node.Integer("hidden_size", 1, kMaxWidth);
  spec->heads = node.Integer("num_attention_heads", 1, kMaxHeads);
  spec->vocab = node.Integer("vocab_size", 1, kMaxVocab);
}

void ReadGpt2(const Node& node, ModelSpec* spec, Notes*) {
  const SpecKeys keys{"n_embd", "n_head", "n_head", "n_head"};
  spec->layers = node.Integer("n_layer", 1, kMaxLayers);
  spec->hidden = node.Integer(keys.hidden, 1, kMaxWidth);
  spec->heads = node.Integer(keys.heads, 1, kMaxHeads);
  spec->ffn = node.Integer("n_inner", 1, kMaxFfn, 0);
  spec->vocab = node.Integer("vocab_size", 1, kMaxVocab);
  spec->max_positions = node.Integer(Alias(node, {"n_positions", "n_ctx"}), 1, kMaxPositions, 1024);
  spec->activation =
      node.Choice<Activation>("activation_function", kHfActivations, Activation::kGelu);
  spec->tied_embeddings = node.Bool("tie_word_embeddings", true);
  CompleteSpec(node, keys, spec);
}

void ReadNeox(const Node& node, ModelSpec* spec, Notes* notes) {
  ReadCommon(node, spec);
  spec->ffn = node.Integer("intermediate_size", 1, kMaxFfn, 0);
  spec->max_positions = node.Integer("max_position_embeddings", 1, kMaxPositions, 2048);
  spec->activation = node.Choice<Activation>("hidden_act", kHfActivations, Activation::kGelu);
  spec->positions = Positions::kRotary;
  spec->linear_bias = true;
  spec->qkv_bias = node.Bool("attention_bias", true);
  if (!spec->qkv_bias)
    node.ErrorAt("attention_bias", "GPT-NeoX without attention biases cannot be planned");
  spec->tied_embeddings = node.Bool("tie_word_embeddings", false);
  if (node.Bool("use_parallel_residual", true)) {
    notes->push_back(
        "attention and MLP run side by side in this model; they are planned one after the "
        "other, with the same parameters and products");
  }
  CompleteSpec(node, kCommonKeys, spec);
}

void ReadBertLike(const Node& node, ModelSpec* spec) {
  ReadCommon(node, spec);
  spec->family = Family::kEncoder;
  spec->ffn = node.Integer("intermediate_size", 1, kMaxFfn, 0);
  spec->max_positions = node.Integer("max_position_embeddings", 1, kMaxPositions, 512);
  spec->token_types = node.Integer("type_vocab_size", 0, kMaxSmall, 2);
  spec->activation = node.Choice<Activation>("hidden_act", kHfActivations, Activation::kGelu);
  spec->tied_embeddings = node.Bool("tie_word_embeddings", true);
  spec->post_norm = spec->embedding_norm = true;
  spec->head_transform = spec->head_bias = true;
  CompleteSpec(node, kCommonKeys, spec);
}

void ReadBert(const Node& node, ModelSpec* spec, Notes* notes) {
  ReadBertLike(node, spec);
  spec->pooler = true;
  notes->push_back("trained as BERT was: masked-word and next-sentence heads are included");
  if (node.Bool("layer_norm_large_model", false)) {  // Habana's pre-norm BERT-1.5B and BERT-5B
    spec->post_norm = spec->embedding_norm = false;
    notes->push_back("layer_norm_large_model: norms stand before attention and MLP");
  }
}

void ReadRoberta(const Node& node, ModelSpec* spec, Notes*) { ReadBertLike(node, spec); }

void ReadLlama(const Node& node, ModelSpec* spec, Notes* notes) {
  ReadCommon(node, spec);
  spec->ffn = node.Integer("intermediate_size", 1, kMaxFfn);
  spec->kv_heads = node.Integer("num_key_value_heads", 1, kMaxHeads, 0);
  spec->head_dim = node.Integer("head_dim", 1, kMaxHeadDim, 0);
  spec->max_positions = node.Integer("max_position_embeddings", 1, kMaxPositions, 2048);
  spec->activation =
      node.Choice<Activation>("hidden_act", kHfGatedActivations, Activation::kSwiglu);
  spec->gated = true;
  spec->norm = Norm::kRmsNorm;
  spec->positions = Positions::kRotary;
  spec->qkv_bias = node.Bool("attention_bias", false);
  spec->linear_bias = node.Bool("mlp_bias", false);
  if (spec->qkv_bias != spec->linear_bias) {
    node.ErrorAt(node.Has("attention_bias") ? "attention_bias" : "mlp_bias",
                 "attention_bias and mlp_bias must be equal",
                 "a mixture of both cannot be planned yet");
  }
  spec->tied_embeddings = node.Bool("tie_word_embeddings", false);
  if (node.Has("sliding_window") && node.Bool("use_sliding_window", true)) {
    notes->push_back("sliding-window attention is counted as full attention");
  }
  CompleteSpec(node, kCommonKeys, spec);
}

void ReadQwen2(const Node& node, ModelSpec* spec, Notes* notes) {
  ReadLlama(node, spec, notes);
  spec->qkv_bias = true;
}

void ReadT5Activation(const Node& node, ModelSpec* spec) {
  constexpr NameRow<bool> kGated[] = {
      {"relu", false}, {"gelu", false}, {"gated-gelu", true}, {"gated-relu", true}};
  spec->gated = node.Choice<bool>("feed_forward_proj", kGated, false);
  const bool gelu = node.String("feed_forward_proj", "relu").ends_with("gelu");
  spec->activation = gelu ? Activation::kGelu : Activation::kRelu;
}

void ReadT5(const Node& node, ModelSpec* spec, Notes*) {
  const SpecKeys keys{"d_model", "num_heads", "num_heads", "d_kv"};
  spec->family = Family::kEncoderDecoder;
  spec->layers = node.Integer("num_layers", 1, kMaxLayers);
  spec->decoder_layers = node.Integer("num_decoder_layers", 1, kMaxLayers, spec->layers);
  spec->hidden = node.Integer("d_model", 1, kMaxWidth);
  spec->ffn = node.Integer("d_ff", 1, kMaxFfn);
  spec->heads = node.Integer("num_heads", 1, kMaxHeads);
  spec->head_dim = node.Integer("d_kv", 1, kMaxHeadDim, 64);
  spec->vocab = node.Integer("vocab_size", 1, kMaxVocab);
  spec->max_positions = node.Integer("n_positions", 1, kMaxPositions, 512);
  spec->relative_buckets = node.Integer("relative_attention_num_buckets", 1, kMaxSmall, 32);
  spec->positions = Positions::kRelativeBias;
  spec->norm = Norm::kRmsNorm;
  spec->linear_bias = spec->qkv_bias = false;
  spec->tied_embeddings = node.Bool("tie_word_embeddings", true);
  ReadT5Activation(node, spec);
  CompleteSpec(node, keys, spec);
}

void ReadOpt(const Node& node, ModelSpec* spec, Notes*) {
  ReadCommon(node, spec);
  spec->ffn = node.Integer("ffn_dim", 1, kMaxFfn);
  // Positions start at 2 in this family: its table has two more rows than positions.
  spec->max_positions = node.Integer("max_position_embeddings", 1, kMaxPositions, 2048) + 2;
  spec->activation =
      node.Choice<Activation>("activation_function", kHfActivations, Activation::kRelu);
  spec->linear_bias = spec->qkv_bias = node.Bool("enable_bias", true);
  spec->post_norm = !node.Bool("do_layer_norm_before", true);
  spec->tied_embeddings = node.Bool("tie_word_embeddings", true);
  if (node.Integer("word_embed_proj_dim", 1, kMaxWidth, spec->hidden) != spec->hidden) {
    node.ErrorAt("word_embed_proj_dim",
                 "embeddings narrower than hidden_size cannot be planned yet");
  }
  CompleteSpec(node, kCommonKeys, spec);
}

void ReadBloom(const Node& node, ModelSpec* spec, Notes*) {
  const std::string heads = Alias(node, {"n_head", "num_attention_heads"});
  const SpecKeys keys{Alias(node, {"hidden_size", "n_embed"}), heads, heads, heads};
  spec->layers = node.Integer(Alias(node, {"n_layer", "num_hidden_layers"}), 1, kMaxLayers);
  spec->hidden = node.Integer(keys.hidden, 1, kMaxWidth);
  spec->heads = node.Integer(keys.heads, 1, kMaxHeads);
  spec->vocab = node.Integer("vocab_size", 1, kMaxVocab);
  spec->max_positions = node.Integer("seq_length", 1, kMaxPositions, 2048);
  spec->positions = Positions::kNone;  // ALiBi: a bias without parameters
  spec->embedding_norm = true;
  spec->tied_embeddings = node.Bool("tie_word_embeddings", true);
  CompleteSpec(node, keys, spec);
}

constexpr HfFamily kFamilies[] = {
    {"bert", "Bert", ReadBert},
    {"bloom", "Bloom", ReadBloom},
    {"gpt2", "GPT2", ReadGpt2},
    {"gpt_neox", "GPTNeoX", ReadNeox},
    {"llama", "Llama", ReadLlama},
    {"mistral", "Mistral", ReadLlama},
    {"opt", "OPT", ReadOpt},
    {"qwen2", "Qwen2", ReadQwen2},
    {"roberta", "Roberta", ReadRoberta},
    {"t5", "T5", ReadT5},
};

}  // namespace

std::span<const HfFamily> HfFamilies() { return kFamilies; }

LoadedModel ReadHfConfig(SourcePtr source, const std::string& name) {
  Diagnostics diagnostics;
  const Node node = Node::Parse(source, &diagnostics);
  diagnostics.ThrowIfAny();
  LoadedModel model;
  model.origin = source->name;
  model.spec.name = name;
  const HfFamily* family = FindHfFamily(node, &model.notes);
  diagnostics.ThrowIfAny();
  family->read(node, &model.spec, &model.notes);
  diagnostics.ThrowIfAny();
  return model;
}

}  // namespace orrery
