// SPDX-License-Identifier: Apache-2.0
// Exact parameter counts and model FLOPs of a ModelSpec.
//
// Counting rules: a layer norm has a gain and a bias (2h), an RMS norm a gain (h). Tied embeddings
// count once. Vocabulary padding for tensor parallelism is not part of the model and not counted.
#pragma once

#include <cstdint>

#include "model/arch/lora.h"
#include "model/arch/model_spec.h"
#include "model/base/quantity.h"

namespace orrery {

struct ParameterCount {
  int64_t embedding = 0;  // token, position and token-type tables, and the norm behind them
  int64_t per_layer = 0;  // one of spec.layers; kMlp: 0, its layers differ (LayerParameters)
  int64_t per_decoder_layer = 0;  // kEncoderDecoder: self-attention, cross-attention, MLP, norms
  int64_t relative_bias = 0;      // T5: one table per stack
  int64_t final_norm = 0;         // pre-norm models; one per stack
  int64_t pooler = 0;             // BERT: the linear layer on the first token
  int64_t head = 0;      // untied output matrix, MLM transform and bias, next-sentence layer
  int64_t total = 0;     // everything that is trained
  int64_t backbone = 0;  // total without `head`: what BERT's published counts mean
  int64_t total_without_embeddings = 0;  // total without `embedding` and an untied output matrix
                                         // (Kaplan et al. 2020, arXiv:2001.08361, section 2.1: N)
};

ParameterCount CountParameters(const ModelSpec& spec);

// Parameters of layer `layer` in [0, layers + decoder_layers): encoder layers come first.
int64_t LayerParameters(const ModelSpec& spec, int64_t layer);

// Of the adapters beside the maps of one layer on a rank of `tensor` that share it: per target map of out x in weights
// rank (out / tensor + in) where it is split by columns, rank (out + in / tensor) where by rows. all_cut: rank (out + in) / tensor.
int64_t AdapterParameters(const ModelSpec& spec, const Lora& lora, int tensor = 1,
                          bool all_cut = false);

// Forward and backward model FLOPs of one sequence; a multiply and an add are two operations.
//
//   F = 3 x sum over matrix products of 2 m n k,
//
// the backward pass being twice the forward pass. Per sequence of s tokens this is
//   6 s N_layers + 12 L s^2 H Q + 6 h V p,
// with N_layers the layers' matrix weights, L layers, H heads of width Q, h hidden, V vocabulary
// and p the positions that reach the head (s; masked positions for an encoder). It is the
// convention of Kaplan et al. 2020 (6 N per token), of PaLM (Chowdhery et al. 2022,
// arXiv:2204.02311, appendix B: 6 N + 12 L H Q T per token) and, for h = H Q, ffn = 4 h and p = s,
// of Narayanan et al. 2021 (arXiv:2104.04473, appendix) without recomputation: 72 s L h^2 (1 + s /
// 6h + V / 12 L h). Attention is counted over the full s x s square: causality is NOT halved; with a
// sliding window of w over s x min(s, w).
// Recomputation, norms, softmax, activations and embedding look-ups are not counted.
// Encoder-decoder: both stacks see `seq_len` tokens, cross-attention included. kMlp: seq_len
// samples. masked_positions: encoder only, 0 means every position; other families ignore it.
// With frozen weights their gradients are not computed, so that the backward pass of a weight's product costs as much as its
// forward pass: 4 N per token instead of 6 N, 6 per token and weight of adapters, attention as before.
Flops ModelFlopsPerSequence(const ModelSpec& spec, int64_t seq_len, int64_t masked_positions,
                            const Lora& lora = {});
// That convention in words, for answers.
inline constexpr const char* kMfuCounts =
    "products of forward and backward pass, and attention over whole sequences as papers print it, "
    "masked or not; no recomputation";
// What a causal mask leaves out of them: keys behind a query, half of the square; of a window, those in front of the sequence.
Flops MaskedFlopsPerSequence(const ModelSpec& spec, int64_t seq_len);

}  // namespace orrery
