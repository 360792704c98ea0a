// SPDX-License-Identifier: Apache-2.0
// train.sh: starts the ranks of one node, or is one rank where RANK is set.
#pragma once

#include <string>
#include <vector>

#include "model/exchange/bundle.h"

namespace orrery::exchange {

// Header, environment, and the check that the number of GPUs is that of the layout.
std::string ScriptHead(const Bundle& bundle);
// name=( ... ) with one setting per line.
std::string ArgumentArray(const std::string& name, const Settings& settings);
// Variables of the user's that train.sh reads, but for those that a launcher sets.
std::vector<std::string> VariablesOf(Target target);
// Bash that puts the names of exported variables that go to every node into the array `passed`: those of train.sh, of
// libraries, and the names in ORRERY_PASS.
std::string PassedVariables(Target target, const std::string& indent = "");
// start=( ... ): torchrun, or python3 where the launcher starts every rank; then `exec` of `command`.
std::string ScriptTail(const Bundle& bundle, const std::string& command);

File MegatronScript(const Bundle& bundle);
File BridgeScript(const Bundle& bundle);
std::vector<File> DeepSpeedFiles(const Bundle& bundle);
std::vector<File> AccelerateFiles(const Bundle& bundle);
std::vector<File> TitanFiles(const Bundle& bundle);
std::vector<File> TorchFiles(const Bundle& bundle);

}  // namespace orrery::exchange
