// SPDX-License-Identifier: Apache-2.0
// Chooses algorithm and protocol: the fastest by closed form (the default of Network constants), or
// the one that the caller names.
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
#include "model/hardware/profile.h"

namespace orrery {

class PreparedCollective {
 public:
  PreparedCollective() = default;  // a group of one rank: every time is zero

  // Seconds for S bytes; S = 0 costs nothing (the call is not made).
  double Time(double bytes) const;
  Seconds Time(Bytes bytes) const { return Seconds(Time(bytes.value)); }

  // The algorithm and protocol that Time() uses for this size: "ring", "tree (latency protocol)".
  std::string Choice(double bytes) const;

 private:
  friend PreparedCollective Prepare(Collective, const Network&, const std::string&);
  struct Candidate {
    TimeLine line;
    const char* algorithm = "";
    bool latency_protocol = false;
  };
  void Add(const Candidate& candidate);

  static constexpr int kMost = 14;
  std::array<Candidate, kMost> candidates_;
  int count_ = 0;
  const GpuProfile* measured_ = nullptr;  // see Network; it must outlive this
  Collective collective_ = Collective::kAllReduce;
  int ranks_ = 1;
  std::shared_ptr<const MeasuredTime> sweep_;  // instead of all of these; null: none
};

// `algorithm`: "" for the fastest; else a name of Algorithms(), which must support the collective
// (InputError otherwise).
PreparedCollective Prepare(Collective collective, const Network& network,
                           const std::string& algorithm = "");

}  // namespace orrery
