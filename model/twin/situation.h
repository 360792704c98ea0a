// SPDX-License-Identifier: Apache-2.0
// Where a run lies in scale and shape: what a calibration covers, and what lies outside of it.
#pragma once

#include <array>
#include <cstdint>

#include "model/arch/model_spec.h"
#include "model/plan/lower/strategy.h"

namespace orrery {

enum Feature {
  kAtNodes,
  kAtRanks,
  kAtLayers,
  kAtHidden,
  kAtSeqLen,
  kAtMicroTokens,
  kAtTensor,
  kAtStages,
  kAtContext,
  kFeatures
};
inline constexpr const char* kFeatureNames[kFeatures] = {
    "nodes",           "GPUs",
    "layers",          "hidden",
    "sequence length", "tokens per micro-batch",
    "tensor parallel", "pipeline stages",
    "context parallel"};
// "1 layer".
inline constexpr const char* kOneFeature[kFeatures] = {"node",
                                                       "GPU",
                                                       "layer",
                                                       "hidden",
                                                       "sequence length",
                                                       "token per micro-batch",
                                                       "tensor parallel",
                                                       "pipeline stage",
                                                       "context parallel"};
using Situation = std::array<double, kFeatures>;

inline Situation SituationOf(const ModelSpec& model, const Workload& work, const Strategy& strategy,
                             int64_t nodes) {
  Situation at{};
  at[kAtNodes] = static_cast<double>(nodes);
  at[kAtRanks] = static_cast<double>(strategy.ranks());
  at[kAtLayers] = static_cast<double>(model.layers + model.decoder_layers);
  at[kAtHidden] = static_cast<double>(model.hidden);
  at[kAtSeqLen] = static_cast<double>(work.seq_len);
  at[kAtMicroTokens] = static_cast<double>(work.seq_len) * strategy.micro_batch / strategy.cp;
  at[kAtTensor] = strategy.tp;
  at[kAtStages] = strategy.pp;
  at[kAtContext] = strategy.cp;
  return at;
}

}  // namespace orrery
