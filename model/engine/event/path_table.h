// SPDX-License-Identifier: Apache-2.0
// Gathers all traffic before any of it is simulated, to find what need not be: links that are used
// exactly like another, narrower one, and traffic on links that nobody else uses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/engine/event/communicators.h"
#include "model/engine/network/network.h"
#include "model/hardware/traffic.h"

namespace orrery::sim {

class PathTable {
 public:
  PathTable(const Cluster& cluster, const std::vector<BytesPerSecond>& capacity)
      : cluster_(cluster), capacity_(capacity) {}

  // Adds traffic of a communicator, as Weigh() leaves it. Returns its route's number.
  int32_t Add(int32_t communicator, net::Traffic traffic, const Occupation& occupation,
              const std::string& what);

  // Registers the paths that are needed, with the links that matter; `path_uses`, if not null, gets
  // all links of each.
  std::vector<Route> Register(net::Network* network, bool set_apart,
                              std::vector<std::vector<net::LinkUse>>* path_uses) const;

  // By route: what its traffic puts on links per byte of S, all copies. Leaves nothing in the table.
  std::vector<LinkShares> TakeLinkShares();

 private:
  struct Entry {
    int32_t communicator = 0;
    int32_t route = 0;
    int32_t phase = 0;
    double bytes = 0;  // that occupy links of weight 1, per byte of S
    double cap = 0;
    LineShare share, wire;
    std::vector<net::LinkUse> uses;
    std::string what;
  };
  std::vector<char> Redundant() const;  // by link
  std::vector<int32_t> Owners() const;  // by link: the only communicator, -1 none, -2 several
  bool IsApart(const Entry& entry, const std::vector<int32_t>& owners) const;
  double AloneSeconds(std::size_t begin, std::size_t end) const;
  void CheckWires(const Entry& entry, net::Network* network) const;

  const Cluster& cluster_;
  const std::vector<BytesPerSecond>& capacity_;
  std::vector<Entry> entries_;  // by route, then phase
  int32_t routes_ = 0;
};

}  // namespace orrery::sim
