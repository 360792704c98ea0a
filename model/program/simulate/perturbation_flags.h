// SPDX-License-Identifier: Apache-2.0
// What makes a simulated step differ from an undisturbed one: from flags, in words, on a cluster.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model/engine/event/executor.h"
#include "model/hardware/cluster.h"
#include "model/program/common/simulate_flags.h"

namespace orrery::cli {

struct SlowGpu {
  int64_t first = 0, last = 0;  // ranks
  double factor = 1;            // of its compute times
  Location where;
};

struct SlowLink {
  std::string name;  // may be a pattern, see MatchLinks()
  double share = 1;  // of its rate
  Location where;
  std::size_t links = 0;  // that it stands for; Disturb() counts them
};

struct DeadNic {
  int64_t node = 0;
  int64_t nic = 0;
  Location where;
};

inline constexpr double kLeastFactor = 0.001, kMostFactor = 1000;
inline constexpr double kLeastShare = 1e-6;

struct Perturbations {
  double jitter = 0;  // standard deviation of compute times, relative
  uint64_t seed = 1;
  std::vector<SlowGpu> slow_gpus;
  std::vector<SlowLink> slow_links;
  std::vector<DeadNic> dead_nics;

  bool any() const;
  std::string Words() const;  // "jitter 2 % (seed 1), rank 3 1.5 times as slow"; "" without any
};

// "3" or "8..15".
bool ParseRanks(std::string_view text, SlowGpu* gpu);

// The text of one value; what is wrong is recorded with `subject` ("--jitter") in front. A harmless
// value comes back then.
double ReadJitter(const std::string& text, const std::string& subject, const Location& where,
                  Diagnostics* diagnostics);  // "2%" or "0.02"
double ReadLinkShare(const std::string& text, const std::string& link, const std::string& subject,
                     const Location& where, Diagnostics* diagnostics);  // "25%" or "0.25"
DeadNic ReadNic(const std::string& text, const std::string& subject, const Location& where,
                Diagnostics* diagnostics);  // "0:nic3" or "n0.nic3"

// What the flags say; each that was given replaces its part of `base`.
Perturbations ReadPerturbations(const SimulateFlags& flags, Perturbations base,
                                Diagnostics* diagnostics);

// Slows links and fails NICs of the cluster; returns what happens to its first `ranks` ranks.
// Throws InputError with everything that does not exist there.
sim::Perturbation Disturb(Perturbations* perturbations, int64_t ranks, Cluster* cluster);

}  // namespace orrery::cli
