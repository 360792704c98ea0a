// SPDX-License-Identifier: Apache-2.0
// `plan lab measure`: latency and rate that messages really get in a lab, as a fabric profile.
//
// T = 2 (p - 1) (alpha + S / (p B)) of ring all-reduces and T = alpha + S / B of sends around the ring are
// fitted to measured times, each with the same relative weight.
#pragma once

#include <string>
#include <vector>

#include "runtime/lab/state.h"

namespace orrery::lab {

struct MessageTime {
  double bytes = 0, seconds = 0;
};
struct Line {
  double alpha = 0;  // seconds per step of the algorithm, not below 0
  double rate = 0;   // bytes per second
  double error = 0;  // mean relative deviation of the times from the line
};

// T = steps (alpha + S / (parts rate)); at least two sizes.
Line FitLine(const std::vector<MessageTime>& times, double steps, double parts);

// Seconds of `plan bench all_reduce` or `sendrecv` on one rank per node. Throws LabError.
std::vector<MessageTime> MeasureMessages(const State& state, const std::string& self,
                                         const std::string& collective);

std::string FabricYaml(const Settings& settings, const Line& ring, const Line& direct);

// Measures, writes fabric.yaml beside the topology file and names it there. What was found, as text.
std::string MeasureLab(const State& state, const std::string& self);

}  // namespace orrery::lab
