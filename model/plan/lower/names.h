// SPDX-License-Identifier: Apache-2.0
// The choices of a layout, as flags, files and output spell them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "model/plan/lower/strategy.h"

namespace orrery {

// Short names of choices of recomputation; RecomputeText() and ReadRecompute() know all of them.
inline constexpr NameRow<Recompute> kRecomputeNames[] = {
    {"none", Recompute::kNone},
    {"selective", Recompute::kSelective},
    {"full", Recompute::kFull},
    {"op", Recompute::kByOp},
};
inline constexpr NameRow<RecomputeModule> kRecomputeModuleNames[] = {
    {"core_attn", kRecomputeCoreAttention},
    {"layernorm", kRecomputeNorms},
    {"mlp_act", kRecomputeActivation},
    {"mlp", kRecomputeMlp},
    {"key_proj", kRecomputeKeys},
    {"attn_proj", kRecomputeOut},
    {"mlp_up", kRecomputeUp},
    {"full", kRecomputeLayer},
};
// "none", "selective" (core_attn), "full", "op" (torchtitan's choice by operation), modules as "core_attn+mlp"; of the first 5 layers of each chunk "full:5", of
// each second layer "full/2".
std::string RecomputeText(const Recompute& recompute);
std::optional<Recompute> ReadRecompute(std::string_view text);  // nullopt: no such text
inline constexpr const char* kRecomputeForms =
    "none, selective, full, op, or modules as core_attn+layernorm+mlp_act+mlp+key_proj+attn_proj+"
    "mlp_up; full:5 of the first 5 layers of each chunk, full/2 of each second layer";

// Layers at the start and at the end: "1,1".
std::optional<SkippedLayers> ReadSkippedLayers(std::string_view text);  // nullopt: no such text

// "none", or one or several of "optimizer", "optimizer:0.5" (half of the parameters), "weights", "activations" joined by +.
std::string OffloadText(const Offload& offload);
std::optional<Offload> ReadOffload(std::string_view text);  // nullopt: no such text
inline constexpr const char* kOffloadForms =
    "none, or optimizer, weights, activations joined by +, as optimizer+weights; optimizer:0.5 for "
    "half of the parameters, activations:20 for the first 20 layers of each chunk";

// The order of axes, innermost first, and the nodes behind it: "tp-cp-pp-dp:0..3,8,4..7"; either part alone.
std::string PlacementText(const Placement& placement);
std::string NodeOrderText(const std::vector<int32_t>& nodes);   // "0..3,8,4..7"
std::optional<Placement> ReadPlacement(std::string_view text);  // nullopt: no such text
inline constexpr const char* kPlacementForms =
    "tp-cp-dp-pp (data ranks inside of stages) or tp-cp-pp-dp, then nodes in the order of ranks: "
    "tp-cp-pp-dp:0..3,8..11,4..7; either part alone";

inline constexpr NameRow<CpMethod> kCpMethodNames[] = {
    {"allgather", CpMethod::kAllGather},
    {"ring", CpMethod::kRing},
    {"ulysses", CpMethod::kUlysses},
    {"a2a_ring", CpMethod::kA2aRing},
};
inline constexpr NameRow<AdapterSplit> kAdapterSplitNames[] = {
    {"rows", AdapterSplit::kRows},
    {"columns", AdapterSplit::kColumns},
    {"columns_a2a", AdapterSplit::kColumnsA2a},
};
inline constexpr NameRow<PipelineSchedule> kScheduleNames[] = {
    {"gpipe", PipelineSchedule::kGpipe},
    {"1f1b", PipelineSchedule::k1F1B},
    {"interleaved", PipelineSchedule::kInterleaved},
    {"zero-bubble", PipelineSchedule::kZeroBubble},
    {"zero-bubble-v", PipelineSchedule::kZeroBubbleV},
};

}  // namespace orrery
