// SPDX-License-Identifier: Apache-2.0
// Collective algorithms: schedule figures, closed form, bus-bandwidth rule. One file each.
//
// Times follow T(S) = min over protocols of (a_p + S / b_p) + gamma sqrt(S), S being the size that
// nccl-tests prints: the whole buffer, for all-gather and reduce-scatter the gathered one. The
// latency protocol has short hops and little bandwidth; the bandwidth protocol pays the classical
// pipelining loss gamma = kappa sqrt(hop / b). Form and constants: left-out error 4.2 % on sixteen
// sweeps from 8 B to GiB when fitted to a machine, tens of percent for small messages from class
// constants alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "model/collectives/network.h"

namespace orrery {

enum class Collective : uint8_t {
  kAllReduce,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSendRecv,
  kBroadcast,
};
inline constexpr int kCollectives = 6;
const char* Name(Collective collective);

// Bytes that each rank must send at least, per byte of S: 2(n-1)/n, (n-1)/n, 1.
double WireFactor(Collective collective, int ranks);

// T(S) of one protocol of one algorithm.
struct TimeLine {
  double latency = 0;        // seconds
  double per_byte = 0;       // seconds per byte
  double per_root_byte = 0;  // seconds per square root of a byte

  double At(double bytes, double root) const {
    return latency + bytes * per_byte + root * per_root_byte;
  }
};

struct AlgorithmCost {
  int steps = 0;            // dependent messages on the critical path
  int hops = 0;             // of them between nodes
  double scaleup_load = 0;  // bytes out of a GPU into scale-up links, per byte of S
  double nic_load = 0;      // bytes out of a node into the group's share of its NICs, per byte of S
  TimeLine bandwidth;       // the bandwidth protocol
  std::optional<TimeLine> latency;  // the latency protocol, where there is one
};

// Bus bandwidth that benchmarks print for a collective of S bytes that took t.
BytesPerSecond BusBandwidth(Collective collective, int ranks, Bytes size, Seconds time);

struct Algorithm {
  const char* name;
  bool chosen_by_default;  // false: only on request (libraries do not run it by themselves)
  // nullopt: the algorithm cannot do this collective on this network.
  std::optional<AlgorithmCost> (*cost)(Collective collective, const Network& network);
};
std::span<const Algorithm> Algorithms();
// Whether a choice of the fastest looks at it: `only` a name that the caller asks for, else the one
// that the software of `use` runs, else those that are chosen by default.
bool IsCandidate(const Algorithm& algorithm, std::string_view only, const BandwidthUse& use);

std::optional<AlgorithmCost> RingCost(Collective collective, const Network& network);
std::optional<AlgorithmCost> DoubleBinaryTreeCost(Collective collective, const Network& network);
std::optional<AlgorithmCost> HierarchicalCost(Collective collective, const Network& network);
std::optional<AlgorithmCost> NvlsCost(Collective collective, const Network& network);
std::optional<AlgorithmCost> NvlsTreeCost(Collective collective, const Network& network);
std::optional<AlgorithmCost> DirectAllToAllCost(Collective collective, const Network& network);
std::optional<AlgorithmCost> SendRecvCost(Collective collective, const Network& network);

// Fills both protocols from steps, hops and loads; `extra_per_byte` is added to the bandwidth one.
void FillTimeLines(const Network& network, BytesPerSecond inter, double extra_per_byte,
                   AlgorithmCost* cost);

}  // namespace orrery
