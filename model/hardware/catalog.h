// SPDX-License-Identifier: Apache-2.0
// Finds and reads topology files.
#pragma once

#include <string>
#include <vector>

#include "model/base/diagnostics.h"
#include "model/hardware/spec.h"

namespace orrery {

// Names of topologies/*.yaml, sorted.
std::vector<std::string> TopologyNames();

// A name of the catalogue, or the path of a file (it contains '/' or ends in .yaml, .yml or .json).
// Throws InputError: unknown name with the nearest ones, or everything wrong in the file.
TopologySpec LoadTopology(const std::string& name_or_path);

// Reads one topology from text. Problems go to `diagnostics`; the result is usable only when ok().
TopologySpec ReadTopology(SourcePtr source, Diagnostics* diagnostics);

}  // namespace orrery
