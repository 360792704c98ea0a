// SPDX-License-Identifier: Apache-2.0
// Doors of a node on all its addresses, and attempts at those of others.
#pragma once

#include <atomic>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "runtime/program/launch/launch.h"

namespace orrery::launch {

enum class Loopback { kNo, kToo, kAlone };

// Listens until it is destroyed, at each address of this node, and at loopback where it may be needed.
class ProbeDoors {
 public:
  ProbeDoors(Loopback loopback, const std::string& secret, int64_t rank);
  ~ProbeDoors();
  const std::vector<NodeAddress>& addresses() const { return addresses_; }

 private:
  std::vector<NodeAddress> addresses_;
  std::vector<std::thread> threads_;
  std::atomic<bool> done_{false};
};

struct ProbeTarget {
  int64_t rank = 0;
  std::string address;
  int port = 0;
};
// By target, whether it answers and proves to be that node within the time. All at once.
std::vector<bool> Probe(const std::vector<ProbeTarget>& targets, int64_t own_rank,
                        const std::string& secret, double seconds);

// As they stand in messages.
nlohmann::json AddressesJson(const std::vector<NodeAddress>& addresses);
std::vector<NodeAddress> ReadAddresses(const nlohmann::json& list);
nlohmann::json TargetsJson(const std::vector<ProbeTarget>& targets);
std::vector<ProbeTarget> ReadTargets(const nlohmann::json& list);

}  // namespace orrery::launch
