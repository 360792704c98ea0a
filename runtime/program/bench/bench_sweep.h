// SPDX-License-Identifier: Apache-2.0
// The model's view of a benchmark of collectives: one call at a time on an idle cluster.
//
// Latency (launch, hops, pipelining loss) is a timer; then the traffic runs as coupled jobs over
// routed links of the chosen network backend, divided by the share of the line rate that the
// profile gives to the algorithm. One rank alone copies its buffer: launch + 2 S / (W x memory
// efficiency), W the memory bandwidth. `sendrecv` is nccl-tests' ring: every rank sends S to the
// next one while it receives.
#pragma once

#include <map>
#include <memory>
#include <string_view>
#include <tuple>
#include <vector>

#include "model/collectives/routing.h"
#include "model/engine/event/communicators.h"
#include "model/engine/network/network.h"
#include "model/framework/profile.h"
#include "model/hardware/cluster.h"
#include "model/price/message_prices.h"

namespace orrery::cli {

struct BenchTime {
  Seconds time;
  std::string algorithm;  // "copy" for one rank
  nccl::Protocol protocol = nccl::Protocol::kSimple;
  std::shared_ptr<const MeasuredTime> measured;  // the sweep that it follows; null: the profiles
};

class BenchSimulation {
 public:
  // All ranks of the cluster take part. Throws InputError: no way between two ranks.
  BenchSimulation(Cluster cluster, GpuProfile gpu, FabricProfile fabric, net::Backend backend,
                  nccl::Release release = nccl::kOwnRelease);
  BenchSimulation(const BenchSimulation&) = delete;
  BenchSimulation& operator=(const BenchSimulation&) = delete;

  // `algorithm`: a name of Algorithms(), which must be able to run it here; "": the library's choice.
  BenchTime Time(Collective collective, Bytes size, std::string_view algorithm = "");

  const Cluster& cluster() const { return cluster_; }
  const GpuProfile& gpu() const { return gpu_; }
  const FabricProfile& fabric() const { return fabric_; }
  nccl::Release release() const { return no_framework_.preset->nccl; }
  int ranks() const { return static_cast<int>(cluster_.ranks()); }

 private:
  struct Job {
    net::PathId path;
    double bytes;  // per byte of S
  };
  using Phases = std::vector<std::vector<Job>>;
  struct Exchange {  // among some ranks
    double latency = 0;
    const Phases* phases = nullptr;
    std::size_t phase = 0;
    std::size_t running = 0;
  };

  Exchange Prepare(Collective collective, const std::vector<int64_t>& members, Bytes size,
                   std::string_view only, BenchTime* result);
  void StartPhase(Exchange* exchange, Bytes size);

  Cluster cluster_;
  GpuProfile gpu_;
  FabricProfile fabric_;
  FrameworkProfile no_framework_;
  MessagePrices prices_;
  net::Backend backend_;
  net::TrafficRouter router_;
  std::unique_ptr<net::Network> network_;
  std::map<std::tuple<const Algorithm*, Collective, int64_t, double, double>, Phases> known_;
};

}  // namespace orrery::cli
