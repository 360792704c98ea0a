// SPDX-License-Identifier: Apache-2.0
// Nodes and GPUs of `#PBS -l` lists.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/exchange/slurm_counts.h"

namespace orrery::exchange {

class PbsCounts {
 public:
  // A list of resources, "select=2:ngpus=8,walltime=1:00:00"; its notes name resources that PBS does not have. Throws
  // InputError: a count that is no number.
  void Take(const Setting& list, JobCounts* counts);
  // After all of them. Throws InputError: what PBS refuses, and nodes that are too small for what the command starts.
  void Count(JobCounts* counts) const;

 private:
  struct Chunk {
    std::string count;
    int64_t gpus = 0;
    int64_t slots = 0;  // mpiprocs, ppn; 0: not said
  };
  void TakeChunks(const std::string& text, bool select, const Location& where, JobCounts* counts);
  void CountUnlike(JobCounts* counts) const;
  void CountOldStyle(JobCounts* counts) const;

  std::vector<Chunk> chunks_;        // of select= or nodes=
  std::string text_;                 // that says them
  std::optional<Location> where_;    // of them
  bool select_ = false;              // PBS Pro's, whose chunks may share a node
  std::optional<Setting> place_;     // "pack", "scatter:excl"
  std::optional<Setting> old_;       // the first resource of a job without chunks
  std::optional<Setting> old_gpus_;  // of them, GPUs
};

}  // namespace orrery::exchange
