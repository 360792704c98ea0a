// SPDX-License-Identifier: Apache-2.0
// Parts of a step that do nothing to each other until they all communicate: replicas, up to their first
// reduction.
//
// Idea: a message across parts begins with its last member. Up to its first arrival at such a message a part depends on
// itself alone, so each runs there by itself, and its ranks, streams and events stay in the caches; from there on all run
// together in order of time. No date depends on it, as nothing acts across parts before each has arrived.
#pragma once

#include <cstdint>
#include <vector>

#include "model/engine/event/communicators.h"

namespace orrery::sim {

struct Parts {
  std::vector<std::vector<uint32_t>> ranks;  // by part, indices into CommunicatorTable::ranks
  std::vector<char> across;                  // by communicator: its members are in several parts
};

Parts OnePart(std::size_t ranks);  // nothing is across

// One part, all ranks, where replicas share links or cores, or some message joins several and not all of them.
Parts FindParts(const ir::Plan& plan, const CommunicatorTable& table);

// Mesh axes along which all ranks do the same at the same time.
AxisMask Replicas(const ir::Mesh& mesh);

}  // namespace orrery::sim
