// SPDX-License-Identifier: Apache-2.0
// What is broken in a cluster: links that run below their rate, NICs that are gone.
//
// A slow link keeps its routes. A failed NIC takes all its links with it (their capacity becomes 0,
// the Boost graph loses them); routes then lead through the nearest NICs that its node has left.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/base/diagnostics.h"
#include "model/hardware/cluster.h"

namespace orrery {

struct NicFaults {
  // By node with a failed NIC, then by GPU: the nearest NICs that work.
  std::unordered_map<int64_t, std::vector<std::vector<int>>> nearest;
};

// Two ranks that nothing connects any more. "ACTION: no route from rank 3 to rank 8: ...".
class NoRoute : public InputError {
 public:
  NoRoute(int64_t from, int64_t to, int64_t isolated_node, const std::string& action = "");
  NoRoute Of(const std::string& action) const { return {from_, to_, node_, action}; }

  int64_t from() const { return from_; }  // rank
  int64_t to() const { return to_; }      // rank

 private:
  int64_t from_, to_, node_;
};

// Directed links by name, "n0.nic1 -> leaf2": '>' does for the arrow, blanks do not count, '*' and
// '?' stand for any characters, "a <-> b" is both directions. In order of ids.
std::vector<LinkId> MatchLinks(const Cluster& cluster, std::string_view pattern);

// For a name that matches nothing: the links of that device, or the nearest names.
std::string SuggestLink(const Cluster& cluster, std::string_view pattern);

// Links run at this share of their rate, above 0 and at most 1.
void DegradeLinks(std::span<const LinkId> links, double share, Cluster* cluster);

struct NicOfNode {
  int64_t node = 0;
  int nic = 0;
};
// All that have failed, in one call. Both numbers must be in range.
void FailNics(std::span<const NicOfNode> nics, Cluster* cluster);

}  // namespace orrery
