// SPDX-License-Identifier: Apache-2.0
// The names of a model's choices, as model files spell them and as output prints them.
#pragma once

#include <span>
#include <utility>

#include "model/arch/model_spec.h"

namespace orrery {

template <class E>
using NameRow = std::pair<const char*, E>;

inline constexpr NameRow<Family> kFamilyNames[] = {
    {"decoder", Family::kDecoder},
    {"encoder", Family::kEncoder},
    {"encoder-decoder", Family::kEncoderDecoder},
    {"mlp", Family::kMlp},
};
inline constexpr NameRow<Norm> kNormNames[] = {
    {"layer-norm", Norm::kLayerNorm},
    {"rms-norm", Norm::kRmsNorm},
};
inline constexpr NameRow<Activation> kActivationNames[] = {
    {"gelu", Activation::kGelu},
    {"relu", Activation::kRelu},
    {"swiglu", Activation::kSwiglu},
    {"relu2", Activation::kRelu2},
};
inline constexpr NameRow<Positions> kPositionsNames[] = {
    {"learned", Positions::kLearned},
    {"rotary", Positions::kRotary},
    {"relative-bias", Positions::kRelativeBias},
    {"alibi", Positions::kAlibi},
    {"none", Positions::kNone},
};
inline constexpr NameRow<QkNorm> kQkNormNames[] = {
    {"none", QkNorm::kNone},
    {"head", QkNorm::kHead},
    {"width", QkNorm::kWidth},
};

inline constexpr NameRow<RopeScaling::Kind> kRopeScalingNames[] = {
    {"default", RopeScaling::Kind::kNone},
    {"linear", RopeScaling::Kind::kLinear},
    {"llama3", RopeScaling::Kind::kLlama3},
    {"yarn", RopeScaling::Kind::kYarn},
};

template <class E>
constexpr const char* NameIn(std::span<const NameRow<E>> table, E value) {
  for (const auto& row : table) {
    if (row.second == value) return row.first;
  }
  return "?";
}
constexpr const char* Name(Family value) { return NameIn<Family>(kFamilyNames, value); }
constexpr const char* Name(Norm value) { return NameIn<Norm>(kNormNames, value); }
constexpr const char* Name(Activation value) { return NameIn<Activation>(kActivationNames, value); }
constexpr const char* Name(Positions value) { return NameIn<Positions>(kPositionsNames, value); }
constexpr const char* Name(QkNorm value) { return NameIn<QkNorm>(kQkNormNames, value); }
constexpr const char* Name(RopeScaling::Kind value) {
  return NameIn<RopeScaling::Kind>(kRopeScalingNames, value);
}

}  // namespace orrery
