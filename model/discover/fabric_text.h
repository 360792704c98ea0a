// SPDX-License-Identifier: Apache-2.0
// The fabric of a topology file from switches and hosts by name.
#pragma once

#include <string>
#include <vector>

#include "model/discover/observed.h"

namespace orrery::discover {

// Appends `  hosts:` of a named fabric, by node: those of hostfiles in their order, then the rest in natural
// order. Without a hostfile a comment that says what applies: natural order of all.
void AppendHostOrder(const Observed& seen, std::string* yaml);

// Throws InputError, at the line of a source: switches that form a loop, are described nowhere, or have no nodes.
void CheckSwitches(const Observed& seen);

// Appends `fabric:` with kind named; links carry the rate of all hosts below (`per_host` each), which
// no source states. Throws InputError: hosts on no switch or on two, switches in a loop.
void AppendNamedFabric(const Observed& seen, BytesPerSecond per_host, std::string* yaml,
                       std::vector<std::string>* assumed);

}  // namespace orrery::discover
