// SPDX-License-Identifier: Apache-2.0
// Many jobs played with random stops, and how their times are distributed.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "model/provision/failure_simulation.h"

namespace orrery {

struct PlayedJobs {
  std::vector<double> seconds;  // ascending
  double mean = 0, stops = 0, deviation = 0;
  double fourths = 0;  // mean fourth power of what is off the mean
  double At(double share) const {
    return seconds[static_cast<std::size_t>(share * static_cast<double>(seconds.size()))];
  }
  // Standard error of the deviation, relative.
  double Chance() const {
    const double square = deviation * deviation;
    return std::sqrt((fourths / (square * square) - 1) /
                     (4.0 * static_cast<double>(seconds.size())));
  }
};

// `play`: one job.
template <typename Play>
PlayedJobs PlayAll(int jobs, uint64_t seed, const Play& play) {
  Random random(seed);
  PlayedJobs played;
  for (int i = 0; i < jobs; ++i) {
    const SimulatedJob job = play(&random);
    played.seconds.push_back(job.time.value);
    played.mean += job.time.value / jobs;
    played.stops += static_cast<double>(job.stops) / jobs;
  }
  std::ranges::sort(played.seconds);
  double squares = 0;
  for (const double seconds : played.seconds) {
    const double square = (seconds - played.mean) * (seconds - played.mean);
    squares += square / jobs, played.fourths += square * square / jobs;
  }
  played.deviation = std::sqrt(squares);
  return played;
}

}  // namespace orrery
