// SPDX-License-Identifier: Apache-2.0
// Plays single collectives on the network.
#include "runtime/program/bench/bench_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace orrery::cli {
namespace {

GroupShape ShapeOf(const Cluster& cluster, const std::vector<int64_t>& members) {
  GroupShape shape;
  shape.ranks = static_cast<int>(members.size());
  const auto on_first = std::count_if(members.begin(), members.end(), [&](int64_t rank) {
    return cluster.DomainOf(rank) == cluster.DomainOf(members.front());
  });
  shape.ranks_per_node = static_cast<int>(on_first);
  return shape;
}

// A framework that adds nothing to its messages.
FrameworkProfile NoFramework(nccl::Release release) {
  FrameworkPreset preset;
  preset.nccl = release;
  FrameworkProfile framework;
  framework.preset = std::make_shared<const FrameworkPreset>(std::move(preset));
  return framework;
}

}  // namespace

BenchSimulation::BenchSimulation(Cluster cluster, GpuProfile gpu, FabricProfile fabric,
                                 net::Backend backend, nccl::Release release)
    : cluster_(std::move(cluster)),
      gpu_(std::move(gpu)),
      fabric_(std::move(fabric)),
      no_framework_(NoFramework(release)),
      prices_(CostSetting{&gpu_, &fabric_, &no_framework_, &cluster_.summary}),
      backend_(backend),
      router_(cluster_),
      network_(net::MakeNetwork(backend, net::WiresOf(cluster_))) {}

BenchSimulation::Exchange BenchSimulation::Prepare(Collective collective,
                                                   const std::vector<int64_t>& members, Bytes size,
                                                   std::string_view only, BenchTime* result) {
  // A role to which no framework adds anything.
  const MessagePrice time = prices_.Price(MessageRole::kControl, collective,
                                          ShapeOf(cluster_, members), size.value, only);
  result->algorithm = time.algorithm->name();
  result->protocol = time.protocol;
  result->measured = time.measured;
  const auto [at, added] = known_.try_emplace({time.algorithm, collective, members.front(),
                                               time.Bounding(time.share), time.seconds_per_byte});
  if (added) {
    net::Traffic traffic = router_.Route(time.algorithm->name(), collective, members);
    const Occupation occupation = Occupy(time, cluster_, net::WiresOf(cluster_).capacity,
                                         backend_ == net::Backend::kSimGrid, traffic);
    Weigh(time, cluster_, occupation, &traffic);
    const std::string what =
        fmt::format("{} of ranks {} to {}", Name(collective), members.front(), members.back());
    for (std::size_t phase = 0; phase < traffic.size(); ++phase) {
      std::vector<Job>& jobs = at->second.emplace_back();
      const double least = occupation.least[phase];
      for (const net::Channel& channel : traffic[phase]) {
        const double bytes = channel.share;
        const BytesPerSecond cap = least > 0 ? BytesPerSecond(bytes / least) : net::kNoCap;
        jobs.push_back({network_->AddPath(channel.uses, cap, what), bytes});
      }
    }
  }
  return {time.latency, &at->second, 0, 0};
}

void BenchSimulation::StartPhase(Exchange* exchange, Bytes size) {
  if (exchange->phase == exchange->phases->size()) return;
  const std::vector<Job>& jobs = (*exchange->phases)[exchange->phase++];
  exchange->running = jobs.size();
  for (const Job& job : jobs) {
    network_->Start(job.path, size * job.bytes, [this, exchange, size] {
      if (--exchange->running == 0) StartPhase(exchange, size);
    });
  }
}

BenchTime BenchSimulation::Time(Collective collective, Bytes size, std::string_view algorithm) {
  if (ranks() == 1) {
    const Network alone = ViewNetwork(cluster_.summary, gpu_, fabric_, GroupShape{1, 1, 1});
    return {CopyTime(alone, gpu_, size), "copy"};
  }
  BenchTime result;
  std::vector<Exchange> exchanges;
  if (collective == Collective::kSendRecv) {
    for (int64_t rank = 0; rank < ranks(); ++rank)
      exchanges.push_back(
          Prepare(collective, {rank, (rank + 1) % ranks()}, size, algorithm, &result));
  } else {
    std::vector<int64_t> members(static_cast<std::size_t>(ranks()));
    std::iota(members.begin(), members.end(), 0);
    exchanges.push_back(Prepare(collective, members, size, algorithm, &result));
  }
  const Seconds begin = network_->Now();
  for (Exchange& exchange : exchanges) {
    network_->After(Seconds(exchange.latency),
                    [this, &exchange, size] { StartPhase(&exchange, size); });
  }
  network_->Run();
  result.time = network_->Now() - begin;
  return result;
}

}  // namespace orrery::cli
