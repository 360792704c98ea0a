// SPDX-License-Identifier: Apache-2.0
// One collective algorithm is one object: which operations it serves, its steps and bytes, its time,
// the share of the line rate that it reaches, and its route on a cluster.
//
// To add one: a file in algorithms/ with a class that derives from Algorithm, and its row in
// algorithms.cc. Everything that is pure virtual here the compiler asks for; closed form, simulator,
// `plan bench`, help and completion read the rows.
//
// Times follow T(S) = min over protocols of (a_p + S / b_p) + gamma sqrt(S), S being the size that
// nccl-tests prints: the whole buffer, for all-gather and reduce-scatter the gathered one. The
// latency protocol has short hops and little bandwidth; the bandwidth protocol pays the classical
// pipelining loss gamma = kappa sqrt(hop / b), of the slower kind of hop where a message takes two.
// Between them lies NCCL's LL128, whose flags take 8 of 128 bytes; it has a price of its own between nodes.
// A tree's chunks have the size that the library gives them (ChunkSizes), not the best one: the first
// takes all steps up and down before the others follow at the rate of the slowest, S / b. Form and
// constants: left-out error 4.2 % on sixteen sweeps from 8 B to GiB when fitted to a machine, tens of
// percent for small messages from class constants alone.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/base/check.h"
#include "model/collectives/network.h"
#include "model/hardware/traffic.h"

namespace orrery {

namespace net {
class GroupRoutes;  // routing.h
}

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

// Bus bandwidth that benchmarks print for a collective of S bytes that took t.
BytesPerSecond BusBandwidth(Collective collective, int ranks, Bytes size, Seconds time);

// Bytes of a chunk, of all channels together, by the size of the message: from the largest chunk to the smallest, each with
// the message from which on it is used. A message that is smaller than its chunk is one chunk.
class ChunkSizes {
 public:
  ChunkSizes() = default;  // no chunks
  explicit ChunkSizes(double only) { Add(0, only); }

  // Messages from so many bytes on; each call below the one before.
  void Add(double from, double chunk) {
    ORRERY_CHECK(count_ < kMost, "more than {} sizes of chunks", kMost);
    sizes_[count_++] = {from, chunk};
  }
  bool none() const { return count_ == 0; }
  double Of(double bytes) const {
    for (std::size_t i = 0; i < count_; ++i) {
      if (bytes >= sizes_[i].from) return std::min(bytes, sizes_[i].chunk);
    }
    return 0;
  }

 private:
  struct Size {
    double from = 0, chunk = 0;
  };
  static constexpr std::size_t kMost = 6;
  std::array<Size, kMost> sizes_;
  std::size_t count_ = 0;
};

// T(S) of one protocol of one algorithm.
struct TimeLine {
  double latency = 0;        // seconds
  double per_byte = 0;       // seconds per byte
  double per_root_byte = 0;  // seconds per square root of a byte
  double fill = 0;           // seconds per byte of the chunk that goes ahead
  ChunkSizes chunks;         // where there is a fill

  double Loss(double bytes, double root) const {
    return root * per_root_byte + (fill > 0 ? fill * chunks.Of(bytes) : 0);
  }
  double At(double bytes, double root) const {
    return latency + bytes * per_byte + Loss(bytes, root);
  }
};

// Rates of the links that bound an algorithm, or shares of these rates.
template <class T>
struct InsideAndBetween {
  T inside{};   // into links inside a node, of one rank
  T between{};  // out of a node, of this group
};
using LineRates = InsideAndBetween<BytesPerSecond>;

// Share of the nominal rate that a message reaches on each class of links. A message of so many
// bytes occupies a link for bytes / (share x capacity).
struct LineShare {
  double scale_up = 1;
  double pcie = 1;     // between nodes NICs bound a message, not the PCIe links before them: 1
  double network = 1;  // ports of NICs, and the fabric

  double On(LinkKind kind) const;
};

struct Protocol {
  TimeLine line;
  LineShare share;
};

struct AlgorithmCost {
  int steps = 0;            // dependent messages on the critical path
  int hops = 0;             // of them between nodes
  double scaleup_load = 0;  // bytes out of a GPU into scale-up links, per byte of S
  double nic_load = 0;      // bytes out of a node into the group's share of its NICs, per byte of S
  double inside_step =
      1;  // one inside a node takes so many hops of the profile; 0 hops between nodes: 1
  double between_step = 1;  // the same between nodes, in the bandwidth protocol
  double latency_share =
      0;  // of the line between nodes, by the latency protocol before what flags cost; 0: as by the other
  double channel_bytes =
      0;  // of a message, before the latency protocol opens another channel; 0: it does not
  bool by_switch = false;             // its start is the switch's round trip, not bandwidth_launch
  ChunkSizes chunks;                  // of a tree, where each takes all steps one after the other
  InsideAndBetween<double> line_hop;  // by LL128, over one by the latency protocol; 0: not by LL128
  ChunkSizes line_chunks;             // the same as `chunks`, by LL128
  Protocol bandwidth;                 // the bandwidth protocol
  std::optional<Protocol> latency;    // the latency protocol, where there is one
  std::optional<Protocol> line128;    // LL128, where network and algorithm have it
};

class Algorithm {
 public:
  explicit Algorithm(std::string name) : name_(std::move(name)) {}
  virtual ~Algorithm() = default;
  Algorithm(const Algorithm&) = delete;
  Algorithm& operator=(const Algorithm&) = delete;

  const std::string& name() const { return name_; }
  // False: only on request (libraries do not run it by themselves).
  virtual bool chosen_by_default() const { return true; }

  // The operations that it carries out, and on groups of which shape.
  virtual bool Serves(Collective collective, const GroupShape& shape) const = 0;
  // Hardware that it needs besides links.
  virtual bool Possible(const Network&) const { return true; }

  // Share of the nominal rate of its lines that it reaches alone: network.efficiency(KEY) is 1 where no
  // profile has that key. This is the only place from where an efficiency enters a price.
  virtual InsideAndBetween<double> Efficiency(const Network& network) const = 0;
  // Nominal rates of the lines that bound it.
  virtual LineRates Lines(const Network& network) const;
  // Lines() x Efficiency(): what closed forms divide bytes by.
  LineRates Rates(const Network& network) const;

  // nullopt: it cannot do this collective on this network.
  std::optional<AlgorithmCost> Cost(Collective collective, const Network& network) const;

  // The edges of one group, routed: its bytes on every link, phase by phase. Serves() holds.
  virtual net::Traffic Route(Collective collective, net::GroupRoutes* routes) const = 0;

 private:
  // Steps, bytes per class of links, and the time that follows from them; most call FillTimeLines().
  virtual AlgorithmCost CostOf(Collective collective, const Network& network) const = 0;

  std::string name_;
};

// All that there are: the rows of algorithms.cc, then what a RegisteredAlgorithm added.
std::span<const Algorithm* const> Algorithms();
// Null: there is none of this name.
const Algorithm* FindAlgorithm(std::string_view name);
std::vector<std::string> AlgorithmNames();

// Adds an algorithm while it lives, as a test does that invents one. Nothing else may run meanwhile
// that looks at Algorithms() in other threads. The name must be new.
class RegisteredAlgorithm {
 public:
  explicit RegisteredAlgorithm(const Algorithm& algorithm);
  ~RegisteredAlgorithm();
  RegisteredAlgorithm(const RegisteredAlgorithm&) = delete;
  RegisteredAlgorithm& operator=(const RegisteredAlgorithm&) = delete;

 private:
  const Algorithm& algorithm_;
};

// Whether a choice of the fastest looks at it: `only` a name that the caller asks for, else the one
// that the software of `use` runs, else those that are chosen by default.
bool IsCandidate(const Algorithm& algorithm, std::string_view only, const BandwidthUse& use);

// The ring, which others are measured against.
const Algorithm& RingAlgorithm();

// Fills both protocols from steps, hops and loads and the algorithm's rates and efficiency;
// `extra_per_byte` is added to both.
void FillTimeLines(const Algorithm& algorithm, const Network& network, double extra_per_byte,
                   AlgorithmCost* cost);

}  // namespace orrery
