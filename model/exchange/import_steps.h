// SPDX-License-Identifier: Apache-2.0
// Steps of an import that need nothing but their arguments.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/exchange/mapping.h"
#include "model/exchange/rules.h"

namespace orrery::exchange {

// Adds the launcher's words in the target's.
void TakeLaunch(Target target, const Settings& launch, Settings* settings);

// Of --framework: whose behaviour predicts a job with these values, and whose beside settings of another program.
std::string FrameworkAlone(Target target, const Values& values);
std::string FrameworkOf(Target target, const std::map<Target, Settings>& targets,
                        const SettingIndex& index, const Values& values);
// Megatron asserts that its arguments say one. nullopt: they do, or these are none of Megatron's.
std::optional<Diagnostic> NoMicroBatch(const std::map<Target, Settings>& targets,
                                       const Values& values, const Values& given);
// Why there is no model, where the files say something of it: a flavor that no registry has, a name of HuggingFace's hub, the base of adapters, words that only a shell knows.
std::optional<Diagnostic> NoModel(const Setting* flavor, const Setting* hub,
                                  const Settings& records, const Settings& unread);
// What follows from a file of DeepSpeed, and is no setting of it, is a default beside what another program's settings say.
void LetOthersSay(const SettingIndex& index, Values* values);

// The release whose spellings these are, "@2024"; "": that of the target, or no telling.
std::string ReleaseOf(Target target, const Settings& settings);

// The key among `asked` that a slip of the finger, or a word too few, turned into this one; "": none.
std::string MeantBy(const std::string& key, const std::vector<std::string>& asked);

// Of settings that nobody asked for: what is not modelled, what has no effect, what the target does not know, with what may be
// meant. `files`: settings that name files, which are spoken of elsewhere.
std::vector<std::string> UnusedNotes(Target target, const SettingIndex& index,
                                     const Settings& files);

// What means nothing without tensor parallelism, stages or shards; equal stages are what happens without a layout.
void DropNoEffect(const Values& given, Values* values);

// What torchao's filters of a torchtitan file convert otherwise than a plan, which keeps the head alone in 16 bits; "":
// nothing.
std::string FilterNote(const SettingIndex& index, const Values& values);

// FrameworkWords() back: "compile off, tp_async on" as --fact takes it.
std::string FactWords(std::string words);

// Of fp32 that no setting says; "": nothing to say.
std::string PrecisionNote(const std::map<Target, Settings>& targets, const Values& values,
                          const Values& given);
// Of SGD, whose momentum in Megatron plans do not know; "": nothing to say.
std::string MomentumNote(const SettingIndex& index, const Values& values);
// Of DeepSpeed's gradients that are reduced in another type than they are kept in; "": nothing to say.
std::string ReductionNote(const SettingIndex& index, const Values& values);
// Of Megatron's precision-aware optimizer, which keeps less next to bf16 weights, or other types; "": nothing to say. Throws
// InputError: what its OptimizerConfig asserts of it does not hold.
std::string StatesNote(bool bridge, const SettingIndex& index, const Values& values,
                       const Values& given);
// Of Megatron's method uniform with several layers per unit; "": nothing to say.
std::string UnitsNote(const SettingIndex& index, const Values& values);
// Of Megatron's own layers (transformer-impl local), where attention alone is predicted as theirs; "": TransformerEngine's.
std::string OwnLayersNote(const SettingIndex& index);
// 1 and 1.0 are one value.
bool SameValue(const std::string& a, const std::string& b);
// A number of nodes that nobody can read, unless another line or file says it.
std::optional<Setting> UnknownNodes(const Settings& counts, const Settings& launch,
                                    const Settings& records,
                                    const std::map<Target, Settings>& targets);
// The number of all ranks next to one of nodes: it says how many of a node's GPUs have one, unless flags say other nodes or GPUs.
// Throws InputError: more than those nodes have, or no whole number on each.
void FitWorld(const Values& given, Settings* settings, std::vector<std::string>* notes);
// A dump of Megatron's names the number of all GPUs alone, and so do mpirun -np and DeepSpeed's three batches: with those of a node in `given`, nodes.
// Throws InputError: a number of replicas that does not fit.
void TakeWorld(Target target, const SettingIndex& index, const Values& given, Values* values,
               std::vector<std::string>* notes);
// Samples of a step are a whole number of micro-batches on every rank, and degrees divide the GPUs. Throws InputError.
void CheckBatch(Target target, const Values& values);
// What Megatron asserts of tensor parallelism. Throws InputError.
void CheckMegatron(const SettingIndex& index, const Values& values, const Values& given);
// Of a torchtitan file without a global batch.
OpenBatch LocalBatchAlone(const Settings& settings);
// Offloaded activations of all of `layers` but the last, which stay anyway, are those of all.
void NameAllLayers(int layers, Values* values);
// Whose file a setting of that key names.
Target TargetOfNamed(const std::string& key);

}  // namespace orrery::exchange
