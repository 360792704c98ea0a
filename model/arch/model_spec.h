// SPDX-License-Identifier: Apache-2.0
// A neural network as the planner sees it: its family and its dimensions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace orrery {

enum class Family {
  kDecoder,         // GPT, llama: causal language model
  kEncoder,         // BERT: masked language model, head on masked positions only
  kEncoderDecoder,  // T5
  kMlp,             // plain stack of linear layers, mean squared error (S8's Linear(20,1))
};
enum class Norm { kLayerNorm, kRmsNorm };
enum class Activation { kGelu, kRelu, kSwiglu };  // kSwiglu: gated, three MLP matrices
enum class Positions { kLearned, kRotary, kRelativeBias, kNone };

// Widths are of the whole model, not of a shard. All counts >= 1 unless a comment says otherwise.
struct ModelSpec {
  std::string name;
  Family family = Family::kDecoder;
  int64_t layers =
      0;  // transformer layers; encoder layers for kEncoderDecoder; linear layers for kMlp
  int64_t decoder_layers = 0;  // kEncoderDecoder only, else 0
  int64_t hidden = 0;          // kMlp: width between layers (unused when layers == 1)
  int64_t ffn = 0;             // inner width of the MLP block
  int64_t heads = 0;
  int64_t kv_heads = 0;  // == heads without grouped-query attention
  int64_t head_dim = 0;  // usually hidden / heads; T5 and some llamas differ
  int64_t vocab = 0;
  int64_t max_positions = 0;  // rows of the learned position table; else the trained context length
  int64_t token_types = 0;    // BERT segment embeddings, 0: none
  int64_t relative_buckets = 0;  // T5: buckets of the relative position bias per stack, 0: none
  int64_t in_features = 0;       // kMlp
  int64_t out_features = 0;      // kMlp
  Norm norm = Norm::kLayerNorm;
  Activation activation = Activation::kGelu;
  bool gated = false;  // three MLP matrices (swiglu, geglu)
  Positions positions = Positions::kLearned;
  bool linear_bias = true;      // biases on the projections and on the MLP
  bool qkv_bias = true;         // Qwen: true with linear_bias false
  bool tied_embeddings = true;  // the LM head uses the embedding table
  bool post_norm =
      false;            // original BERT: norm after the residual sum; false: pre-norm, final norm
  bool pooler = false;  // BERT pooler and next-sentence head
  bool embedding_norm = false;  // norm after the embedding (BERT, BLOOM)
  bool head_transform =
      false;               // BERT's MLM head: linear, activation and norm before the vocabulary
  bool head_bias = false;  // a bias per vocabulary entry on the logits (BERT)
  bool causal() const { return family != Family::kEncoder; }
};

// Defaults for training that a model file may carry; empty: the caller must say.
struct TrainingDefaults {
  std::optional<int64_t> seq_len;
  std::optional<int64_t> global_batch;      // in sequences
  std::optional<int64_t> masked_positions;  // kEncoder: MLM predictions per sequence of seq_len
  // kEncoder: (sequence length, predictions) at other lengths; see MaskedPositions() in catalogue.h.
  std::vector<std::pair<int64_t, int64_t>> masked_positions_at;
  std::string precision;  // "" = not given
  std::string optimizer;
  std::string topology;
  std::string source;  // where these come from
};

}  // namespace orrery
