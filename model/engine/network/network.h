// SPDX-License-Identifier: Apache-2.0
// A network in simulated time: jobs move bytes over shared links, timers go off, callbacks follow.
//
// A job is one number, the rate v at which each of its edges moves bytes: on every link of its path
// it uses weight * v. A plain flow has weight 1 everywhere. A ring is one job whose weight on a
// link is the number of ring edges that cross it: all edges move at the pace of the slowest one, as
// a real ring does (independent flows would be 43 % too fast under moving contention). Rates are
// max-min fair in v: no job can go faster without slowing one that is not faster than itself.
//
// Latency is none of the network's business: callers put a timer before the job.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/base/quantity.h"
#include "model/engine/network/wires.h"
#include "model/hardware/traffic.h"

namespace orrery::net {

using PathId = int32_t;
using Done = std::function<void()>;  // two words of captures cost no allocation

inline constexpr BytesPerSecond kNoCap{std::numeric_limits<double>::infinity()};

// A path's bytes per second, all its jobs together, from a date on.
struct RateChange {
  double time = 0;
  PathId path = 0;
  double rate = 0;
};

class Network {
 public:
  explicit Network(Wires wires);
  virtual ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Registers what a job uses, once for all jobs that use the same; a link named twice adds up.
  // `cap` bounds v of each job. `what` names the traffic in messages. Throws InputError: no link
  // and no cap (there is no route), a link without bandwidth, a cap of 0.
  PathId AddPath(std::span<const LinkUse> uses, BytesPerSecond cap, const std::string& what);
  PathId AddRoute(std::span<const LinkId> route, BytesPerSecond cap, const std::string& what);

  // A job alone on its path: min over links of capacity / weight, and the cap.
  BytesPerSecond AloneRate(PathId path) const { return BytesPerSecond(paths_[At(path)].alone); }

  // Starts a job now; `done` runs when `bytes` have passed (at the same instant for 0 bytes).
  virtual void Start(PathId path, Bytes bytes, Done done) = 0;
  virtual void After(Seconds delay, Done done) = 0;  // delay >= 0
  virtual void Run() = 0;                            // until nothing is left to happen
  virtual Seconds Now() const = 0;

  // The interface in one call: a job over `route`, its rate at most `cap`.
  void Flow(std::span<const LinkId> route, Bytes bytes, BytesPerSecond cap, Done done);

  // Simulation in parts that share neither links nor timers: what is started while a part is selected belongs to it,
  // and Run() goes on with its events alone, until nothing is left of them or Pause() is called, which ends the present
  // instant. After Join() all go on together, each from where it has come to. False: this network cannot.
  virtual bool Split(std::size_t) { return false; }
  virtual void Select(std::size_t) {}
  virtual void Pause() {}
  virtual void Join() {}

  // From now on appends every change of a path's rate, in order of time; false: cannot tell. `log`
  // must outlive the simulation.
  virtual bool LogRates(std::vector<RateChange>*) { return false; }

  // Bytes that finished jobs have put on every link, by LinkId.
  std::vector<Bytes> Carried() const;

  // Links of a path, each once, and what bounds the rate of each of its jobs.
  std::span<const LinkUse> UsesOf(PathId path) const;
  BytesPerSecond CapOf(PathId path) const { return BytesPerSecond(paths_[At(path)].cap); }
  BytesPerSecond CapacityOf(LinkId link) const {
    return BytesPerSecond(capacity_[static_cast<std::size_t>(link)]);
  }

  std::size_t links() const { return capacity_.size(); }
  std::size_t paths() const { return paths_.size(); }

 protected:
  struct Path {
    uint32_t first = 0;  // into uses_
    uint32_t count = 0;
    double cap = 0;
    double alone = 0;
    double finished = 0;  // bytes of jobs
  };
  static std::size_t At(PathId path) { return static_cast<std::size_t>(path); }
  virtual void OnNewPath(PathId) {}
  static void CheckBytes(Bytes bytes);

  std::vector<double> capacity_;
  std::vector<Path> paths_;
  std::vector<LinkUse> uses_;

 private:
  std::string NameOf(LinkId link) const;
  double Alone(std::span<const LinkUse> uses, double cap, const std::string& what) const;
  std::vector<LinkUse> Merge(std::span<const LinkUse> uses);

  Wires wires_;
  std::unordered_multimap<std::size_t, PathId> by_content_;
  std::vector<double> merge_weight_;
};

enum class Backend { kFluid, kSimGrid };
bool HasSimGrid();  // this program links the library (orrery_simgrid)

// Throws InputError when SimGrid is asked for and not linked in, or when a second SimGrid
// network is made while one exists: the library allows one simulation per process at a time.
std::unique_ptr<Network> MakeNetwork(Backend backend, Wires wires);

}  // namespace orrery::net
