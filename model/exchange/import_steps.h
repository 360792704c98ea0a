// SPDX-License-Identifier: Apache-2.0
// Steps of an import that need nothing but their arguments.
#pragma once

#include <string>

#include "model/exchange/mapping.h"

namespace orrery::exchange {

// Adds the launcher's words in the target's.
void TakeLaunch(Target target, const Settings& launch, Settings* settings);

// Of --framework: whose behaviour predicts a job with these values.
std::string FrameworkOf(Target target, const Values& values);

// What means nothing without tensor parallelism, stages or shards; equal stages are what happens without a layout.
void DropNoEffect(Values* values);

// FrameworkWords() back: "compile off, tp_async on" as --fact takes it.
std::string FactWords(std::string words);

}  // namespace orrery::exchange
