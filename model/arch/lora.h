// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters beside frozen weights (LoRA, Hu et al. 2021, arXiv:2106.09685).
//
// Of a target map y = x W' with W [out, in]: y = x W' + alpha / rank (x A') B', A [rank, in], B [out, rank]. A and B alone are
// trained; B starts at zero, so that training starts from the frozen model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace orrery {

// Linear maps of a layer. Queries, keys and values are one map, and so are gate and up projection.
enum LoraTarget : uint8_t {
  kLoraQkv = 1,
  kLoraProj = 2,
  kLoraFc1 = 4,
  kLoraFc2 = 8,
  kLoraAll = 15
};

// By Megatron's names (NeMo and Megatron-Bridge: target_modules of LoRA).
inline constexpr std::pair<const char*, LoraTarget> kLoraTargetNames[] = {
    {"linear_qkv", kLoraQkv},
    {"linear_proj", kLoraProj},
    {"linear_fc1", kLoraFc1},
    {"linear_fc2", kLoraFc2}};

// What the frozen weights of linear maps are kept in (model/plan/ir/packed.h). kPlain: what --precision says.
enum class LoraBase : uint8_t { kPlain, kInt8, kNf4, kFp8 };
inline constexpr std::pair<const char*, LoraBase> kLoraBaseNames[] = {{"plain", LoraBase::kPlain},
                                                                      {"int8", LoraBase::kInt8},
                                                                      {"nf4", LoraBase::kNf4},
                                                                      {"fp8", LoraBase::kFp8}};

struct Lora {
  int rank = 0;  // 0: every weight is trained
  double alpha = 32;
  uint8_t targets = kLoraAll;
  LoraBase base = LoraBase::kPlain;

  bool on() const { return rank > 0; }
  bool packed() const { return on() && base != LoraBase::kPlain; }
  int64_t key() const {  // of all but alpha, which changes neither time nor memory
    return (int64_t{rank} * 16 + targets) * 4 + static_cast<int64_t>(base);
  }
  bool targets_map(LoraTarget map) const { return on() && (targets & map) != 0; }
  double scale() const { return alpha / rank; }
  bool operator==(const Lora&) const = default;
};

// Reads a list of target modules, between commas or semicolons: Megatron's names, HuggingFace's
// (q_proj, ..., down_proj) or all-linear. q_proj, k_proj and v_proj stand together, and so do
// gate_proj and up_proj: one A for the fused map, where PEFT has one for each. Throws InputError
// without a place.
uint8_t ReadLoraTargets(std::string_view list, bool gated);
std::string LoraTargetWords(uint8_t targets);  // Megatron's names, with commas

}  // namespace orrery
