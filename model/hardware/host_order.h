// SPDX-License-Identifier: Apache-2.0
// Which host of a named fabric is which node: as its list `hosts` says, else by name in natural order.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "model/hardware/spec.h"

namespace orrery {

// Numbers in names count as numbers: node2 before node10.
bool NaturallyLess(std::string_view a, std::string_view b);

// Hosts are numbered by name, be it because their list says the same.
bool NumberedByName(const FabricSpec& fabric);

// "nodes 0 to 3 are node0, node1, node2, node3, in natural order of names"; "": no named fabric.
std::string NumberingText(const FabricSpec& fabric);

// Behind the numbers of nodes: " (node4 .. node7)"; "" where hosts have no names.
std::string HostsText(const FabricSpec& fabric, int64_t first, int64_t last);

}  // namespace orrery
