// SPDX-License-Identifier: Apache-2.0
// Low-rank adapters beside frozen weights (LoRA, Hu et al. 2021, arXiv:2106.09685).
//
// Of a target map y = x W' with W [out, in]: y = x W' + alpha / rank (x A') B', A [rank, in], B [out, rank]. A and B alone are
// trained; B starts at zero, so that training starts from the frozen model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

namespace orrery {

// Linear maps of a layer. Queries, keys and values are one product here, and so are gate and up projection: one A for the
// whole of it, or adapters of their own on its parts, each with an A and a B (HuggingFace's PEFT, whose modules they are).
enum LoraTarget : uint16_t {
  kLoraQkv = 1,
  kLoraProj = 2,
  kLoraFc1 = 4,
  kLoraFc2 = 8,
  kLoraAll = 15,
  kLoraQ = 16,
  kLoraK = 32,
  kLoraV = 64,
  kLoraGate = 128,
  kLoraUp = 256,
  kLoraPartsOfQkv = kLoraQ | kLoraK | kLoraV,
  kLoraPartsOfFc1 = kLoraGate | kLoraUp,
};
using LoraTargets = uint16_t;  // an OR of them

// By Megatron's names (NeMo and Megatron-Bridge: target_modules of LoRA and, from linear_q on, of CanonicalLoRA).
inline constexpr std::pair<const char*, LoraTarget> kLoraTargetNames[] = {
    {"linear_qkv", kLoraQkv}, {"linear_proj", kLoraProj},     {"linear_fc1", kLoraFc1},
    {"linear_fc2", kLoraFc2}, {"linear_q", kLoraQ},           {"linear_k", kLoraK},
    {"linear_v", kLoraV},     {"linear_fc1_gate", kLoraGate}, {"linear_fc1_up", kLoraUp}};

// What the frozen weights of linear maps are kept in (model/plan/ir/packed.h). kPlain: what --precision says.
enum class LoraBase : uint8_t { kPlain, kInt8, kNf4, kFp8 };
inline constexpr std::pair<const char*, LoraBase> kLoraBaseNames[] = {{"plain", LoraBase::kPlain},
                                                                      {"int8", LoraBase::kInt8},
                                                                      {"nf4", LoraBase::kNf4},
                                                                      {"fp8", LoraBase::kFp8}};

struct Lora {
  int rank = 0;  // 0: every weight is trained
  double alpha = 32;
  LoraTargets targets = kLoraAll;
  LoraBase base = LoraBase::kPlain;

  bool on() const { return rank > 0; }
  bool packed() const { return on() && base != LoraBase::kPlain; }
  int64_t key() const {  // of all but alpha, which changes neither time nor memory
    return (int64_t{rank} * 512 + targets) * 4 + static_cast<int64_t>(base);
  }
  bool targets_map(LoraTarget map) const { return on() && (targets & map) != 0; }
  double scale() const { return alpha / rank; }
  bool operator==(const Lora&) const = default;
};

// What modules of a class of HuggingFace's models are: "qkv_proj" the whole product, "q_proj" a part of it (hf_tensors.h).
struct LoraModules {
  std::map<std::string, LoraTargets, std::less<>> targets;  // none: any class
  std::string
      type;  // of models whose modules these are; "": only like those, other names count too
};

// Reads a list of target modules, between commas or semicolons: Megatron's names, those of HuggingFace's models (q_proj, ...,
// query_key_value, c_attn) or all-linear. Modules that are parts of one product here take adapters of their own. all-linear:
// all of `modules`; of any class every map, of a gated model as those of a Llama. Throws InputError without a place.
LoraTargets ReadLoraTargets(std::string_view list, bool gated, const LoraModules& modules = {});
std::string LoraTargetWords(LoraTargets targets);  // Megatron's names, with commas

}  // namespace orrery
