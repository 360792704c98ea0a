// SPDX-License-Identifier: Apache-2.0
// How wrong predictions are for what was not measured: sizes, collectives, numbers of ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "calib/sweeps/machine.h"

namespace orrery {

enum class SweepHoldout {
  kNone,        // nothing measured: the closed form with class constants, a guess
  kPoint,       // one size of the sweep
  kCollective,  // the sweep, from another collective of the same algorithm on the machine
  kRanks,       // the sweep, from other numbers of ranks of the node
  kNodes,       // the sweep, from other numbers of nodes of the machine (needs its topology)
  kFourPoints,  // all of the sweep but 8 B, 128 KiB, 2 MiB and 64 MiB
};
SweepHoldout ParseSweepHoldout(const std::string& text);  // throws InputError
const char* NameOf(SweepHoldout holdout);
std::string WhatIsLeftOut(SweepHoldout holdout);

struct HeldOutPoint {
  double bytes = 0;
  double error = 0;  // ln(predicted / measured)
};

struct HeldOutSweep {
  std::string name;  // of the sweep, and what it was predicted from
  int nodes = 0;
  std::vector<HeldOutPoint> points;
};

// Sweeps to which the question does not apply are absent. Each sweep on its own: they are not
// pooled.
std::vector<HeldOutSweep> HoldOut(SweepHoldout holdout, const std::vector<MeasuredRuns>& sweeps,
                                  const MachineTopologies& topologies);

// Mean of |predicted / measured - 1|.
struct BandError {
  double sum = 0;
  int points = 0;
  std::optional<double> mean() const;
};
struct BandErrors {
  BandError bands[3];
  void Add(const HeldOutPoint& point);
};

// A line per sweep and band means over all points.
std::string RenderHoldOut(SweepHoldout holdout, const std::vector<HeldOutSweep>& sweeps);

}  // namespace orrery
