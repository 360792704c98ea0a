// SPDX-License-Identifier: Apache-2.0
// Solver and routed collectives.
#include <algorithm>
#include <numeric>

#include "bench/twin/figures.h"
#include "model/collectives/routing.h"
#include "model/engine/network/fluid.h"
#include "model/hardware/catalog.h"

namespace orrery {
namespace {

constexpr int kRounds = 5;
constexpr int kFlows = 256;
constexpr int kCompletions = 100'000;

// 256 flows at any time over one shared link, each with links of its own before and behind it.
// Every completion starts another flow of another size.
class SharedLink {
 public:
  SharedLink(net::Backend backend, bool own_links) {
    net::Wires wires;
    wires.capacity.assign(2 * kFlows + 1, BytesPerSecond(1e9));
    network_ = net::MakeNetwork(backend, wires);
    for (int i = 0; i < kFlows; ++i) {
      std::vector<LinkId> route = {2 * kFlows};
      if (own_links) route = {2 * i, 2 * kFlows, 2 * i + 1};
      paths_.push_back(network_->AddRoute(route, net::kNoCap, "flow"));
    }
  }
  void Run(int completions) {
    left_ = completions - kFlows;
    for (int i = 0; i < kFlows; ++i) Start(i);
    network_->Run();
  }

 private:
  void Start(int flow) {
    size_ = size_ * 1103515245u + 12345u;
    network_->Start(paths_[static_cast<std::size_t>(flow)], Bytes(1e6 + size_ % 1'000'000),
                    [this, flow] {
                      if (left_-- > 0) Start(flow);
                    });
  }

  std::unique_ptr<net::Network> network_;
  std::vector<net::PathId> paths_;
  uint32_t size_ = 1;
  int left_ = 0;
};

void CompletionRate(const char* name, net::Backend backend, bool own_links, int completions) {
  double least = 1e300;
  for (int round = 0; round < kRounds; ++round) {
    SharedLink shared(backend, own_links);
    const Stopwatch watch;
    shared.Run(completions);
    least = std::min(least, watch.Cpu());
  }
  Print(name, completions / least, "completions/s");
}

// Routing included, cluster built before.
void LargeAllReduce() {
  const Cluster cluster = BuildCluster(LoadTopology("dgx-h100"), 512);
  std::vector<int64_t> ranks(static_cast<std::size_t>(cluster.ranks()));
  std::iota(ranks.begin(), ranks.end(), 0);
  double wall = 1e300, cpu = 1e300, seconds = 0;
  for (int round = 0; round < kRounds; ++round) {
    const Stopwatch watch;
    net::FluidNetwork network(net::WiresOf(cluster));
    const net::Traffic ring =
        net::TrafficRouter(cluster).Route("ring", Collective::kAllReduce, ranks);
    for (const net::Channel& channel : ring.front()) {
      network.Start(network.AddPath(channel.uses, net::kNoCap, "ring"),
                    Bytes(1073741824.0 * channel.share), [] {});
    }
    network.Run();
    wall = std::min(wall, watch.Wall());
    cpu = std::min(cpu, watch.Cpu());
    seconds = network.Now().value;
  }
  Print("all_reduce_1gib_4096_gpus_wall", wall, "s");
  Print("all_reduce_1gib_4096_gpus_cpu", cpu, "s");
  Print("all_reduce_1gib_4096_gpus_simulated", seconds, "s");
}

}  // namespace

void NetworkFigures() {
  CompletionRate("fluid_256_flows_one_link", net::Backend::kFluid, true, kCompletions);
  CompletionRate("fluid_256_flows_one_path", net::Backend::kFluid, false, kCompletions);
  if (net::HasSimGrid()) {
    CompletionRate("simgrid_256_flows_one_link", net::Backend::kSimGrid, true, kCompletions / 20);
  }
  LargeAllReduce();
}

}  // namespace orrery
