// SPDX-License-Identifier: Apache-2.0
// Counts the weights and the matrix products of a model, layer by layer.
#include "model/arch/parameters.h"

#include <algorithm>

namespace orrery {
namespace {

int64_t NormWidth(const ModelSpec& s) { return s.norm == Norm::kRmsNorm ? s.hidden : 2 * s.hidden; }
int64_t QueryWidth(const ModelSpec& s) { return s.heads * s.head_dim; }
int64_t KeyValueWidth(const ModelSpec& s) { return 2 * s.kv_heads * s.head_dim; }
int64_t MlpMatrices(const ModelSpec& s) { return s.gated ? 3 : 2; }

// Weights of matrices, without biases: what matrix products read.
int64_t AttentionWeights(const ModelSpec& s) {
  return s.hidden * (QueryWidth(s) + KeyValueWidth(s)) + QueryWidth(s) * s.hidden;
}
int64_t MlpWeights(const ModelSpec& s) { return MlpMatrices(s) * s.hidden * s.ffn; }

int64_t AttentionParameters(const ModelSpec& s) {
  const int64_t qkv_bias = s.qkv_bias ? QueryWidth(s) + KeyValueWidth(s) : 0;
  const int64_t out_bias = s.has_out_bias() ? s.hidden : 0;
  return AttentionWeights(s) + qkv_bias + out_bias;
}

// Gains of the norms of queries and keys.
int64_t QkNormParameters(const ModelSpec& s) {
  switch (s.qk_norm) {
    case QkNorm::kNone:
      return 0;
    case QkNorm::kHead:
      return 2 * s.head_dim;
    case QkNorm::kWidth:
      return QueryWidth(s) + KeyValueWidth(s) / 2;
  }
  return 0;
}

int64_t BlockNorms(const ModelSpec& s) {
  const int64_t of_blocks = s.has_block_norm() ? (s.parallel && s.shared_norm ? 1 : 2) : 0;
  return (of_blocks + (s.output_norm ? 2 : 0)) * NormWidth(s) + QkNormParameters(s);
}

int64_t MlpParameters(const ModelSpec& s) {
  const int64_t bias = s.linear_bias ? (MlpMatrices(s) - 1) * s.ffn + s.hidden : 0;
  return MlpWeights(s) + bias;
}

int64_t EncoderLayer(const ModelSpec& s) {
  return AttentionParameters(s) + MlpParameters(s) + BlockNorms(s);
}
int64_t CrossDecoderLayer(const ModelSpec& s) {
  return 2 * AttentionParameters(s) + MlpParameters(s) + 3 * NormWidth(s);
}

// Weights of linear layer `layer` of a plain MLP.
int64_t LinearWeights(const ModelSpec& s, int64_t layer) {
  const int64_t in = layer == 0 ? s.in_features : s.hidden;
  const int64_t out = layer == s.layers - 1 ? s.out_features : s.hidden;
  return in * out;
}
int64_t LinearBias(const ModelSpec& s, int64_t layer) {
  if (!s.linear_bias) return 0;
  return layer == s.layers - 1 ? s.out_features : s.hidden;
}

ParameterCount CountMlp(const ModelSpec& s) {
  ParameterCount count;
  for (int64_t i = 0; i < s.layers; ++i) count.total += LayerParameters(s, i);
  count.backbone = count.total_without_embeddings = count.total;
  return count;
}

int64_t Embedding(const ModelSpec& s) {
  const int64_t positions = s.positions == Positions::kLearned ? s.max_positions : 0;
  return (s.vocab + positions + s.token_types) * s.hidden + (s.embedding_norm ? NormWidth(s) : 0);
}

int64_t OutputMatrix(const ModelSpec& s) { return s.tied_embeddings ? 0 : s.vocab * s.hidden; }

int64_t Head(const ModelSpec& s) {
  int64_t head = OutputMatrix(s);
  if (s.head_transform) head += s.hidden * s.hidden + s.hidden + NormWidth(s);
  if (s.head_bias) head += s.vocab;
  if (s.pooler) head += 2 * s.hidden + 2;  // next sentence: two classes
  return head;
}

// Products of the head, in weights times positions.
double HeadProducts(const ModelSpec& s, double positions) {
  double products = positions * static_cast<double>(s.hidden) * static_cast<double>(s.vocab);
  if (s.head_transform) products += positions * static_cast<double>(s.hidden * s.hidden);
  if (s.pooler) products += static_cast<double>(s.hidden * s.hidden + 2 * s.hidden);
  return products;
}

}  // namespace

int64_t LayerParameters(const ModelSpec& spec, int64_t layer) {
  if (spec.family == Family::kMlp) return LinearWeights(spec, layer) + LinearBias(spec, layer);
  return layer < spec.layers ? EncoderLayer(spec) : CrossDecoderLayer(spec);
}

ParameterCount CountParameters(const ModelSpec& spec) {
  if (spec.family == Family::kMlp) return CountMlp(spec);
  const int64_t stacks = spec.family == Family::kEncoderDecoder ? 2 : 1;
  ParameterCount count;
  count.embedding = Embedding(spec);
  count.per_layer = EncoderLayer(spec);
  if (stacks == 2) count.per_decoder_layer = CrossDecoderLayer(spec);
  count.relative_bias = stacks * spec.relative_buckets * spec.heads;
  if (!spec.post_norm) count.final_norm = stacks * NormWidth(spec);
  if (spec.pooler) count.pooler = spec.hidden * spec.hidden + spec.hidden;
  count.head = Head(spec);
  count.backbone = count.embedding + spec.layers * count.per_layer +
                   spec.decoder_layers * count.per_decoder_layer + count.relative_bias +
                   count.final_norm + count.pooler;
  count.total = count.backbone + count.head;
  count.total_without_embeddings = count.total - count.embedding - OutputMatrix(spec);
  return count;
}

int64_t AdapterParameters(const ModelSpec& s, const Lora& lora, int tensor, bool all_cut) {
  const auto of = [&](LoraTarget map, int64_t split, int64_t whole) {
    return lora.targets_map(map) ? lora.rank * (split / tensor + whole / (all_cut ? tensor : 1))
                                 : 0;
  };
  return of(kLoraQkv, QueryWidth(s) + KeyValueWidth(s), s.hidden) +
         of(kLoraProj, QueryWidth(s), s.hidden) +
         of(kLoraFc1, (MlpMatrices(s) - 1) * s.ffn, s.hidden) + of(kLoraFc2, s.ffn, s.hidden) +
         of(kLoraQ, QueryWidth(s), s.hidden) + of(kLoraK, KeyValueWidth(s) / 2, s.hidden) +
         of(kLoraV, KeyValueWidth(s) / 2, s.hidden) + of(kLoraGate, s.ffn, s.hidden) +
         of(kLoraUp, s.ffn, s.hidden);
}

Flops ModelFlopsPerSequence(const ModelSpec& spec, int64_t seq_len, int64_t masked_positions,
                            const Lora& lora) {
  const auto tokens = static_cast<double>(seq_len);
  double products = 0;  // multiply-adds of the forward pass
  if (spec.family == Family::kMlp) {
    for (int64_t i = 0; i < spec.layers; ++i)
      products += tokens * static_cast<double>(LinearWeights(spec, i));
    return Flops(6 * products);
  }
  const auto layers = static_cast<double>(spec.layers);
  const auto decoders = static_cast<double>(spec.decoder_layers);
  const double attentions = layers + 2 * decoders;  // a decoder layer attends to itself and across
  products += tokens * attentions * static_cast<double>(AttentionWeights(spec));
  products += tokens * (layers + decoders) * static_cast<double>(MlpWeights(spec));
  double keys = attentions * tokens;  // that a query sees, over all attentions
  for (int64_t i = 0; !spec.windows.empty() && i < spec.layers; ++i) {
    const int64_t window = spec.Window(i);
    if (window > 0) keys -= static_cast<double>(std::max<int64_t>(seq_len - window, 0));
  }
  const double attention = 2 * keys * tokens * static_cast<double>(QueryWidth(spec));
  const bool masked = spec.family == Family::kEncoder && masked_positions > 0;
  const auto positions =
      static_cast<double>(masked ? std::min(masked_positions, seq_len) : seq_len);
  products += HeadProducts(spec, positions);
  if (!lora.on()) return Flops(6 * (products + attention));
  const double adapters = tokens * layers * static_cast<double>(AdapterParameters(spec, lora));
  return Flops(4 * products + 6 * (attention + adapters));
}

Flops MaskedFlopsPerSequence(const ModelSpec& spec, int64_t seq_len) {
  const bool stacks = spec.decoder_layers > 0;
  if (spec.family == Family::kMlp || (spec.family == Family::kEncoder && !stacks)) return Flops(0);
  const auto tokens = static_cast<double>(seq_len);
  const int64_t causal = stacks ? spec.decoder_layers : spec.layers;
  double keys = 0;  // that a query does not see, on the average, over all layers
  for (int64_t i = 0; i < causal; ++i) {
    const int64_t window = stacks ? 0 : spec.Window(i);
    const double seen =
        static_cast<double>(window > 0 ? std::min(window, seq_len) : seq_len);  // at most
    keys += seen * (seen - 1) / (2 * tokens);
  }
  return Flops(12 * keys * tokens * static_cast<double>(QueryWidth(spec)));
}

}  // namespace orrery
