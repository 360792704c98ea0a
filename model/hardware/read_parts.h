// SPDX-License-Identifier: Apache-2.0
// The parts of a topology file, each read and checked on its own.
#pragma once

#include <string>
#include <vector>

#include "model/base/node.h"
#include "model/hardware/spec.h"

namespace orrery {

// A path of a file and not a name of the catalogue: it contains '/' or ends in .yaml, .yml or .json.
bool LooksLikePath(const std::string& text);

// The `node` map. Problems go to the node's diagnostics.
NodeSpec ReadNodeSpec(const Node& node);

// The `fabric` map under `root` into spec->fabric; needs spec->node and spec->max_nodes. Absent
// means no fabric, which needs max_nodes 1.
void ReadFabric(const Node& root, TopologySpec* spec);

// Switches, hosts and links of a named fabric; needs spec.node and spec.max_nodes.
void ReadNamedFabric(const Node& map, const TopologySpec& spec, FabricSpec* fabric);

}  // namespace orrery
