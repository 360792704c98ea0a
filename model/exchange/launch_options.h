// SPDX-License-Identifier: Apache-2.0
// Options of the launchers in front of a training program, and which words are their values.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/exchange/setting.h"
#include "model/exchange/shell.h"

namespace orrery::exchange {

// Launchers by the meaning of their options.
enum class LaunchKind {
  kNone,
  kTorchrun,
  kDeepSpeed,
  kAccelerate,
  kMpirun,
  kSrun,
  kJsrun,
  kJob
};  // kJob: salloc, sbatch
LaunchKind LaunchKindOf(const std::string& text);

// "-m", behind which a module stands that may be a launcher.
bool IsModule(const std::string& option);

// Whether a word begins what srun starts, not a value of an option that nobody here knows.
bool StartsCommand(const std::string& text);

// For each word of a command whether it is the value of the option in front of it.
std::vector<bool> ValuesIn(std::span<const Word> words);

// An option of a launcher and what stands behind it.
struct LaunchOption {
  std::string key, value;
  Location where;
  std::string unresolved;
  bool dashes = false;  // "--key"
};
// Of the words behind the launcher. srun's end where its command begins.
std::vector<LaunchOption> LaunchOptions(LaunchKind launcher, std::span<const Word> words);

// torchrun's words behind it: NNODES 1, where it starts one node whatever the job has, `said` by which option.
std::optional<Setting> OneNodeOf(std::span<const Word> words);

// accelerate launch's options by the keys of its configuration.
std::optional<Setting> OfAccelerate(const LaunchOption& option);

// srun's own words among those behind it.
std::span<const Word> WordsOfSrun(std::span<const Word> words);

}  // namespace orrery::exchange
