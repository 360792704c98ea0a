// SPDX-License-Identifier: Apache-2.0
// The fluid backend: own event queue and own max-min solver.
//
// Everything that happens at one instant is gathered before any rate is solved for again, and only
// components that something touched are: jobs that start and end elsewhere cost nothing here.
// Events closer than 1e-12 of the clock count as one instant. Same calls, same results, bit for
// bit.
#pragma once

#include <vector>

#include "model/engine/network/event_queue.h"
#include "model/engine/network/max_min.h"
#include "model/engine/network/network.h"

namespace orrery::net {

class FluidNetwork : public Network {
 public:
  explicit FluidNetwork(Wires wires);

  void Start(PathId path, Bytes bytes, Done done) override;
  void After(Seconds delay, Done done) override;
  void Run() override;
  Seconds Now() const override { return Seconds(now_); }
  bool LogRates(std::vector<RateChange>* log) override;
  bool Split(std::size_t parts) override;
  void Select(std::size_t part) override;
  void Pause() override { paused_ = true; }
  void Join() override;

  // Present rate of each job on a path; 0 when it is idle.
  BytesPerSecond Rate(PathId path);
  // Present use of every link, by LinkId.
  std::vector<BytesPerSecond> Load();
  // How often a component was solved, for benches.
  int64_t solves() const { return solves_; }

 private:
  struct Job {
    double end = 0;  // value of Traffic::served at which it is complete
    uint64_t order = 0;
    double bytes = 0;
    Done done;
  };
  // The jobs of one path. They have one rate, so that one counter says how far each has come.
  struct Traffic {
    std::vector<Job> jobs;  // heap, first to end on top
    double served = 0;      // bytes per job since the path was last idle
    double since = 0;       // when `served` was right
    double rate = 0;
    double first_end = 0;    // of jobs.front()
    double next_end = 0;     // its date
    int32_t component = -1;  // -1: not yet in one
    bool fresh = false;      // in fresh_
  };
  // Paths that compete with each other; its next end is one event.
  struct Component {
    std::vector<PathId> paths;
    uint32_t version = 0;  // events of an older version are void
    bool touched = false;
  };

  void OnNewPath(PathId path) override;
  void Touch(int32_t component);
  void Finish(int32_t component);
  void FinishJobs(PathId path);
  void Settle();
  void SettleFrom(PathId seed);
  void Dissolve(int32_t component);
  int32_t NewComponent();
  double Retime(PathId path);
  void Log(PathId path, double rate);
  bool Step();

  MaxMin solver_;
  EventQueue events_;
  std::vector<Traffic> traffic_;  // by path
  std::vector<Component> components_;
  std::vector<int32_t> free_components_, touched_;
  std::vector<PathId> fresh_;  // busy paths that joined at this instant
  std::vector<PathId> seeds_, members_;
  std::vector<Done> ended_;
  std::vector<RateChange>* log_ = nullptr;
  std::vector<double> logged_;  // by path: the rate that the log holds last
  double now_ = 0;
  double instant_end_ = 0;  // events up to here belong to the present instant
  bool paused_ = false;
  uint64_t started_ = 0;
  int64_t solves_ = 0;
};

}  // namespace orrery::net
