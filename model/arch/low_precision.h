// SPDX-License-Identifier: Apache-2.0
// Recipes of low-precision training: which type the products of layers have, and over what blocks their scales go.
//
// Forward, input-gradient and weight-gradient products of a layer's linear maps run in 8 or 4 bits; embedding, head, norms,
// attention and the residual stream stay in the precision of the job. Source: TransformerEngine common/recipe/__init__.py
// and docs/features/low_precision_training (per-tensor delayed and current scaling, blocks of DeepSeek-V3, MXFP8, NVFP4).
#pragma once

#include <cstdint>
#include <utility>

namespace orrery {

// kDelayed, kCurrent: one scale per tensor, from earlier steps or from the tensor itself.
enum class Fp8 { kOff, kDelayed, kCurrent, kBlockwise, kMxfp8, kNvfp4 };

// What a matrix product multiplies. kPlain: the precision of the job.
enum class ProductType : uint8_t { kPlain, kFp8, kFp8Block, kMxfp8, kNvfp4 };
inline constexpr int kProducts = 5;

inline constexpr std::pair<const char*, Fp8> kFp8Names[] = {
    {"off", Fp8::kOff},         {"delayed", Fp8::kDelayed},
    {"current", Fp8::kCurrent}, {"blockwise", Fp8::kBlockwise},
    {"mxfp8", Fp8::kMxfp8},     {"nvfp4", Fp8::kNvfp4},
};
inline constexpr std::pair<const char*, ProductType> kProductNames[] = {
    {"plain", ProductType::kPlain},        {"fp8", ProductType::kFp8},
    {"fp8_block", ProductType::kFp8Block}, {"mxfp8", ProductType::kMxfp8},
    {"nvfp4", ProductType::kNvfp4},
};

// Layers at the start and the end of a model whose products stay in the precision of the job. Source: Megatron-LM
// megatron/core/fp8_utils.py, is_first_last_bf16_layer.
struct SkippedLayers {
  int first = 0, last = 0;
  bool any() const { return first > 0 || last > 0; }
  bool Hold(int64_t layer, int64_t layers) const {
    return layer >= 0 && (layer < first || (last > 0 && layer >= layers - last));
  }
  int64_t key() const { return first * int64_t{1'000'000} + last; }
  bool operator==(const SkippedLayers&) const = default;
};

struct RecipeForm {
  ProductType product = ProductType::kPlain;
  int block = 0;         // elements along the sum of a product that share a scale; 0: the tensor
  int weight_block = 1;  // rows of a weight that share it, too
  int multiple = 1;      // of which every extent of a product is one
};
constexpr RecipeForm FormOf(Fp8 recipe) {
  switch (recipe) {
    case Fp8::kOff:
      return {};
    case Fp8::kDelayed:
    case Fp8::kCurrent:
      return {ProductType::kFp8, 0, 1, 16};
    case Fp8::kBlockwise:
      return {ProductType::kFp8Block, 128, 128, 128};
    case Fp8::kMxfp8:
      return {ProductType::kMxfp8, 32, 1, 32};
    case Fp8::kNvfp4:
      return {ProductType::kNvfp4, 16, 16, 16};
  }
  return {};
}

}  // namespace orrery
