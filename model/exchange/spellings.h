// SPDX-License-Identifier: Apache-2.0
// Old spellings, and those of command lines, as the settings that the mapping knows.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/exchange/setting.h"
#include "model/exchange/target.h"

namespace orrery::exchange {

// "false", "none", "no" and the like.
bool Off(const std::string& value);

// The first setting of that key; end(): there is none.
Settings::iterator FindKey(Settings* settings, std::string_view key);
bool HasKey(const Settings& settings, std::string_view key);

// What a value is that no file says: "auto" of DeepSpeed, which the Trainer fills in at run time.
inline constexpr const char* kAuto = "auto";

// What a dump of Megatron's arguments tells by those that it has: a release of 2024 or later, or one before flash attention.
inline constexpr const char* kRecentMegatron = "MEGATRON_SINCE_2024";
inline constexpr const char* kBeforeFlash = "MEGATRON_BEFORE_FLASH";

// Whether settings say that a Trainer shards, by FSDP or by DeepSpeed, or that it does not.
bool SaysSharding(const Settings& settings);

// Renames settings and fills in what the target itself derives from others; `layers`: of the model, where it is known.
// What a reader should know is added to `notes`.
void Respell(Target target, std::optional<int64_t> layers, Settings* settings,
             std::vector<std::string>* notes);

// The part of it for the Trainer, TRL, LLaMA-Factory and Accelerate. Throws InputError: what is not read of them.
void RespellAccelerate(Settings* settings, std::vector<std::string>* notes);

// The part of it for flags of programs around the Trainer. Throws InputError: nothing is trained, or what plans do not have.
void RespellTrainerFlags(Settings* settings, std::vector<std::string>* notes);

// What an optimizer of the Trainer's (optim) is that plans do not have; null: it is not known here.
const char* OptimizerNotModelled(std::string_view optim);

// Whether settings ask for adapters, of TRL or LLaMA-Factory; ADAPTERS: of another file.
bool AsksAdapters(const Settings& settings);

// The part of it for adapters by other programs' flags. Throws InputError: they are asked for, and not wholly said.
void RespellAdapters(Settings* settings, std::vector<std::string>* notes);

// The part of it for FSDP under the Trainer and Accelerate. Throws InputError: no choice of that release.
void RespellFsdp(Settings* settings, std::vector<std::string>* notes);

// The part of it for Megatron-LM and its forks.
void RespellMegatron(Settings* settings, std::vector<std::string>* notes);

// Where a program lets its command line win over its configuration, the settings that lose are taken away, and `notes`
// says so.
void LetFlagsWin(Target target, Settings* settings, std::vector<std::string>* notes);

// Whether DeepSpeed reads a key at the top of its configuration: it takes others without a word.
bool IsKeyOfDeepSpeed(std::string_view key);
// The same of a key inside of its zero_optimization, whose class takes no other.
bool IsKeyOfZero(std::string_view key);

// Whether a setting that nothing reads changes neither the time nor the memory of a step. No: it does, or it is not known here.
bool IsHarmless(Target target, std::string_view key);

// What a setting changes that plans do not know: "CUDA graphs"; null: nothing that is known.
const char* NotModelled(Target target, const Setting& setting);
// Whether it is such a setting, with a value that plans have.
bool IsAsModelled(Target target, const Setting& setting);

}  // namespace orrery::exchange
