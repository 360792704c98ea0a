// SPDX-License-Identifier: Apache-2.0
// Rules of the mapping where a field and a setting are not one to one.
#pragma once

#include <string>

#include "model/exchange/mapping.h"

namespace orrery::exchange {

// Text of a field's value: a whole number, on or off.
template <class T>
std::string Text(T number) {
  return std::to_string(number);
}
inline std::string OnOff(bool on) { return on ? "on" : "off"; }

// A value read before; `missing` where it is absent or no number.
int64_t NumberOf(const Values& values, const char* field, int64_t missing);

// Ranks that hold one replica: tp x pp x cp.
inline int64_t ModelRanks(const Values& values) {
  return NumberOf(values, "tp", 1) * NumberOf(values, "pp", 1) * NumberOf(values, "cp", 1);
}

// Ranks with sequences of their own, of the GPUs that a launcher or a dump counts. nullopt: nothing counts them, or degrees do not
// divide them.
std::optional<int64_t> ReplicasOf(const SettingIndex& settings, const Values& values);

Written Say(Settings settings);
Written No(std::string why);
Written Default(std::string why);
Setting Set(std::string key, std::string value);
Setting Set(std::string key, int64_t value);
std::optional<Value> From(const Setting* setting, std::string text);

// Megatron's --pipeline-model-parallel-layout: "Ettt|ttt|ttL", and the list that --layout takes. Throws InputError: a text
// that is no such layout, or with layers that are no transformer layers.
[[noreturn]] void RefuseLayout(const Setting& setting, const std::string& why);
std::string MegatronLayout(const std::vector<int>& layers);
std::vector<int> LayersOfMegatronLayout(const Setting& setting);
std::string ListText(const std::vector<int>& layers);  // "5,10x6,5"

inline bool EvenStages(const Case& c) { return LayoutText(c) == "even"; }

// A list as the command line, a dump or an override has it: "a b", "['a', 'b']", "[a,b]".
std::vector<std::string> WordsOf(const std::string& text);

// How sequences are shared, the ranks of its two levels (first those that exchange all-to-all), and the ZeRO stage.
Cell MegatronContext(const char* key);
Cell MegatronLevels(const char* key, bool bridge);
Cell MegatronShards();
// How virtual stages and layers by chunk are spelled.
Cell MegatronVirtualStages();
Cell MegatronUnevenStages(bool bridge);
// Why Megatron does not start with so many layers (known: with flags): they do not divide, and nothing says how they lie.
std::optional<Diagnostic> UnevenStages(const SettingIndex& settings, int64_t layers,
                                       const Values& known, bool bridge);
Cell TitanVirtualStages();
Cell TitanLayout(const char* head);  // `head`: the module of the last projection
// Degrees of data parallelism and the ZeRO stage of torchtitan, which has two degrees and a policy.
Cell TitanShards();
Cell TitanReplicas();
Cell TitanAsync(const char* key);
Cell TitanZero();
// Products in 8 and 4 bits. Megatron-Bridge has a configuration of its own for them, which wins over the model's.
Cell MegatronRecipes();
Cell MegatronSkippedLayers();
Cell BridgePrecision(const char* tf32);  // why that is no setting
Cell BridgeRecipes();
Cell BridgeSkippedLayers();
Cell BridgeHeldWeights();
Cell TitanLowPrecision();
Cell TitanSkippedLayers();
// What a list of torchao's filters leaves in 16 bits, in a model of so many layers (0: unknown).
struct Filtered {
  bool head = false;
  SkippedLayers skipped;
  std::vector<std::string> others;
};
Filtered ReadFilters(std::string list, int64_t layers);
Cell TitanHeldWeights();
// Batches.
Cell TitanTokens();
Cell TitanGlobalTokens();
Cell TomlLocalBatch();
Cell TomlGlobalBatch();
// torchtitan drains its pipeline every local_batch_size sequences of a rank (trainer.py: one step of the pipeline for each step
// of accumulation). Plans drain it once per step; what is said of a file that asks for more.
std::optional<Diagnostic> PassesOfPipeline(const SettingIndex& settings, const Values& values);
Cell DeepSpeedMicroBatch();
Cell DeepSpeedBatch();
Cell MegatronBatch();
// A batch that a file says by other numbers than its own, of which one is unknown.
struct OpenBatch {
  Location where;
  std::string what, hint;
  bool searched = false;  // the micro-batch is unknown, too: a plan chooses it
  bool micro = false;     // it alone is unknown
};
// nullopt: the batch is known, or nothing is said of it.
std::optional<OpenBatch> DeepSpeedOpenBatch(const SettingIndex& settings, const Values& values);
std::optional<OpenBatch> MegatronOpenBatch(const SettingIndex& settings, const Values& values);
Cell AccumulationOf(const char* micro, const char* accumulation);  // a field and a setting
// Types of gradients.
Cell MegatronGradType();
Cell DeepSpeedGradType();
// DeepSpeed's hybrid sharding.
Cell DeepSpeedReplicas();
Cell DeepSpeedOverlap();
Cell AccelerateOverlap();
Cell AccelerateZero(Cell choices);  // `choices`: of FSDP and replicas, and what files may say
Cell AccelerateShards();
Cell AccelerateReplicas();
Cell MegatronAttention(const char* key);
Cell MegatronOverlap(const char* key);
Cell MegatronGather(const char* on, const char* value);
Cell AccelerateRecompute();
Cell BridgeLora(const char* key);        // rank or alpha; recipes for fine-tuning have their own
Cell AccelerateLora(const char* field);  // of TRL and LLaMA-Factory; by a field of adapters
Cell AccelerateUnread();                 // FSDP's checkpoints are not reentrant, the Trainer's are
Cell MegatronRecompute(bool bridge);
// Of modules in its list that layers of a plan do not have; "": nothing to say.
std::string OtherModulesNote(const SettingIndex& settings, bool bridge);
Cell TomlRecompute();
// States and activations on the host.
Cell MegatronOffload(bool bridge);
Cell MegatronHeldWeights();
Cell DeepSpeedOffload();
Cell AccelerateOffload();
Cell MegatronLengths();
// Between stages without sequence parallelism; core 0.20 has no such argument any more.
Cell MegatronScatterGather();
// The order of axes has an argument in Megatron alone, that of nodes is their NODE_RANK.
Cell MegatronPlacement(const char* key, const char* on);
Cell OtherPlacement();
// `inside`: the setting that puts stages before data; null: there is none. nullopt: ranks and nodes in their order.
std::optional<Value> PlacementOf(const SettingIndex& settings, const Setting* inside);

}  // namespace orrery::exchange
