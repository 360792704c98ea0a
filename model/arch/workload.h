// SPDX-License-Identifier: Apache-2.0
// What a training job computes per step, whatever its layout, and how flags and files spell it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "model/arch/lora.h"
#include "model/arch/low_precision.h"

namespace orrery {

enum class Precision { kFp32, kTf32, kFp16, kBf16 };  // fp16 and bf16: see Workload::master_weights
// kAdam8bit: AdamW with moments of a byte (Dettmers et al. 2022, arXiv:2110.02861). kMuon: momentum of layers' matrices,
// orthogonalised by Newton-Schulz steps (Jordan et al. 2024; Liu et al. 2025, arXiv:2502.16982); AdamW elsewhere.
enum class Optimizer { kSgd, kAdam, kAdamW, kLamb, kAdam8bit, kMuon };

// What the job is, whatever the layout.
struct Workload {
  int64_t seq_len = 0;
  int64_t global_batch = 0;      // sequences per optimizer step
  int64_t masked_positions = 0;  // kEncoder: predictions per sequence; 0: all positions
  Precision precision = Precision::kBf16;
  Optimizer optimizer = Optimizer::kAdam;
  double clip_norm = 1.0;  // 0: no gradient clipping (then no gradient norm is computed)
  double dropout = 0.0;    // of embeddings, sublayer outputs and attention probabilities,
  std::optional<double> attention_dropout;  // unless these have a rate of their own
  Fp8 fp8 = Fp8::kOff;                      // products of layers in 8 or 4 bits
  SkippedLayers fp8_skip;                   // but of these
  Lora lora;  // on: all weights are frozen, adapters beside them are trained
  bool master_weights =
      true;  // 16-bit weights have an fp32 copy that the optimizer updates, and fp32 moments; false:
             // both are in 16 bits alone

  double AttentionDropout() const { return attention_dropout.value_or(dropout); }
  // Of one of `layers`; -1: of none.
  Fp8 RecipeOf(int64_t layer, int64_t layers) const {
    return fp8_skip.Hold(layer, layers) ? Fp8::kOff : fp8;
  }
};

template <class E>
using NameRow = std::pair<const char*, E>;

inline constexpr NameRow<Precision> kPrecisionNames[] = {
    {"fp32", Precision::kFp32},
    {"tf32", Precision::kTf32},
    {"fp16", Precision::kFp16},
    {"bf16", Precision::kBf16},
};
inline constexpr NameRow<Optimizer> kOptimizerNames[] = {
    {"sgd", Optimizer::kSgd},   {"adam", Optimizer::kAdam},         {"adamw", Optimizer::kAdamW},
    {"lamb", Optimizer::kLamb}, {"adam8bit", Optimizer::kAdam8bit}, {"muon", Optimizer::kMuon},
};
template <class E, std::size_t N>
constexpr const char* NameIn(const NameRow<E> (&table)[N], E value) {
  for (const auto& row : table) {
    if (row.second == value) return row.first;
  }
  return "?";
}

}  // namespace orrery
