// SPDX-License-Identifier: Apache-2.0
// Published collective times against class constants, and the left-out errors of fitted sweeps.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "model/hardware/measured_collectives.h"

namespace orrery {

// Mean of |predicted / measured - 1| by size of the message (SizeBand).
struct BandMeans {
  std::array<double, kSizeBands> sum{};
  std::array<int, kSizeBands> points{};

  void Add(double bytes, double error);
};

struct CollectiveErrors {
  std::string table;
  std::string collective;
  std::string topology;
  std::string algorithm;  // that the job was told to run; "": the library's choice
  int64_t nodes = 0;
  int gpus_per_node = 0;
  std::string nccl;          // release that ran; "": not known
  int gpus_per_process = 1;  // that one process drives, as nccl-tests -g N
  std::string
      fitted;  // constants that were fitted to this table, or chosen with it in view; "": none
  std::string left_out;  // why it counts in no mean; "": it does
  BandMeans errors;
  BandMeans
      chosen;  // with the algorithm that the model takes by itself; the same where none is told
};

// The tables of `runs` (calib/data/collective_runs.csv), predicted from class constants where it gives a topology; others say
// why they have none. `times`: files
// of collective times. Throws InputError: files, topologies or tables that are not there.
std::vector<CollectiveErrors> PredictCollectives(const std::string& runs,
                                                 const std::vector<std::string>& times);

// What `plan calibrate` wrote into calib/profiles/collectives: mean error of sizes left out, over the points of all
// sweeps of a file.
struct SweepErrors {
  std::string id;
  std::string machine;
  int sweeps = 0;
  BandMeans errors;  // each sweep's mean counts once per point
};
std::vector<SweepErrors> LeftOutSweeps();

}  // namespace orrery
