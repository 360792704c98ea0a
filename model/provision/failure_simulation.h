// SPDX-License-Identifier: Apache-2.0
// Jobs that stop at random times, played: the oracle of goodput.h and what `plan provision --replay` prints.
//
// Nothing here uses a formula of goodput.h. Random numbers are xoshiro256** (Blackman and Vigna 2021, ACM TOMS 47) seeded
// by splitmix64: a seed gives the same numbers on every machine.
#pragma once

#include <array>
#include <cstdint>

#include "model/provision/elastic.h"
#include "model/provision/goodput.h"

namespace orrery {

class Random {
 public:
  explicit Random(uint64_t seed);
  uint64_t Next();
  double Uniform();                 // in (0, 1]
  double Exponential(double mean);  // > 0

 private:
  std::array<uint64_t, 4> state_;
};

// Share of progress over so many stops of an endless job, life by life.
double SimulatedGoodput(const StopModel& model, Seconds interval, int64_t stops, uint64_t seed);

// One job of `work` seconds, event by event: compute, snapshot, commit, stop, wait, restart.
struct SimulatedJob {
  Seconds time;
  int64_t stops = 0;
  int64_t all_away = 0;  // of them, those that left no group
  Seconds redone;        // computing that was lost
  Seconds checkpoints;   // blocked by them
  Seconds recovering;    // down or restarting
};
SimulatedJob SimulateJob(const StopModel& model, Seconds interval, Seconds work, Random* random);

// Share of the throughput of all groups that a job keeps over `stops` stops, group by group.
double SimulatedElasticGoodput(const ElasticModel& model, int64_t stops, uint64_t seed);
// One such job that takes `work` seconds with all its groups.
SimulatedJob SimulateElasticJob(const ElasticModel& model, Seconds work, Random* random);
// With checkpoints after `interval` of computing, however many groups compute: where the last group goes, all work since the
// last durable one is lost, and the first group to be back restarts from it. Of `checkpoints` blocking, background and restart.
SimulatedJob SimulateElasticJob(const ElasticModel& model, const StopModel& checkpoints,
                                Seconds interval, Seconds work, Random* random);

}  // namespace orrery
