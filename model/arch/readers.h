// SPDX-License-Identifier: Apache-2.0
// The two model file formats. Use LoadModel() in catalogue.h unless the text is already at hand.
#pragma once

#include <string>

#include "model/arch/catalogue.h"
#include "model/base/node.h"

namespace orrery {

// Upper bounds that keep every count far from overflow; beyond them a file is wrong, not large.
inline constexpr int64_t kMaxLayers = 10'000;
inline constexpr int64_t kMaxWidth = int64_t{1} << 20;
inline constexpr int64_t kMaxFfn = int64_t{1} << 22;
inline constexpr int64_t kMaxHeads = 4'096;
inline constexpr int64_t kMaxHeadDim = 4'096;
inline constexpr int64_t kMaxVocab = int64_t{1} << 26;
inline constexpr int64_t kMaxPositions = int64_t{1} << 24;
inline constexpr int64_t kMaxSmall = int64_t{1} << 16;  // token types, relative buckets

// This project's YAML (scenarios/models/README.md lists the keys). Unknown keys are errors.
LoadedModel ReadModelYaml(SourcePtr source);

// A HuggingFace config.json: each key is used, has no effect for a known reason, or is refused by name. Without
// `model_type` the family is inferred from `architectures` or from the keys, and a note says so.
LoadedModel ReadHfConfig(SourcePtr source, const std::string& name);

}  // namespace orrery
