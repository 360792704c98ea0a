// SPDX-License-Identifier: Apache-2.0
// A neural network as the planner sees it: its family, its dimensions and what its blocks consist of.
#pragma once

#include <cstddef>
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
enum class Activation { kGelu, kRelu, kSwiglu, kRelu2 };  // kSwiglu: gated; kRelu2: relu squared
enum class Positions { kLearned, kRotary, kRelativeBias, kAlibi, kNone };
enum class QkNorm {
  kNone,
  kHead,
  kWidth
};  // RMS norm of query and key: per head, or all heads as one

// Rotary positions beyond the length that a model began with. `factor` divides frequencies: all of them (linear, Chen et al.
// 2023), those that turn fewer than `low` times over `original` positions (llama3, Llama 3.1's reference code), or those
// behind the pair that turns `low` times (yarn, Peng et al. 2023). None is divided that turns more than `high` times; in
// between the share grows, with the turns (llama3) or with the pair's number (yarn).
struct RopeScaling {
  enum class Kind : uint8_t { kNone, kLinear, kLlama3, kYarn };
  Kind kind = Kind::kNone;
  double factor = 1, low = 0, high = 0, original = 0;
  double magnify = 1;    // yarn: of cosine and sine
  bool truncate = true;  // yarn: to whole pairs
  bool operator==(const RopeScaling&) const = default;
};

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
  double norm_epsilon = 1e-5;  // of every norm: added to the variance, or to the mean of squares
  Activation activation = Activation::kGelu;
  bool gated = false;  // three MLP matrices (swiglu, geglu)
  Positions positions = Positions::kLearned;
  bool linear_bias = true;       // biases on the MLP, and on the attention output unless out_bias
  bool qkv_bias = true;          // Qwen: true with linear_bias false
  std::optional<bool> out_bias;  // of the attention output; empty: as linear_bias (GPT-J: false)
  bool tied_embeddings = true;   // the LM head uses the embedding table
  bool post_norm =
      false;  // original BERT: norm after the residual sum; false: pre-norm, final norm
  // Norms of a pre-norm block: of the sublayer's input (most), of its output before the residual sum (OLMo 2), or both
  // (Gemma 2).
  bool input_norm = true, output_norm = false;
  QkNorm qk_norm = QkNorm::kNone;  // before rotary positions
  bool parallel = false;           // attention and MLP read the same input: x + attn(x) + mlp(x)
  bool shared_norm = false;        // parallel: one norm for both
  // Keys that a query sees, itself included, by layer and again from the start behind the last; 0: all; empty: all.
  std::vector<int64_t> windows;
  double attention_cap = 0, logit_cap = 0;  // soft caps c tanh(x / c) of scores and logits; 0: none
  double attention_scale = 0;               // of the scores; 0: 1 / sqrt(head_dim)
  double rotary_share = 1;                  // of a head's width that turns; rounded to even
  double rope_base = 10000, rope_base_of_windows = 0;  // of layers with a window, 0: as the others
  RopeScaling rope_scaling;
  bool rope_scaling_of_windows = true;  // layers with a window scale, too
  // What multiplies token embeddings and outputs of sublayers in front of the residual sum; what divides logits.
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  // What `plan run` does not train, by name ("rope scaling llama3"); without weight for parameters or time.
  std::vector<std::string> untrained;
  bool pooler = false;          // BERT pooler and next-sentence head
  bool embedding_norm = false;  // norm after the embedding (BERT, BLOOM)
  bool head_transform =
      false;               // BERT's MLM head: linear, activation and norm before the vocabulary
  bool head_bias = false;  // a bias per vocabulary entry on the logits (BERT)
  bool causal() const { return family != Family::kEncoder; }
  bool has_out_bias() const { return out_bias.value_or(linear_bias); }
  bool has_block_norm() const { return post_norm || input_norm; }  // besides output norms
  int64_t Window(int64_t layer) const {
    return windows.empty() ? 0 : windows[static_cast<std::size_t>(layer) % windows.size()];
  }
  int64_t RotaryWidth() const {
    return static_cast<int64_t>(static_cast<double>(head_dim) * rotary_share + 1e-6) / 2 * 2;
  }
  bool operator==(const ModelSpec&) const = default;
};

// Defaults for training that a model file may carry; empty: the caller must say.
struct TrainingDefaults {
  std::optional<int64_t> seq_len;
  std::optional<int64_t> global_batch;      // in sequences
  std::optional<int64_t> masked_positions;  // kEncoder: MLM predictions per sequence of seq_len
  // kEncoder: (sequence length, predictions) at other lengths; see MaskedPositions() in catalogue.h.
  std::vector<std::pair<int64_t, int64_t>> masked_positions_at;
  std::optional<double> dropout;            // of embeddings, sublayers and attention,
  std::optional<double> attention_dropout;  // unless that has its own
  std::string precision;                    // "" = not given
  std::string fp8;                          // likewise
  std::string optimizer;
  std::string topology;
  std::string source;  // where these come from
};

}  // namespace orrery
