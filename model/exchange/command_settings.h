// SPDX-License-Identifier: Apache-2.0
// Words of a command as settings, and whose they are.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/exchange/setting.h"
#include "model/exchange/shell.h"
#include "model/exchange/target.h"

namespace orrery::exchange {

// Options of a command: --key value, --key=value, --switch, and KEY=VALUE. `lost`: words that only a shell knows and that
// are no value of an option.
Settings OptionsOf(std::span<const Word> words, Words* lost = nullptr);
// Those of a training command, whose program stands at `program`: it takes KEY=VALUE words between options, too.
Settings SettingsOf(const Words& words, std::size_t program, Words* lost);
// Whether one of the keys is there.
bool Has(const Settings& settings, std::initializer_list<const char*> keys);
// Whether such a setting of a training command names a file with more of them.
bool NamesConfiguration(const std::string& setting);
// Whether they are overrides of NeMo 1; these as arguments of Megatron. Throws InputError: what of it is not read.
bool IsNemo(const Settings& settings);
Settings ArgumentsOfNemo(const Settings& overrides, std::vector<std::string>* notes);
// What a program does instead of training a model that plans have; null: nothing that is known.
const char* OtherThanTraining(std::string_view program);
// What a program around the Trainer trains by its name: PREFERENCES (pairs of sequences), ADAPTER_PROGRAM; null: its flags say it.
const char* TrainsBesides(std::string_view program);
// By the keys; nullopt: of none that is known.
std::optional<Target> TargetOf(const Settings& settings);

}  // namespace orrery::exchange
