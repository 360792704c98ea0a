// SPDX-License-Identifier: Apache-2.0
// A topology file from what was observed: every line names its source, or says that it is assumed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/discover/observed.h"
#include "model/hardware/spec.h"

namespace orrery::discover {

// In the head of every file that is written.
inline constexpr const char* kWrittenBy = "# Written by plan discover";

// What the user says beside the files; empty: nothing.
struct Choices {
  std::string name;  // of the topology
  std::string gpu;   // id of the catalogue
  std::optional<int64_t> nodes;
  Location nodes_where = {};  // of the flag
};

struct Discovered {
  std::string yaml;
  TopologySpec spec;                 // as the reader of topologies takes it
  std::vector<std::string> assumed;  // "node.nics.rate: as aws-p4d"
  std::vector<std::string> notes;
  std::vector<LeftOut> left_out;  // also in the notes
  std::string nearest;            // of the catalogue; "": none is like it
};

// Throws InputError: too little is known, or sources contradict one another.
Discovered WriteTopology(const Observed& seen, const Choices& choices);

// Names in the catalogue that the vendor's name of the machine means; several where such machines
// differ in their GPU, the first is taken where nothing tells it. Empty: the name is not known.
std::vector<std::string> NamedTopologies(const Observed& seen);

// The topology of the catalogue whose machines these are: by the vendor's name of the machine, else
// by GPU, GPUs and NICs. nullopt: none.
std::optional<TopologySpec> NearestTopology(const Observed& seen, const std::string& gpu);

// The topology whose nodes have so many of this GPU: what joins GPUs in a node goes with both, whatever the
// network. nullopt: none.
std::optional<TopologySpec> SameNode(const std::string& gpu, int64_t gpus);

}  // namespace orrery::discover
