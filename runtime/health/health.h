// SPDX-License-Identifier: Apache-2.0
// The health of nodes and pairs of ranks: what is measured, and what is outside.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/hardware/spec.h"
#include "runtime/comm/communicator.h"

namespace orrery::check {

struct Bounds {
  double tolerance = 0.3;          // below the median by so much is outside
  double compute = 0, memory = 0;  // FLOP/s, bytes/s of a rank; 0: none given
  double skew = 0.01;              // seconds
  double network = 0;              // bytes/s of a pair, least; 0: no topology
  std::string topology;
};

// A rank's own figures; 0: could not be measured, and `problem` says why.
struct NodeHealth {
  std::string host;
  double compute = 0;  // FLOP/s, single precision, one thread
  double memory = 0;   // bytes/s read and written by a copy larger than caches, one thread
  double disk = 0;     // bytes/s of 64 MiB written and synced
  double skew = 0;     // seconds that the wall clock is ahead of rank 0's
  double skew_error = 0;
  std::string problem;
};

struct PairHealth {
  int64_t a = 0, b = 0;  // ranks
  double rate = 0;       // bytes/s, one direction, large messages
  double latency = 0;    // seconds, one way, 8 bytes
};

// Runs the kernels of this rank; `disk` is a folder.
NodeHealth MeasureNode(const std::string& disk);

// Rank 0 gets all nodes with their clocks, others an empty list. Collective.
std::vector<NodeHealth> GatherNodes(comm::Endpoint* endpoint, const NodeHealth& own,
                                    double deadline_s);

// Every pair of ranks, in rounds in which each rank is in one pair at most. Rank 0 gets all.
// Collective. Throws comm::CommError.
std::vector<PairHealth> MeasurePairs(comm::Endpoint* endpoint, double deadline_s);

// Rounds of a tournament: by round, the partner of each rank (-1: rests).
std::vector<std::vector<int64_t>> PairRounds(int64_t ranks);

struct Finding {
  std::string what;                // "compute", "memory", "disk", "clock", "network"
  std::vector<std::string> hosts;  // one, or the two of a pair
  std::string text;                // one sentence
};

struct Health {
  std::vector<NodeHealth> nodes;
  std::vector<PairHealth> pairs;
  std::vector<Finding> findings;
  std::vector<std::string> bad_hosts;  // of nodes that are outside, and of those in most bad pairs
};

// What a pair of ranks on different nodes should at least exchange, `on_host` ranks on a node; 0: no network. A port that the
// topology knows as degraded is held to the rate of the others: it is what a check is to find.
BytesPerSecond LeastPairRate(const TopologySpec& spec, int64_t on_host);

// Fills in findings and bad hosts. Medians need three nodes or pairs; fewer are held to given bounds
// alone.
void Judge(const Bounds& bounds, Health* health);

std::string HealthText(const Health& health, const Bounds& bounds);
nlohmann::ordered_json HealthJson(const Health& health, const Bounds& bounds);

}  // namespace orrery::check
