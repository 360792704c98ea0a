// SPDX-License-Identifier: Apache-2.0
// Max-min fair rates of one connected component of paths and links.
//
// Progressive filling (Bertsekas and Gallager, Data Networks, section 6.5.2) with weights: all
// rates rise together; when a link is full, or a path reaches its own bound, the paths concerned
// stop. With m uses in the component it costs O(m log m); a link that only one path of the
// component uses is that path's bound and costs O(1).
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "model/hardware/cluster.h"

namespace orrery::net {

// All jobs on one path have the same rate, so that a path counts its jobs.
class MaxMin {
 public:
  explicit MaxMin(std::vector<double> capacity);

  void AddPath(std::span<const LinkId> links, std::span<const double> weights, double cap);
  void SetJobs(int32_t path, int32_t jobs);  // O(links of the path) when it becomes idle or busy
  int32_t jobs(int32_t path) const { return paths_[static_cast<std::size_t>(path)].jobs; }
  double rate(int32_t path) const {
    return paths_[static_cast<std::size_t>(path)].rate;
  }  // of each job

  // A pass visits each component once: NewPass(), then Collect() from every seed.
  void NewPass() { ++pass_; }
  // Appends the busy paths connected with `seed`, unless this pass has seen it; false: nothing new.
  bool Collect(int32_t seed, std::vector<int32_t>* component);
  // Sets the rates of the component collected last.
  void Solve(std::span<const int32_t> component);

 private:
  struct Path {
    uint32_t first = 0, count = 0;
    int32_t jobs = 0;
    uint32_t seen = 0;  // pass
    double cap = 0, bound = 0, rate = 0;
    bool open = false;  // not yet given a rate
  };
  struct Use {
    int32_t link = 0;  // into states_
    int32_t path = 0;
    double weight = 0;
    double alone = 0;    // capacity / weight
    uint32_t place = 0;  // in LinkState::users
  };
  // Of a link that some path has: clusters have many that none has.
  struct LinkState {
    LinkId link = 0;
    double capacity = 0;
    std::vector<uint32_t> users;  // uses of busy paths
    uint32_t seen = 0;            // pass
    int32_t open = 0;             // paths without a rate; not counted on a link of one path
    double left = 0;              // capacity
    double demand = 0;            // bytes/s on the link when each open job runs at 1 byte/s
  };
  using Level = std::pair<double, int32_t>;  // rate at which it stops, link of the cluster or path

  int32_t StateOf(LinkId link);
  LinkState& OfCluster(LinkId link) {
    return states_[static_cast<std::size_t>(state_of_[static_cast<std::size_t>(link)] - 1)];
  }
  void Enlist(int32_t path);
  void Delist(int32_t path);
  void VisitLink(int32_t number, std::vector<int32_t>* component);
  void PrepareLevels(std::span<const int32_t> component);
  const Level* NextLink();
  const Level* NextBound(const Level* link);
  int Fix(int32_t path, double rate);
  int Fill(LinkId link, double rate);

  std::vector<double> capacity_;
  std::vector<Path> paths_;
  std::vector<Use> uses_;
  std::vector<LinkState> states_;
  std::vector<int32_t> state_of_;  // by link, from 1 on; 0: no path has it
  std::vector<int32_t> links_;     // states_ of the shared ones of the component collected last
  std::vector<Level> link_levels_, path_levels_;  // heaps, lowest first
  double least_bound_ = 0;                        // of path_levels_ while it is not yet a heap
  bool bounds_sorted_ = false;
  uint32_t pass_ = 0;
};

}  // namespace orrery::net
