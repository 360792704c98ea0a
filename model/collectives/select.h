// SPDX-License-Identifier: Apache-2.0
// Chooses algorithm and protocol: between nodes those that NCCL takes for the size (nccl_choice.h), where it runs; else the
// fastest by closed form; or the one that the caller names.
//
// A PreparedCollective holds the candidate lines of one collective on one group, so that the time of
// a size is a handful of multiplications: search evaluates millions of them. Sweeps of the machine
// itself (measured.h), where the network carries some for this group, replace the lines' times.
#pragma once

#include <array>
#include <memory>
#include <string>

#include "model/collectives/algorithm.h"
#include "model/collectives/measured.h"
#include "model/collectives/nccl_choice.h"
#include "model/hardware/profile.h"

namespace orrery {

class PreparedCollective {
 public:
  PreparedCollective() = default;  // a group of one rank: every time is zero

  // Seconds for S bytes; S = 0 costs nothing (the call is not made).
  double Time(double bytes) const;
  Seconds Time(Bytes bytes) const { return Seconds(Time(bytes.value)); }

  // The algorithm and protocol that Time() uses for this size: "ring", "tree (LL)", "tree (LL128)".
  std::string Choice(double bytes) const;

 private:
  friend PreparedCollective Prepare(Collective, const Network&, const std::string&);
  struct Candidate {
    TimeLine line;
    const Algorithm* algorithm = nullptr;
    nccl::Protocol protocol = nccl::Protocol::kSimple;
  };
  void Add(const Candidate& candidate);
  // The fastest of those that NCCL takes for this size, or of all.
  const Candidate& Taken(double bytes) const;

  static constexpr int kMost = 21;
  std::array<Candidate, kMost> candidates_;
  int count_ = 0;
  const GpuProfile* measured_ = nullptr;  // see Network; it must outlive this
  Collective collective_ = Collective::kAllReduce;
  int ranks_ = 1;
  std::shared_ptr<const NcclRanges> nccl_;     // null: the fastest is taken
  bool line128_ = false;                       // LL128 has a price of its own
  std::shared_ptr<const MeasuredTime> sweep_;  // instead of all of these; null: none
};

// `algorithm`: "" for the library's choice; else a name of Algorithms(), which must support the collective
// (InputError otherwise).
PreparedCollective Prepare(Collective collective, const Network& network,
                           const std::string& algorithm = "");

// What a collective of one rank takes out of place: a call that copies S bytes on the card.
Seconds CopyTime(const Network& network, const GpuProfile& gpu, Bytes size);

// How one message of S bytes runs when nothing else is on its lines: T(S) apart into what is latency and
// what is traffic. A simulator waits for the latency, then sends the routed bytes, each link at its share
// of the nominal rate. Where a sweep of the machine was measured, both follow from it: alone, the message
// takes that time.
struct MessagePrice {
  const Algorithm* algorithm = nullptr;
  nccl::Protocol protocol = nccl::Protocol::kSimple;
  double latency = 0;  // seconds before the traffic: launch, hops, pipelining loss
  LineShare share;     // of the rate of each class of links
  LineShare wire;      // the same of all messages together: the most that one alone reaches
  double seconds_per_byte = 0;  // of S, after the latency, with the links of its group to itself
  std::shared_ptr<const MeasuredTime> measured;  // the sweep behind it; null: the closed form

  bool crosses = false;  // it leaves its node

  // The class of links in whose bytes a job counts: lines between nodes, or inside the node.
  double Bounding(const LineShare& of) const { return crosses ? of.network : of.scale_up; }
};

// The algorithm and protocol that the library takes for this size, or the fastest, or the one that is named. Throws InputError when it
// cannot do this; network.shape.ranks >= 2.
MessagePrice PriceMessage(Collective collective, const Network& network, double bytes,
                          std::string_view algorithm = "");

// What a message takes of its links. Alone it takes its price: software, protocol and copies bound it, not the links. Those
// carry other messages beside it up to the share that the fastest kind of message reaches on them alone.
struct Occupation {
  LineShare share;            // of the rate of each class of links, alone
  LineShare wire;             // of the rate of each class of links, all messages together
  std::vector<double> least;  // by phase: seconds per byte of S, faster it never goes
};
// `own`: the edges of its group as Algorithm::Route() makes them. `capacity`: rates of links, if others than those of
// `cluster`. `whole_weights`: all classes of links take the share of the bounding one (what SimGrid can represent).
Occupation Occupy(const MessagePrice& price, const Cluster& cluster,
                  std::span<const BytesPerSecond> capacity, bool whole_weights,
                  const net::Traffic& own);
// From bytes that cross links to what occupies them: shares over the bounding class's, weights by those of the other classes.
void Weigh(const MessagePrice& price, const Cluster& cluster, const Occupation& occupation,
           net::Traffic* traffic);

}  // namespace orrery
